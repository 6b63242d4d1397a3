"""The verb that says what is in a model folder."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from anydepth.artifact import bundled_model
from anydepth.cli.app import ModelOrBox
from anydepth.cli.families import results
from anydepth.cli.info_parts import layers_in_words, megabytes, numbered, print_rows, size_rows, sizes_of
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.artifact.model import LoadedModel

SIDES = ("encoder", "decoder")


def info(
    model: ModelOrBox = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as JSON, for scripts.")] = False,
) -> None:
    """Show what a model is: parameters, sizes, languages, layers and its depths with what was measured of them."""
    from anydepth.artifact.model import load_model
    from anydepth.cli.info_classifier import facts_of_classifier, print_classifier

    found = load_model(bundled_model() if model is None else model)
    facts = facts_of_classifier(found) if found.kind == "classifier" else facts_of(found)
    if as_json:
        print(json.dumps(facts, indent=1, ensure_ascii=False))
    elif found.kind == "classifier":
        print_classifier(facts, results())
    else:
        _print(facts, results())


def facts_of(loaded: "LoadedModel") -> dict[str, Any]:
    from anydepth.infer.depths import why_no_selector
    from anydepth.infer.languages import must_choose
    from anydepth.selectors.calibration import of_machine

    config, menu, folder = loaded.model.config, loaded.menu, loaded.folder
    views = _views(loaded)
    return {
        "folder": str(folder),
        "languages": list(loaded.languages) if loaded.kind == "translator" else [loaded.languages[0]],
        "pairs": {one.pair: _facts_of_pair(one) for one in views if one.pair is not None},
        "vocabulary": loaded.tokenizer.vocabulary_size,
        **config.model_dump(include={"width", "heads", "ffn", "norm", "residual", "share_embeddings", "max_length"}),
        "encoder_weights": numbered(config.encoder_pattern),
        "decoder_weights": numbered(config.decoder_pattern),
        **sizes_of(loaded),
        "depths": [_depth(one, name) for one in views for name in one.menu.names],
        "default_depth": None if must_choose(loaded) else menu.default.name,
        "measured_on": menu.measured_on,
        "selector": _selector(loaded),
        "why_no_selector": why_no_selector(loaded),
        "calibrations": [asdict(one.conditions) for one in of_machine(folder, loaded.fingerprint)],
    }


def _views(loaded: "LoadedModel") -> "list[LoadedModel]":
    """Of a model of several language pairs each; itself where it translates without a choice and was so measured."""
    from anydepth.infer.languages import choose_pair, must_choose

    if len(loaded.pairs) == 1 or not (loaded.kind == "translator" or must_choose(loaded)):
        return [loaded]
    whole = [loaded] if loaded.menu.measured_on and not must_choose(loaded) else []
    return [*whole, *(choose_pair(loaded, pair.source, pair.target) for pair in loaded.pairs)]


def _facts_of_pair(loaded: "LoadedModel") -> dict[str, Any]:
    return {"default_depth": loaded.menu.default.name, "measured_on": loaded.menu.measured_on}


def _depth(loaded: "LoadedModel", name: str) -> dict[str, Any]:
    entry = loaded.menu[name]
    return {
        **({} if loaded.pair is None else {"pair": loaded.pair}),
        "depth": name,
        "encoder": numbered(entry.subnetwork.encoder),
        "decoder": numbered(entry.subnetwork.decoder),
        "weighted": entry.subnetwork.is_weighted,
        "by_word": entry.subnetwork.by_word,
        "parameters": loaded.parameters(name),
        "bytes": loaded.bytes(name),
        "bleu": entry.quality.get("bleu"),
        "chrf": entry.quality.get("chrf"),
        "seconds_per_sentence": entry.cost.get("seconds_per_sentence"),
    }


def _selector(loaded: "LoadedModel") -> dict[str, Any] | None:
    from anydepth.infer.depths import own_selector

    try:
        selector = own_selector(loaded)
    except UserError as error:  # all else is as it was
        return {"problem": str(error)}
    if selector is None:
        return None
    points = [asdict(point) for point in selector.points]
    return {"kind": selector.kind, "threshold": selector.threshold, "points": points}


def _print(facts: dict[str, Any], console: Console) -> None:
    from anydepth.evaluate.plain_table import plain_table

    print_rows(_rows(facts), console)
    of_pairs = ["pair"] if facts["pairs"] else []
    figures = ["BLEU", "chrF", "ms/sentence"] if _translates(facts) else []
    which = ["layers"] if any(map(_is_chosen, facts["depths"])) else []
    table = plain_table(console, "", *of_pairs, "depth", *which, "parameters", "MB", *figures)
    for one in facts["depths"]:
        table.add_row(
            *(one.get(key, "") for key in of_pairs),
            one["depth"],
            *(_which_layers(one, facts) for _ in which),
            f"{one['parameters']:,}",
            megabytes(one["bytes"]),
            *(_figures(one) if figures else ()),
        )
    console.print(table)


def _is_chosen(depth: dict[str, Any]) -> bool:
    """Whether its layers are not simply the first ones, as they are."""
    first = all(depth[side] == numbered(range(len(depth[side]))) for side in SIDES)
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
    return {
        "model": facts["folder"],
        "language" if one_language else "languages": " to ".join(facts["languages"]),
        **({"pairs": ", ".join(facts["pairs"])} if facts["pairs"] else {}),
        "vocabulary": f"{facts['vocabulary']:,} sub-words; embeddings: {embeddings[facts['share_embeddings']]}",
        "size": f"width {facts['width']}, {facts['heads']} heads, feed-forward {facts['ffn']}",
        **_layer_options(facts),
        "encoder": layers_in_words(facts["encoder_weights"]),
        "decoder": layers_in_words(facts["decoder_weights"]),
        **size_rows(facts),
        "depths": f"{len(facts['depths'])}; by default {_defaults(facts)}",
        **(_rows_of_figures(facts) if _translates(facts) else {"measured": "not here; `anydepth perplexity` does it"}),
    }


def _rows_of_figures(facts: dict[str, Any]) -> dict[str, str]:
    return {
        **_measured_rows(facts),
        "selector": _kind(facts["selector"], facts["why_no_selector"]),
        "calibration": _calibrations(facts["calibrations"]),
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


def _figures(depth: dict[str, Any]) -> list[str]:
    seconds = depth["seconds_per_sentence"]
    return [_figure(value) for value in (depth["bleu"], depth["chrf"], None if seconds is None else 1000 * seconds)]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
