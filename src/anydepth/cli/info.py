"""`anydepth info`: what is in a model folder or file."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anydepth.artifact import bundled_model
from anydepth.cli.options import ModelFileOrBundled, results
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.artifact.model import LoadedModel
    from anydepth.evaluate.report import Table

SIDES = ("encoder", "decoder")


def info(
    model: ModelFileOrBundled = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Describe a model: languages, layers, parameters, sizes, and quality and speed of every depth."""
    from anydepth.artifact.model import load_model
    from anydepth.evaluate.render import print_table

    found = load_model(bundled_model() if model is None else model)
    classifies = found.kind == "classifier"
    facts = _classifier_facts(found) if classifies else translator_facts(found)
    if as_json:
        print(json.dumps(facts, indent=1, ensure_ascii=False))
        return
    rows = _classifier_rows(facts) if classifies else _rows(facts)
    width, console = max(map(len, rows)), results()
    for name, value in rows.items():
        console.print(f"{name:<{width}}  {value}", markup=False, highlight=False, soft_wrap=True)
    console.print()
    print_table(_classifier_depths(facts) if classifies else _depths(facts), console)


def translator_facts(loaded: "LoadedModel") -> dict[str, Any]:
    from anydepth.selectors.calibration import of_machine
    from anydepth.selectors.promise import load_all

    config, menu, folder = loaded.config, loaded.menu, loaded.folder
    views = _views(loaded)
    return {
        "folder": str(_file(loaded) or folder),
        "languages": list(loaded.languages) if loaded.kind == "translator" else [loaded.languages[0]],
        "pairs": {
            one.pair: {"default_depth": one.menu.default.name, "measured_on": one.menu.measured_on}
            for one in views
            if one.pair is not None
        },
        "vocabulary": loaded.tokenizer.vocabulary_size,
        **config.model_dump(include={"width", "heads", "ffn", "norm", "residual", "share_embeddings", "max_length"}),
        "encoder_weights": _numbered(config.encoder_pattern),
        "decoder_weights": _numbered(config.decoder_pattern),
        **_sizes(loaded),
        "depths": [_depth(one, name) for one in views for name in one.menu.names],
        "default_depth": None if loaded.must_choose else menu.default.name,
        "measured_on": menu.measured_on,
        "selector": _selector(loaded),
        "why_no_selector": loaded.why_no_selector(),
        "calibrations": [asdict(one.conditions) for one in of_machine(folder, loaded.fingerprint)],
        "promises": [{**asdict(one), "rule": one.rule} for one in load_all(folder, loaded.fingerprint)],
    }


def _views(loaded: "LoadedModel") -> "list[LoadedModel]":
    """Of a model of several language pairs each; itself where it translates without a choice and was so measured."""
    if len(loaded.pairs) == 1 or not (loaded.kind == "translator" or loaded.must_choose):
        return [loaded]
    whole = [loaded] if loaded.menu.measured_on and not loaded.must_choose else []
    return [*whole, *(loaded.choose_pair(pair.source, pair.target) for pair in loaded.pairs)]


def _depth(loaded: "LoadedModel", name: str) -> dict[str, Any]:
    entry = loaded.menu[name]
    return {
        **({} if loaded.pair is None else {"pair": loaded.pair}),
        "depth": name,
        "encoder": _numbered(entry.subnetwork.encoder),
        "decoder": _numbered(entry.subnetwork.decoder),
        "weighted": entry.subnetwork.is_weighted,
        "by_word": entry.subnetwork.by_word,
        "parameters": None if _file(loaded) else loaded.parameters(name),
        "bytes": loaded.bytes(name),
        "bleu": entry.quality.get("bleu"),
        "chrf": entry.quality.get("chrf"),
        "seconds_per_sentence": entry.cost.get("seconds_per_sentence"),
    }


def _selector(loaded: "LoadedModel") -> dict[str, Any] | None:
    try:
        selector = loaded.selector
    except UserError as error:  # all else is as it was
        return {"problem": str(error)}
    if selector is None:
        return None
    points = [asdict(point) for point in selector.points]
    return {"kind": selector.kind, "threshold": selector.threshold, "points": points}


def _depths(facts: dict[str, Any]) -> "Table":
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "pair": lambda one: one.get("pair", ""),
        "depth": lambda one: one["depth"],
        "layers": lambda one: _which_layers(one, facts),
        "parameters": lambda one: f"{one['parameters']:,}",
        _size_title(facts): lambda one: _megabytes(one["bytes"]),
        "BLEU": lambda one: _figure(one["bleu"], 1),
        "chrF": lambda one: _figure(one["chrf"], 1),
        "ms/sentence": lambda one: _figure(one["seconds_per_sentence"], 1, 1000),
    }
    unused = set() if facts["pairs"] else {"pair"}
    unused |= set() if _translates(facts) else {"BLEU", "chrF", "ms/sentence"}
    unused |= set() if facts["parameters"] is not None else {"parameters"}
    unused |= set() if any(map(_is_chosen, facts["depths"])) else {"layers"}
    return _table({title: show for title, show in columns.items() if title not in unused}, facts["depths"])


def _is_chosen(depth: dict[str, Any]) -> bool:
    """Whether its layers are not simply the first ones, as they are."""
    first = all(depth[side] == _numbered(range(len(depth[side]))) for side in SIDES)
    return depth["weighted"] or depth["by_word"] or not first


def _which_layers(depth: dict[str, Any], facts: dict[str, Any]) -> str:
    """Of a side that does not run whole."""
    if depth["weighted"]:
        return "all, weighted"
    if depth["by_word"]:
        return "as many as each word needs"
    parts = [side for side in SIDES if len(depth[side]) < len(facts[f"{side}_weights"])]
    return "; ".join(f"{side} {' '.join(map(str, depth[side]))}" for side in parts)


def _translates(facts: dict[str, Any]) -> bool:
    """Or is an encoder alone."""
    return bool(facts["decoder_weights"])


def _rows(facts: dict[str, Any]) -> dict[str, str]:
    one_language = not _translates(facts) and not any("," in name for name in facts["languages"])
    embeddings = {"all": "one matrix", "target": "target and output share one", "none": "three matrices"}
    rows = {
        "model": facts["folder"],
        "language" if one_language else "languages": " to ".join(facts["languages"]),
        **({"pairs": ", ".join(facts["pairs"])} if facts["pairs"] else {}),
        "vocabulary": f"{facts['vocabulary']:,} subwords; embeddings: {embeddings[facts['share_embeddings']]}",
        "size": f"width {facts['width']}, {facts['heads']} heads, feed-forward {facts['ffn']}",
        **_layer_options(facts),
        "encoder": _layers_in_words(facts["encoder_weights"]),
        "decoder": _layers_in_words(facts["decoder_weights"]),
        **_size_rows(facts),
        "depths": f"{len(facts['depths'])}; by default {_defaults(facts)}",
    }
    if not _translates(facts):
        return rows | {"measured": "not here; `anydepth perplexity` does it"}
    rows |= _measured_rows(facts)
    return rows | {
        "selector": _kind(facts["selector"], facts["why_no_selector"]),
        "calibration": _calibrations(facts["calibrations"]),
        **({"promises": _promises(facts["promises"])} if facts["promises"] else {}),
    }


def _layer_options(facts: dict[str, Any]) -> dict[str, str]:
    """What is unusual of all layers."""
    from anydepth.config import ModelConfig

    fields = ModelConfig.model_fields
    unusual = [f"{key} {facts[key]}" for key in ("norm", "residual") if facts[key] != fields[key].default]
    return {"layers": ", ".join(unusual)} if unusual else {}


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


def _kind(selector: dict[str, Any] | None, why_none: str | None) -> str:
    if selector is None:
        return f"none; {why_none or '`anydepth select` trains one'}"
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


def _promises(promises: list[dict[str, Any]]) -> str:
    return "; ".join(
        f"{100 * one['keep']:.6g}% at {one['depth']} with {one['rule']}, beam {one['beam']}, {one['engine']}, "
        f"{one['source_file']}" + ("" if one["pair"] is None else f", {one['pair']}")
        for one in promises
    )


def _figure(value: float | None, places: int, times: float = 1) -> str:
    return "" if value is None else f"{times * value:.{places}f}"


def _classifier_facts(classifier: "LoadedModel") -> dict[str, Any]:
    config, menu, rule = classifier.config, classifier.menu, classifier.token_depths
    return {
        "folder": str(_file(classifier) or classifier.folder),
        "labels": list(classifier.labels),
        "vocabulary": classifier.tokenizer.vocabulary_size,
        **config.model_dump(include={"width", "heads", "ffn", "norm", "activation", "positions", "max_length"}),
        "encoder_weights": _numbered(config.encoder_pattern),
        **_sizes(classifier),
        "words": None
        if rule is None
        else {
            "kind": rule.table.kind,
            "words": len(rule.table.values),
            "texts": len(rule.table.texts),
            "special": rule.special,
            "unseen": rule.unseen,
            "scale": rule.scale,
            "lambda": rule.table.lambda_ if rule.lambda_ is None else rule.lambda_,
        },
        "halting": config.halting,
        "depths": [
            {
                "depth": entry.name,
                "by_word": entry.subnetwork.by_word,
                "parameters": None if _file(classifier) else classifier.parameters(entry.name),
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


def _classifier_depths(facts: dict[str, Any]) -> "Table":
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "depth": lambda one: one["depth"],
        "parameters": lambda one: f"{one['parameters']:,}",
        _size_title(facts): lambda one: _megabytes(one["bytes"]),
        "accuracy": lambda one: _figure(one["accuracy"], 2),
        "mean depth": lambda one: _figure(one["mean_depth"], 2),
        "ms/text": lambda one: _figure(one["seconds_per_text"], 2, 1000),
    }
    unused = set() if facts["parameters"] is not None else {"parameters"}
    return _table({name: value for name, value in columns.items() if name not in unused}, facts["depths"])


def _classifier_rows(facts: dict[str, Any]) -> dict[str, str]:
    labels = facts["labels"]
    more = f" and {len(labels) - 12} more" if len(labels) > 12 else ""
    return {
        "model": facts["folder"],
        "labels": f"{len(labels)}: {', '.join(labels[:12])}{more}",
        "vocabulary": f"{facts['vocabulary']:,} subwords",
        "size": f"width {facts['width']}, {facts['heads']} heads, feed-forward {facts['ffn']}",
        "encoder": _layers_in_words(facts["encoder_weights"]),
        **_size_rows(facts),
        "words": _words(facts),
        "depths": f"{len(facts['depths'])}; by default {facts['default_depth']}",
        "measured": _classifier_measured(facts["measured_on"]),
    }


def _words(facts: dict[str, Any]) -> str:
    rule = facts["words"]
    if rule is None:
        return "a halting unit says how deep each goes" if facts["halting"] else "all run all layers of a depth"
    penalty = "" if rule["lambda"] is None else f", lambda {rule['lambda']:g}"
    return f"a depth for each of {rule['words']:,} by {rule['kind']}, scale {rule['scale']:g}{penalty}"


def _classifier_measured(on: dict[str, Any]) -> str:
    if not on:
        return "not yet; `anydepth evaluate` does it"
    return ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in on.items())


def _file(loaded: "LoadedModel") -> Path | None:
    """The model file, if it is one: that says nothing of parameters."""
    from anydepth.artifact.weights import FileWeights

    return loaded.weights.file.path if isinstance(loaded.weights, FileWeights) else None


def _sizes(loaded: "LoadedModel") -> dict[str, int | None]:
    """In memory: as PyTorch has it, or the sections of a model file."""
    from anydepth.artifact.folder import WEIGHTS
    from anydepth.artifact.weights import FileWeights
    from anydepth.engines.packed import NAME

    if isinstance(loaded.weights, FileWeights):
        file = loaded.weights.file
        in_memory = sum(place.size for place in file.places)
        return {"parameters": None, "bytes_in_memory": in_memory, "bytes_on_disk": file.path.stat().st_size}
    parameters, folder = list(loaded.model.parameters()), loaded.folder
    files = {} if folder is None else {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    return {
        "parameters": sum(one.numel() for one in parameters),
        "bytes_in_memory": sum(one.numel() * one.element_size() for one in parameters),
        "bytes_on_disk": sum(files.values()),
        "bytes_of_weights": sum(size for path, size in files.items() if path.name == WEIGHTS),
        "bytes_packed": sum(size for path, size in files.items() if path.name == NAME),
    }


def _size_rows(facts: dict[str, Any]) -> dict[str, str]:
    return {
        **({} if facts["parameters"] is None else {"parameters": f"{facts['parameters']:,}, each counted once"}),
        "on disk": f"{_megabytes(facts['bytes_on_disk'])} MB{_files(facts)}",
        "in memory": f"{_megabytes(facts['bytes_in_memory'])} {_size_title(facts)}",
    }


def _files(facts: dict[str, Any]) -> str:
    """The large ones of a folder."""
    if facts["parameters"] is None:
        return ""
    packed = facts["bytes_packed"]
    copy = f", packed copy for the native engine {_megabytes(packed)} MB" if packed else ""
    return f": weights {_megabytes(facts['bytes_of_weights'])} MB{copy}"


def _size_title(facts: dict[str, Any]) -> str:
    """A model file has the weights of the native engine, in int8; of a folder it is what PyTorch loads."""
    return "MB in int8" if facts["parameters"] is None else "MB in float32"


def _numbered(pattern: Iterable[int]) -> list[int]:
    """For each layer the number, from 1, of the weights that it has: layers of one number share them."""
    return [index + 1 for index in pattern]


def _table(columns: dict[str, Callable[[dict[str, Any]], str]], depths: list[dict[str, Any]]) -> "Table":
    from anydepth.evaluate.report import Column, Table

    first, *others = columns
    rows = [[show(one) for show in columns.values()] for one in depths]
    return Table([Column(first, align="left"), *map(Column, others)], rows)


def _layers_in_words(weights: list[int]) -> str:
    if not weights:
        return "none"
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


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"
