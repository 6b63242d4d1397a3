"""The model card, README.md of a model folder, in the Hugging Face convention."""

from typing import Any

import yaml

from anydepth.depth import DepthMenu


def model_card(record: dict[str, Any], menu: DepthMenu) -> str:
    """`record` is the content of config.json."""
    facts, (source, target) = record["facts"], record["languages"]
    head = {
        "language": [source, target],
        "library_name": "anydepth",
        "pipeline_tag": "translation",
        "tags": ["translation", "anydepth", "flexible-depth"],
    }
    if facts.get("license"):
        head["license"] = facts["license"]
    model = record["model"]
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        f"# {source} to {target}, any depth",
        f"One Transformer of {model['encoder_layers']} encoder and {model['decoder_layers']} decoder layers, width "
        f"{model['width']}, vocabulary {record['vocabulary']:,}. It translates at {len(menu)} "
        f"depth{'s' if len(menu) > 1 else ''}; take the one that fits your device.",
        f'```python\nimport anydepth\n\nt = anydepth.load("this folder")\n'
        f't.translate(["..."], depth="{next(iter(menu)).name}")\n```',
        "## Depths",
        _depth_table(menu),
        "## Data",
        _data(facts),
        "## Recipe",
        f"```yaml\n{yaml.safe_dump(facts.get('recipe', {}), sort_keys=False, allow_unicode=True)}```",
    ]
    return "\n\n".join(parts) + "\n"


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
