"""The model card, README.md of a model folder, in the Hugging Face convention."""

from typing import Any

import yaml

from anydepth.depth import DepthMenu

Pairs = list[tuple[str, str]]


def model_card(record: dict[str, Any], menu: DepthMenu) -> str:
    """`record` is the content of config.json."""
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
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        f"# {f'{source} to {target}' if translates else source}, any depth",
        _summary(record, menu, len(pairs)),
        f"```python\nimport anydepth\n\n{_example(menu, pairs, task)}\n```",
        "## Depths",
        *_depth_tables(menu, pairs, task),
        "## Data",
        _data(facts),
        "## Recipe",
        f"```yaml\n{yaml.safe_dump(facts.get('recipe', {}), sort_keys=False, allow_unicode=True)}```",
    ]
    return "\n\n".join(parts) + "\n"


def _summary(record: dict[str, Any], menu: DepthMenu, pairs: int) -> str:
    model = record["model"]
    translates = model["decoder_layers"] > 0
    decoder = f" and {model['decoder_layers']} decoder" if translates else ""
    layers = f"{model['encoder_layers']} encoder{decoder} layers"
    of_pairs = f" for {pairs} {'language pairs' if translates else 'languages'}" if pairs > 1 else ""
    return (
        f"One Transformer of {layers}{of_pairs}, width {model['width']}, vocabulary {record['vocabulary']:,}. "
        f"It {'translates' if translates else 'runs'} at {len(menu)} "
        f"depth{'s' if len(menu) > 1 else ''}; take the one that fits your device."
    )


def _example(menu: DepthMenu, pairs: Pairs, task: str) -> str:
    if task != "translation":
        return 't = anydepth.load("this folder")\nt.model  # an encoder alone'
    chosen = ""
    if len(pairs) > 1:
        source, target = pairs[0]
        chosen, menu = f'.between("{source}", "{target}")', menu.of_pair(f"{source}-{target}")
    return f't = anydepth.load("this folder"){chosen}\nt.translate(["..."], depth="{next(iter(menu)).name}")'


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


def _depth_table(menu: DepthMenu) -> str:
    needed = {"bleu", "chrf", "seconds_per_sentence", "parameters"}
    measured = [entry for entry in menu if needed <= entry.quality.keys() | entry.cost.keys()]
    if not measured:
        return f"{', '.join(menu.names)} (encoder-decoder). Not measured yet: `anydepth sweep` fills in this table."
    lines = [
        "| depth | BLEU | chrF | ms per sentence | parameters |",
        "| --- | --- | --- | --- | --- |",
    ]
    for entry in measured:
        quality, cost = entry.quality, entry.cost
        lines.append(
            f"| {entry.name} | {quality['bleu']:.1f} | {quality['chrf']:.1f} | "
            f"{1000 * cost['seconds_per_sentence']:.1f} | {cost['parameters'] / 1e6:.2f} M |"
        )
    on = ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in menu.measured_on.items())
    return "\n".join(lines) + f"\n\nMeasured on {on}."


def _data(facts: dict[str, Any]) -> str:
    rows = [f"- {name.replace('_', ' ')}: {value}" for name, value in facts.get("data", {}).items()]
    return "\n".join(rows) or "Not recorded."
