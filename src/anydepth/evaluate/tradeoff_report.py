"""The trade-off as a folder to keep, a page that needs nothing else, and as a table on the terminal."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from anydepth.errors import UserError
from anydepth.evaluate.page import render_page
from anydepth.evaluate.plain_table import plain_table
from anydepth.evaluate.tradeoff import BLEU_TO_GIVE_UP
from anydepth.evaluate.tradeoff_plot import draw_curve, draw_depths
from anydepth.evaluate.tradeoff_result import CurvePoint, SelectorCurve, TradeoffResult
from anydepth.files import write_atomically

FORMAT = 1
RECORD, PAGE = "select.json", "index.html"
CURVE, DEPTHS = "curve.png", "depths.png"
PRICE = "; the threshold is the price of time, and 0 takes the best whatever it costs"
MEANING = {
    "likelihood": f"learns how likely each depth finds the reference{PRICE}",
    "values": f"learns the chrF to expect at each depth{PRICE}",
    "labels": "learns which depths are best (Dabre, Rubino and Fujita 2020); below the threshold, a sentence goes to "
    "the deepest",
}


def write_tradeoff_report(result: TradeoffResult, folder: Path, key: dict[str, Any]) -> Path:
    """Write the page, the pictures and select.json, which keeps `key`, into `folder`; return the page's path."""
    pictures = {CURVE: draw_curve(result), DEPTHS: draw_depths(result)}
    try:
        for name, png in pictures.items():
            write_atomically(folder / name, png)
        write_record(folder, key, result)
        write_atomically(folder / PAGE, render(result, pictures))
    except OSError as error:
        raise UserError(f"cannot write the report to {folder}: {error.strerror}; give another folder") from error
    return folder / PAGE


def write_record(folder: Path, key: dict[str, Any], result: TradeoffResult | None = None) -> None:
    """`key` says what the folder's translations and networks were made from; there is no result before the end."""
    content = {"format": FORMAT, "key": key, "result": result and result.to_json()}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / RECORD, text + "\n")


def render(result: TradeoffResult, pictures: dict[str, bytes]) -> str:
    return render_page(
        "tradeoff.html.j2",
        pictures,
        result=result,
        conditions=result.conditions,
        curve_picture=CURVE,
        depths_picture=DEPTHS,
        meaning=MEANING,
        difference=difference_of,
        give_up=BLEU_TO_GIVE_UP,
        mostly=mostly,
    )


def print_tradeoff(result: TradeoffResult, console: Console) -> None:
    for curve in result.curves:
        _print_curve(result, curve, console)
    timing = result.timing
    auto, deepest, shallowest, choosing = (
        f"{1000 * seconds:.2f} ms" for seconds in (timing.auto, timing.deepest, timing.shallowest, timing.choosing)
    )
    _say(
        console,
        f"measured one by one on {timing.sentences} test sentences: {auto} at chosen depths, {timing.ratio:.2f} of "
        f"{result.deepest}'s {deepest}; choosing takes {choosing}, {timing.overhead:.0%} of {result.fixed[0].name}'s "
        f"{shallowest}",
    )
    _say(console, result.verdict)


def _print_curve(result: TradeoffResult, curve: SelectorCurve, console: Console) -> None:
    headers = ("ms", "BLEU", "mixture", "difference", "mostly at", "")
    table = plain_table(console, curve.kind, "threshold", *headers)
    for point in curve.points:
        is_default = curve.kind == result.saved_kind and point.threshold == result.threshold
        table.add_row(
            f"{point.threshold:g}",
            f"{1000 * point.seconds:.2f}",
            f"{point.bleu:.2f}",
            "" if point.mixture is None else f"{point.mixture:.2f}",
            difference_of(point),
            mostly(point, result),
            point.note or ("above" if point.is_above else "not above"),
            style="bold" if is_default else None,
        )
    console.print(table)
    _say(console, f"{curve.kind}: {curve.verdict}\n")


def difference_of(point: CurvePoint) -> str:
    """To the mixture, with the standard error where there are several seeds."""
    if point.difference is None:
        return ""
    return f"{point.difference:+.2f}" + ("" if point.error is None else f" ± {point.error:.2f}")


def mostly(point: CurvePoint, result: TradeoffResult, count: int = 3) -> str:
    """The depths that most sentences are at."""
    named = sorted(zip(point.share_k, result.fixed, strict=True), key=lambda pair: -pair[0])
    return ", ".join(f"{depth.name} {share:.0%}" for share, depth in named[:count] if share >= 0.005)


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
