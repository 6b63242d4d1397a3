"""What `anydepth info` says of a model that classifies."""

from typing import TYPE_CHECKING, Any

from rich.console import Console

from anydepth.cli.info_parts import layers_in_words, megabytes, numbered, print_rows, size_rows, sizes_of

if TYPE_CHECKING:
    from anydepth.artifact.model import LoadedModel


def facts_of_classifier(classifier: "LoadedModel") -> dict[str, Any]:
    config, menu, rule = classifier.model.config, classifier.menu, classifier.token_depths
    return {
        "folder": str(classifier.folder),
        "labels": list(classifier.labels),
        "vocabulary": classifier.tokenizer.vocabulary_size,
        **config.model_dump(include={"width", "heads", "ffn", "norm", "activation", "positions", "max_length"}),
        "encoder_weights": numbered(config.encoder_pattern),
        **sizes_of(classifier),
        "words": None
        if rule is None
        else {
            "kind": rule.table.kind,
            "words": len(rule.table.values),
            "texts": len(rule.table.texts),
            "special": rule.special,
            "scale": rule.scale,
            "lambda": rule.table.lambda_ if rule.lambda_ is None else rule.lambda_,
        },
        "halting": config.halting,
        "depths": [
            {
                "depth": entry.name,
                "by_word": entry.subnetwork.by_word,
                "parameters": classifier.parameters(entry.name),
                "bytes": classifier.bytes(entry.name),
                "accuracy": entry.quality.get("accuracy"),
                "mean_depth": entry.cost.get("depth"),
                "seconds_per_text": entry.cost.get("seconds_per_text"),
            }
            for entry in menu
        ],
        "default_depth": menu.default.name,
        "measured_on": menu.measured_on,
    }


def print_classifier(facts: dict[str, Any], console: Console) -> None:
    from anydepth.evaluate.plain_table import plain_table

    print_rows(_rows(facts), console)
    table = plain_table(console, "", "depth", "parameters", "MB", "accuracy", "mean depth", "ms/text")
    for one in facts["depths"]:
        seconds = one["seconds_per_text"]
        figures = (one["accuracy"], one["mean_depth"], None if seconds is None else 1000 * seconds)
        shown = ("" if figure is None else f"{figure:.2f}" for figure in figures)
        table.add_row(one["depth"], f"{one['parameters']:,}", megabytes(one["bytes"]), *shown)
    console.print(table)


def _rows(facts: dict[str, Any]) -> dict[str, str]:
    labels = facts["labels"]
    more = f" and {len(labels) - 12} more" if len(labels) > 12 else ""
    return {
        "model": facts["folder"],
        "labels": f"{len(labels)}: {', '.join(labels[:12])}{more}",
        "vocabulary": f"{facts['vocabulary']:,} sub-words",
        "size": f"width {facts['width']}, {facts['heads']} heads, feed-forward {facts['ffn']}",
        "encoder": layers_in_words(facts["encoder_weights"]),
        **size_rows(facts),
        "words": _words(facts),
        "depths": f"{len(facts['depths'])}; by default {facts['default_depth']}",
        "measured": _measured(facts["measured_on"]),
    }


def _words(facts: dict[str, Any]) -> str:
    rule = facts["words"]
    if rule is None:
        return "a halting unit says how deep each goes" if facts["halting"] else "all run all layers of a depth"
    penalty = "" if rule["lambda"] is None else f", lambda {rule['lambda']:g}"
    return f"a depth for each of {rule['words']:,} by {rule['kind']}, scale {rule['scale']:g}{penalty}"


def _measured(on: dict[str, Any]) -> str:
    if not on:
        return "not yet; `anydepth evaluate` does it"
    return ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in on.items())
