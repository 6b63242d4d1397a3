"""The model card, README.md of a model folder, in the Hugging Face convention."""

from typing import Any

from anydepth.depth import DepthMenu

NO_LANGUAGE = "source"  # what a recipe has that names none
SHOWN_LABELS = 20

Pairs = list[tuple[str, str]]


def model_card(record: dict[str, Any], menu: DepthMenu) -> str:
    """`record` is the content of config.json."""
    if record.get("labels"):
        return _classifier_card(record, menu)
    facts, (source, target), translates = record["facts"], record["languages"], record["model"]["decoder_layers"] > 0
    pairs = [(pair["source"], pair["target"]) for pair in record.get("pairs", [])]
    task = "translation" if translates else "fill-mask"
    both = pairs or [(source, target)]
    head = {
        "language": list(dict.fromkeys(language for pair in both for language in pair[: 2 if translates else 1])),
        "library_name": "anydepth",
        "pipeline_tag": task,
        "tags": [task, "anydepth", "flexible-depth"],
    }
    if facts.get("license"):
        head["license"] = facts["license"]
    parts = [
        f"---\n{_dump(head, sort_keys=False)}---",
        f"# {f'{source} to {target}' if translates else source}, {'any depth' if len(menu) > 1 else 'one depth'}",
        _summary(record, menu, len(pairs)),
        *_about(facts),
        f"```python\n{_example(menu, pairs, task)}\n```",
        "## Depths",
        *_depth_tables(menu, pairs, task),
        *_data_and_recipe(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _about(facts: dict[str, Any]) -> list[str]:
    """What whoever trained it wants people to know."""
    return [facts["about"]["text"]] if "about" in facts else []


def _data_and_recipe(facts: dict[str, Any]) -> list[str]:
    """What every card ends with."""
    recipe = _dump(facts.get("recipe", {}), sort_keys=False, allow_unicode=True)
    return ["## Data", _data(facts), "## Recipe", f"```yaml\n{recipe}```"]


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


def _example(menu: DepthMenu, pairs: Pairs, task: str) -> str:
    if task != "translation":
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


def _depth_tables(menu: DepthMenu, pairs: Pairs, task: str) -> list[str]:
    """A table for each pair of several; one for them all where it was measured, as it may be where they share a
    target language."""
    if task != "translation":
        return [f"{', '.join(menu.names)}; `anydepth perplexity` measures them."]
    if len(pairs) < 2:
        return [_depth_table(menu)]
    tables = [_depth_table(menu)] if menu.measured_on else []
    for source, target in pairs:
        tables += [f"### {source} to {target}", _depth_table(menu.of_pair(f"{source}-{target}"))]
    return tables


Column = tuple[str, str, float, str]  # title, key of the figure, times what it is shown, and how
TRANSLATION_COLUMNS: tuple[Column, ...] = (
    ("BLEU", "bleu", 1, ".1f"),
    ("chrF", "chrf", 1, ".1f"),
    ("ms per sentence", "seconds_per_sentence", 1000, ".1f"),
    ("parameters", "parameters", 1e-6, ".2f"),
)
CLASSIFICATION_COLUMNS: tuple[Column, ...] = (
    ("accuracy", "accuracy", 1, ".2f"),
    ("mean depth", "depth", 1, ".2f"),
    ("ms per text", "seconds_per_text", 1000, ".2f"),
    ("parameters", "parameters", 1e-6, ".2f"),
)
UNITS = {"accuracy": " %", "parameters": " M"}


def _table(menu: DepthMenu, columns: tuple[Column, ...], otherwise: str) -> str:
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
    return "\n".join(lines) + f"\n\nMeasured on {_measured_on(menu)}."


def _depth_table(menu: DepthMenu) -> str:
    names = ", ".join(menu.names)
    return _table(
        menu,
        TRANSLATION_COLUMNS,
        f"{names} (encoder-decoder). Not measured yet: `anydepth sweep` fills in this table.",
    )


def _data(facts: dict[str, Any]) -> str:
    rows = [f"- {name.replace('_', ' ')}: {value}" for name, value in facts.get("data", {}).items()]
    return "\n".join(rows) or "Not recorded."


def _classifier_card(record: dict[str, Any], menu: DepthMenu) -> str:
    facts, labels, model = record["facts"], record["labels"], record["model"]
    head: dict[str, Any] = {
        **({} if record["languages"][0] == NO_LANGUAGE else {"language": [record["languages"][0]]}),
        "library_name": "anydepth",
        "pipeline_tag": "text-classification",
        "tags": ["text-classification", "anydepth", "flexible-depth"],
        **({"license": facts["license"]} if facts.get("license") else {}),
    }
    more = f" and {len(labels) - SHOWN_LABELS:,} more" if len(labels) > SHOWN_LABELS else ""
    summary = (
        f"One Transformer of {model['encoder_layers']} encoder layers, width {model['width']}, vocabulary "
        f"{record['vocabulary']:,}. It classifies texts under {len(labels)} label{'s' if len(labels) > 1 else ''}: "
        f"{', '.join(labels[:SHOWN_LABELS])}{more}."
    )
    example = 'from anydepth import Classifier\n\nc = Classifier.load("this folder")\nc.classify("...").label'
    parts = [
        f"---\n{_dump(head, sort_keys=False)}---",
        "# Text classification, any depth",
        summary,
        *_about(facts),
        f"```python\n{example}\n```",
        "## Depths",
        *_meanings(record, menu),
        _accuracy_table(menu),
        *_data_and_recipe(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _meanings(record: dict[str, Any], menu: DepthMenu) -> list[str]:
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
    return ["\n".join(lines)]


def _accuracy_table(menu: DepthMenu) -> str:
    return _table(menu, CLASSIFICATION_COLUMNS, "Not measured yet: `anydepth evaluate` fills in a table.")


def _measured_on(menu: DepthMenu) -> str:
    return ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in menu.measured_on.items())


def _dump(values: dict[str, Any], **options: Any) -> str:
    import yaml  # only cards need it

    return str(yaml.safe_dump(values, **options))
