"""The verb that says what is in a model folder."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from anydepth.cli.app import Model
from anydepth.cli.families import results
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.infer.translator import Translator


def info(
    model: Model,
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as JSON, for scripts.")] = False,
) -> None:
    """Show what a model is: parameters, sizes, languages, layers and its depths with what was measured of them."""
    from anydepth.artifact import load

    facts = facts_of(load(model))
    if as_json:
        print(json.dumps(facts, indent=1, ensure_ascii=False))
    else:
        _print(facts, results())


def facts_of(translator: "Translator") -> dict[str, Any]:
    from anydepth.select.calibration import of_machine

    config, menu, folder = translator.model.config, translator.menu, translator.folder
    parameters, views = list(translator.model.parameters()), _views(translator)
    return {
        "folder": str(folder),
        "languages": list(translator.languages),
        "pairs": {one.pair: _facts_of_pair(one) for one in views if one.pair is not None},
        "vocabulary": translator.tokenizer.vocabulary_size,
        **config.model_dump(include={"width", "heads", "ffn", "share_embeddings", "max_length"}),
        "encoder_weights": _numbered(config.encoder_pattern),
        "decoder_weights": _numbered(config.decoder_pattern),
        "parameters": sum(one.numel() for one in parameters),
        "bytes_in_memory": sum(one.numel() * one.element_size() for one in parameters),
        "bytes_on_disk": 0 if folder is None else sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()),
        "depths": [_depth(one, name) for one in views for name in one.menu.names],
        "default_depth": None if translator.must_choose else menu.default.name,
        "measured_on": menu.measured_on,
        "selector": _selector(translator),
        "calibrations": [asdict(one.conditions) for one in of_machine(folder, translator.fingerprint)],
    }


def _views(translator: "Translator") -> "list[Translator]":
    """Of a model of several language pairs each; itself where it translates without a choice and was so measured."""
    if len(translator.pairs) == 1:
        return [translator]
    whole = [translator] if translator.menu.measured_on and not translator.must_choose else []
    return [*whole, *(translator.between(pair.source, pair.target) for pair in translator.pairs)]


def _facts_of_pair(translator: "Translator") -> dict[str, Any]:
    return {"default_depth": translator.menu.default.name, "measured_on": translator.menu.measured_on}


def _numbered(pattern: tuple[int, ...]) -> list[int]:
    """For each layer the number, from 1, of the weights that it has: layers of one number share them."""
    return [index + 1 for index in pattern]


def _depth(translator: "Translator", name: str) -> dict[str, Any]:
    entry = translator.menu[name]
    return {
        **({} if translator.pair is None else {"pair": translator.pair}),
        "depth": name,
        "encoder": _numbered(entry.subnetwork.encoder),
        "decoder": _numbered(entry.subnetwork.decoder),
        "parameters": translator.parameters(name),
        "bytes": translator.bytes(name),
        "bleu": entry.quality.get("bleu"),
        "chrf": entry.quality.get("chrf"),
        "seconds_per_sentence": entry.cost.get("seconds_per_sentence"),
    }


def _selector(translator: "Translator") -> dict[str, Any] | None:
    try:
        selector = translator.selector
    except UserError as error:  # all else is as it was
        return {"problem": str(error)}
    if selector is None:
        return None
    points = [asdict(point) for point in selector.points]
    return {"kind": selector.kind, "threshold": selector.threshold, "points": points}


def _print(facts: dict[str, Any], console: Console) -> None:
    from anydepth.evaluate.plain_table import plain_table

    rows = _rows(facts)
    width = max(map(len, rows))
    for name, value in rows.items():
        console.print(f"{name:<{width}}  {value}", markup=False, highlight=False, soft_wrap=True)
    console.print()
    of_pairs = ["pair"] if facts["pairs"] else []
    table = plain_table(console, "", *of_pairs, "depth", "parameters", "MB", "BLEU", "chrF", "ms/sentence")
    for one in facts["depths"]:
        seconds = one["seconds_per_sentence"]
        table.add_row(
            *(one.get(key, "") for key in of_pairs),
            one["depth"],
            f"{one['parameters']:,}",
            _megabytes(one["bytes"]),
            _figure(one["bleu"]),
            _figure(one["chrf"]),
            _figure(None if seconds is None else 1000 * seconds),
        )
    console.print(table)


def _rows(facts: dict[str, Any]) -> dict[str, str]:
    source, target = facts["languages"]
    embeddings = {"all": "one matrix", "target": "target and output share one", "none": "three matrices"}
    return {
        "model": facts["folder"],
        "languages": f"{source} to {target}",
        **({"pairs": ", ".join(facts["pairs"])} if facts["pairs"] else {}),
        "vocabulary": f"{facts['vocabulary']:,} sub-words; embeddings: {embeddings[facts['share_embeddings']]}",
        "size": f"width {facts['width']}, {facts['heads']} heads, feed-forward {facts['ffn']}",
        "encoder": _layers(facts["encoder_weights"]),
        "decoder": _layers(facts["decoder_weights"]),
        "parameters": f"{facts['parameters']:,}, each counted once",
        "on disk": f"{_megabytes(facts['bytes_on_disk'])} MB",
        "in memory": f"{_megabytes(facts['bytes_in_memory'])} MB",
        "depths": f"{len(facts['depths'])}; by default {_defaults(facts)}",
        **_measured_rows(facts),
        "selector": _kind(facts["selector"]),
        "calibration": _calibrations(facts["calibrations"]),
    }


def _layers(weights: list[int]) -> str:
    count = f"{len(weights)} layer{'s' if len(weights) > 1 else ''}"
    if len(set(weights)) == len(weights):
        return count
    if len(set(weights)) == 1:
        return f"{count}, all with the same weights"
    layers_of: dict[int, list[str]] = {}
    for layer, number in enumerate(weights, 1):
        layers_of.setdefault(number, []).append(str(layer))
    alike = ("=".join(layers) for layers in layers_of.values() if len(layers) > 1)
    return f"{count}; those that share weights: {', '.join(alike)}"


def _defaults(facts: dict[str, Any]) -> str:
    if facts["default_depth"] is not None:
        return str(facts["default_depth"])
    return ", ".join(f"{pair} {one['default_depth']}" for pair, one in facts["pairs"].items())


def _measured_rows(facts: dict[str, Any]) -> dict[str, str]:
    of_pairs = {f"measured {pair}": one["measured_on"] for pair, one in facts["pairs"].items() if one["measured_on"]}
    if facts["measured_on"] or not of_pairs:
        of_pairs = {"measured": facts["measured_on"], **of_pairs}
    return {name: _measured(on) for name, on in of_pairs.items()}


def _measured(on: dict[str, Any]) -> str:
    if not on:
        return "not yet; `anydepth sweep` does it"
    threads = f"{on['threads']} thread{'s' if on['threads'] != 1 else ''}"
    return (
        f"{on['lines']:,} lines of {on['test_set'] or 'a test set'}, beam {on['beam']}, batches of {on['batch_size']}, "
        f"{on['device']} with {threads}, {on['date'][:10]}"
    )


def _kind(selector: dict[str, Any] | None) -> str:
    if selector is None:
        return "none; `anydepth select` trains one"
    if "problem" in selector:
        return str(selector["problem"])
    return f"by {selector['kind']}, threshold {selector['threshold']:g}"


def _calibrations(conditions: list[dict[str, Any]]) -> str:
    if not conditions:
        return "none for this machine; `anydepth calibrate` makes one"
    return "; ".join(
        f"{one['device']}, {one['threads']} thread{'s' if one['threads'] != 1 else ''}, beam {one['beam']}, "
        f"{one['date'][:10]}" + ("" if one["pair"] is None else f", {one['pair']}")
        for one in conditions
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
