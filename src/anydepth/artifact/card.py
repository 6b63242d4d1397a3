"""The model card, README.md of a model folder, in the Hugging Face convention."""

from typing import Any

from anydepth.depth import DepthMenu

NO_LANGUAGE = "source"  # what a recipe has that names none
SHOWN_LABELS = 20
TRANSLATION, CLASSIFICATION = "translation", "text-classification"
UNMEASURED_CLASSIFIER = "Not measured yet: `anydepth evaluate` fills in a table."

PairNames = list[tuple[str, str]]  # source and target language


def model_card(record: dict[str, Any], menu: DepthMenu) -> str:
    """`record` is the content of config.json."""
    if record.get("labels"):
        language = record["languages"][0]
        languages = [] if language == NO_LANGUAGE else [language]
        example = 'from anydepth import Classifier\n\nc = Classifier.load("this folder")\nc.classify("...").label'
        depths = [_meanings(record, menu), _table(menu, CLASSIFICATION_COLUMNS, UNMEASURED_CLASSIFIER)]
        summary = _classifier_summary(record)
        return _card(
            record["facts"], languages, CLASSIFICATION, "Text classification, any depth", summary, example, depths
        )
    (source, target), translates = record["languages"], record["model"]["decoder_layers"] > 0
    pairs = [(pair["source"], pair["target"]) for pair in record.get("pairs", [])]
    task = TRANSLATION if translates else "fill-mask"
    both = pairs or [(source, target)]
    languages = list(dict.fromkeys(language for pair in both for language in pair[: 2 if translates else 1]))
    title = f"{f'{source} to {target}' if translates else source}, {'any depth' if len(menu) > 1 else 'one depth'}"
    summary, example = _summary(record, menu, len(pairs)), _example(menu, pairs, task)
    return _card(record["facts"], languages, task, title, summary, example, _depth_tables(menu, pairs, task))


def _card(
    facts: dict[str, Any], languages: list[str], task: str, title: str, summary: str, example: str, depths: list[str]
) -> str:
    head: dict[str, Any] = {"language": languages} if languages else {}
    head |= {"library_name": "anydepth", "pipeline_tag": task, "tags": [task, "anydepth", "flexible-depth"]}
    if facts.get("license"):
        head["license"] = facts["license"]
    data = [f"- {name.replace('_', ' ')}: {value}" for name, value in facts.get("data", {}).items()]
    recipe = _dump(facts.get("recipe", {}), sort_keys=False, allow_unicode=True)
    parts = [
        f"---\n{_dump(head, sort_keys=False)}---",
        f"# {title}",
        summary,
        *([facts["about"]["text"]] if "about" in facts else []),
        f"```python\n{example}\n```",
        "## Depths",
        *depths,
        "## Data",
        "\n".join(data) or "Not recorded.",
        "## Recipe",
        f"```yaml\n{recipe}```",
    ]
    return "\n\n".join(parts) + "\n"


def _summary(record: dict[str, Any], menu: DepthMenu, pairs: int) -> str:
    model = record["model"]
    translates = model["decoder_layers"] > 0
    decoder = f" and {model['decoder_layers']} decoder" if translates else ""
    layers = f"{model['encoder_layers']} encoder{decoder} layers"
    of_pairs = f" for {pairs} {'language pairs' if translates else 'languages'}" if pairs > 1 else ""
    does = "translates" if translates else "runs"
    depths = f"{len(menu)} depths; take the one that fits your device" if len(menu) > 1 else "one depth"
    return (
        f"One Transformer of {layers}{of_pairs}, width {model['width']}, vocabulary {record['vocabulary']:,}. "
        f"It {does} at {depths}."
    )


def _example(menu: DepthMenu, pairs: PairNames, task: str) -> str:
    if task != TRANSLATION:
        return 'from anydepth.artifact.model import load_model\n\nencoder = load_model("this folder").model'
    chosen = ""
    if len(pairs) > 1:
        source, target = pairs[0]
        chosen = f', source_language="{source}", target_language="{target}"'
        menu = menu.of_pair(f"{source}-{target}")
    return (
        "from anydepth import Translator\n\n"
        f't = Translator.load("this folder"{chosen})\nt.translate("...", depth="{next(iter(menu)).name}")'
    )


def _depth_tables(menu: DepthMenu, pairs: PairNames, task: str) -> list[str]:
    """A table for each pair of several; one for them all where it was measured, as it may be where they share a
    target language."""
    if task != TRANSLATION:
        return [f"{', '.join(menu.names)}; `anydepth perplexity` measures them."]
    if len(pairs) < 2:
        return [_depth_table(menu)]
    tables = [_depth_table(menu)] if menu.measured_on else []
    for source, target in pairs:
        tables += [f"### {source} to {target}", _depth_table(menu.of_pair(f"{source}-{target}"))]
    return tables


CardColumn = tuple[str, str, float, str]  # title, key of the figure, times what it is shown, and how
TRANSLATION_COLUMNS: tuple[CardColumn, ...] = (
    ("BLEU", "bleu", 1, ".1f"),
    ("chrF", "chrf", 1, ".1f"),
    ("ms per sentence", "seconds_per_sentence", 1000, ".1f"),
    ("parameters", "parameters", 1e-6, ".2f"),
)
CLASSIFICATION_COLUMNS: tuple[CardColumn, ...] = (
    ("accuracy", "accuracy", 1, ".2f"),
    ("mean depth", "depth", 1, ".2f"),
    ("ms per text", "seconds_per_text", 1000, ".2f"),
    ("parameters", "parameters", 1e-6, ".2f"),
)
UNITS = {"accuracy": " %", "parameters": " M"}


def _table(menu: DepthMenu, columns: tuple[CardColumn, ...], otherwise: str) -> str:
    """The depths that have all of these figures, or what to say if none has."""
    rows = [(entry.name, entry.quality | entry.cost) for entry in menu]
    measured = [(name, figures) for name, figures in rows if all(key in figures for _, key, _, _ in columns)]
    if not measured:
        return otherwise
    titles = ["depth", *(title for title, *_ in columns)]
    lines = [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    for name, figures in measured:
        cells = (f"{times * figures[key]:{shown}}{UNITS.get(key, '')}" for _, key, times, shown in columns)
        lines.append(f"| {' | '.join((name, *cells))} |")
    on = ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in menu.measured_on.items())
    return "\n".join(lines) + f"\n\nMeasured on {on}."


def _depth_table(menu: DepthMenu) -> str:
    unmeasured = f"{', '.join(menu.names)} (encoder-decoder). Not measured yet: `anydepth sweep` fills in this table."
    return _table(menu, TRANSLATION_COLUMNS, unmeasured)


def _classifier_summary(record: dict[str, Any]) -> str:
    labels, model = record["labels"], record["model"]
    more = f" and {len(labels) - SHOWN_LABELS:,} more" if len(labels) > SHOWN_LABELS else ""
    return (
        f"One Transformer of {model['encoder_layers']} encoder layers, width {model['width']}, vocabulary "
        f"{record['vocabulary']:,}. It classifies texts under {len(labels)} label{'s' if len(labels) > 1 else ''}: "
        f"{', '.join(labels[:SHOWN_LABELS])}{more}."
    )


def _meanings(record: dict[str, Any], menu: DepthMenu) -> str:
    """What the depths are."""
    lines = []
    for entry in menu:
        layers = len(entry.subnetwork.encoder)
        if not entry.subnetwork.by_word:
            how = f"every word runs {layers} layer{'s' if layers > 1 else ''}."
        elif "words" in record:
            how = f"each word runs as many of the {layers} layers as the table `word-depths.json` says."
        else:
            how = f"each word runs as many of the {layers} layers as the model says after the first of them."
        lines.append(f"- {entry.name}: {how}")
    return "\n".join(lines)


def _dump(values: dict[str, Any], **options: Any) -> str:
    import yaml  # only cards need it

    return str(yaml.safe_dump(values, **options))
