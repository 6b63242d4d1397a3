"""The report of `anydepth select`: whether choosing the depth of each sentence is worth it."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from anydepth.evaluate import report as rp
from anydepth.evaluate.experiment import counted
from anydepth.evaluate.figures import (
    INK,
    SERIES,
    SOFT,
    PointName,
    Scale,
    Series,
    depth_map,
    name_points,
    plot,
    series_style,
)
from anydepth.evaluate.tradeoff import BLEU_TO_GIVE_UP, ChoiceOutcome
from anydepth.evaluate.tradeoff_result import CurvePoint, FixedDepth, SelectorCurve, TradeoffResult
from anydepth.files import write_atomically

FORMAT = 1
RECORD = "select.json"
ORACLE = SERIES[4]
POINTS_WITH_NAMES = 40
PRICE = "; the threshold is the price of time, and 0 takes the best whatever it costs"
MEANING = {
    "likelihood": f"learns how likely each depth finds the reference{PRICE}",
    "values": f"learns the chrF to expect at each depth{PRICE}",
    "labels": "learns which depths are best (Dabre, Rubino and Fujita 2020); below the threshold, a sentence goes to "
    "the deepest",
}
MIXTURES = (
    "A random mixture draws a depth for each sentence without looking at it. It can have any time between the fastest "
    "and the slowest depth, for nothing: the dashed line is what mixtures of two depths give in that time or less. "
    "Which two, the validation part decides, as it does for a selector. Choosing is worth it only above that line. The "
    "oracle sees the references; part of its lead is luck that no selector can have."
)
ERRORS = "± is the standard error over the seeds of the network and over the test sentences, by bootstrap."


def tradeoff_report(result: TradeoffResult, key: dict[str, Any]) -> rp.Report:
    """`key` says what the folder's translations and networks were made from."""
    conditions = result.conditions
    of_file = f" of {conditions.source_file}" if conditions.source_file else ""
    sections: list[rp.Section] = [
        rp.Text(result.verdict, "strong", where="page"),
        _tiles(result),
        rp.Heading("Quality against time"),
        _curve_figure(result),
        rp.Text(MIXTURES, where="page"),
    ]
    for curve in result.curves:
        saved = ", saved with the model" if curve.kind == result.saved_kind else ""
        sections += [
            rp.Heading(f"The curve of {curve.kind}{saved}"),
            rp.Text(f"It {MEANING[curve.kind]}. It is {curve.verdict}.", where="page"),
            _curve_table(result, curve),
            rp.Text(f"{curve.kind}: {curve.verdict}\n", where="terminal"),
        ]
    sections += [
        rp.Text(_about_curves(result), "soft", where="page"),
        rp.Heading("Which depths are taken"),
        *_depth_maps(result),
        rp.Heading("Every fixed depth"),
        _fixed_table(result),
        rp.Heading("How this was measured"),
        _terms(result),
        rp.Text(_timing(result), where="terminal"),
        rp.Text(result.verdict, where="terminal"),
    ]
    return rp.Report(
        f"Is it worth choosing the depth of each sentence? {result.label}",
        sections,
        _record(key, result),
        lead=f"{result.sizes['test']} test sentences{of_file}, which the selector never saw, beam {conditions.beam}, "
        f"one sentence at a time on {conditions.device} with {counted(conditions.threads, 'thread')}, "
        f"{conditions.date[:10]}",
    )


def write_record(folder: Path, key: dict[str, Any]) -> None:
    """What is known before the end, so that the same command can go on with it: select.json without a result."""
    write_atomically(folder / RECORD, json.dumps(_record(key, None), indent=2, ensure_ascii=False) + "\n")


def _record(key: dict[str, Any], result: TradeoffResult | None) -> dict[str, Any]:
    return {"format": FORMAT, "key": key, "result": result and result.to_json()}


def _tiles(result: TradeoffResult) -> rp.Tiles:
    timing, deepest, chosen = result.timing, result.deepest_depth, result.chosen
    mixture = "" if chosen.mixture is None else f" and a mixture as fast {chosen.mixture:.2f}"
    time = f"of what {deepest.name} takes: {_ms(timing.auto)} ms for {_ms(timing.deepest)} ms"
    quality = f"{chosen.bleu:.2f}, where {deepest.name} has {deepest.bleu:.2f}{mixture}"
    choosing = f"of translating at {result.fixed[0].name}, the shallowest: {_ms(timing.choosing)} ms for "
    return rp.Tiles(
        [
            rp.Tile("Time with depth auto, measured", _percent(timing.ratio), time),
            rp.Tile("Quality with depth auto", f"{chosen.bleu - deepest.bleu:+.2f} BLEU", quality),
            rp.Tile("Choosing alone, measured", _percent(timing.overhead), f"{choosing}{_ms(timing.shallowest)} ms"),
        ]
    )


def _curve_table(result: TradeoffResult, curve: SelectorCurve) -> rp.Table:
    def difference(point: CurvePoint) -> str | None:
        error = "" if point.standard_error is None else f" ± {point.standard_error:.2f}"
        return None if point.difference is None else f"{point.difference:+.2f}{error}"

    def mostly(point: CurvePoint) -> str:
        named = sorted(zip(point.shares, result.fixed, strict=True), key=lambda pair: -pair[0])
        return ", ".join(f"{depth.name} {share:.0%}" for share, depth in named[:3] if share >= 0.005)

    def judgement(point: CurvePoint) -> rp.Cell:
        return rp.Cell(point.note or ("above" if point.above else "not above"), soft=True)

    columns = [
        rp.Column("threshold", lambda one: one.threshold, "g"),
        rp.Column("ms", lambda one: 1000 * one.seconds, ".2f"),
        rp.Column("BLEU", lambda one: one.bleu, ".2f"),
        rp.Column("mixture", lambda one: one.mixture_bleu, ".2f", "BLEU of the random mixture that takes no longer"),
        rp.Column("difference", difference, help="to the mixture, with the standard error over seeds"),
        rp.Column("chrF", lambda one: one.chrf, ".2f", where="page"),
        rp.Column("mostly at", mostly),
        rp.Column("", judgement, align="left"),
    ]
    saved = result.threshold if curve.kind == result.saved_kind else None
    return rp.tabulate(columns, curve.points, curve.kind, strong=lambda one: bool(one.threshold == saved))


def _fixed_table(result: TradeoffResult) -> rp.Table:
    columns = [
        rp.Column("depth", lambda row: row[0].name),
        rp.Column("ms", lambda row: 1000 * row[0].seconds, ".2f"),
        rp.Column("BLEU", lambda row: row[0].bleu, ".2f"),
        rp.Column("chrF", lambda row: row[0].chrf, ".2f"),
        rp.Column("selector takes it for", lambda row: _percent(row[1])),
        rp.Column("oracle takes it for", lambda row: _percent(row[2])),
    ]
    rows, oracle = zip(result.fixed, result.chosen.share_k, result.oracle.share_k, strict=True), result.oracle
    foot: list[rp.Value] = ["oracle", 1000 * oracle.seconds, oracle.bleu, oracle.chrf]
    return rp.tabulate(columns, rows, strong=lambda row: bool(row[0].name == result.deepest), foot=[foot], where="page")


def _about_curves(result: TradeoffResult) -> str:
    seeds, deepest = result.saved.seeds, result.deepest
    overheads = " and ".join(f"{_ms(curve.overhead)} ms for {curve.kind}" for curve in result.curves)
    best = f"Of these, {result.saved_kind} is the furthest above the mixtures on the validation part, and saved."
    threshold = (
        "The threshold it was saved with is the paper's."
        if result.saved_kind == "labels"
        else f"The threshold it was saved with is the fastest that loses at most {BLEU_TO_GIVE_UP} BLEU against "
        f"{deepest} on the validation part, or else the best there."
    )
    said = [
        f"Each figure is the mean over {counted(seeds, 'seed')}.",
        ERRORS if seeds > 1 else "",
        f"The time includes that of choosing, {overheads}.",
        best if len(result.curves) > 1 else "",
        threshold,
    ]
    return " ".join(filter(None, said))


def _terms(result: TradeoffResult) -> rp.Terms:
    conditions, sizes, timing = result.conditions, result.sizes, result.timing
    tuned = f"; fine-tuned on {result.fine_tuned_on}" if result.fine_tuned_on else ""
    pairs = {
        "sentences": f"{conditions.files}, {conditions.lines} lines: {sizes['train']} to train on, {sizes['valid']} to "
        f"validate, {sizes['test']} to test; equal sources are in the same part{tuned}",
        "search": f"beam {conditions.beam}, length penalty {conditions.length_penalty}",
        "time of curves": "from the calibration of this machine: the time of each depth at batch 1 as a line over the "
        "length of the sentence",
        "time measured": f"{timing.sentences} test sentences one by one, each at its chosen depth, at {result.deepest} "
        f"and at {result.fixed[0].name} in turn",
        "machine": f"{conditions.runs_on}, {conditions.machine}",
        **{f"{name} signature": signature for name, signature in result.signatures.items()},
        "chrF": "in the tables, the mean over the sentences",
        **conditions.terms(),
    }
    return rp.Terms(pairs)


def _timing(result: TradeoffResult) -> str:
    timing = result.timing
    return (
        f"measured one by one on {timing.sentences} test sentences: {_ms(timing.auto)} ms at chosen depths, "
        f"{timing.ratio:.2f} of {result.deepest}'s {_ms(timing.deepest)} ms; choosing takes {_ms(timing.choosing)} ms, "
        f"{timing.overhead:.0%} of {result.fixed[0].name}'s {_ms(timing.shallowest)} ms"
    )


def _curve_figure(result: TradeoffResult) -> rp.Figure:
    """Milliseconds per sentence across, BLEU up: the line to beat, what was learnt, and what an oracle could do."""
    fixed, deepest = result.fixed, result.deepest_depth
    look: dict[str, Any] = {"color": SOFT, "marker": "o", "linestyle": "", "alpha": 0.6, "markersize": 5, "mew": 0}
    tips = [f"{one.name}: {_at(one)}" for one in fixed]
    ring: dict[str, Any] = {"marker": "o", "mfc": "none", "linestyle": "", "mew": 1.5}
    saved_colour = SERIES[result.curves.index(result.saved)]
    star = {**ring, "marker": "*", "mfc": ORACLE, "color": ORACLE, "markersize": 13}
    mixture = [1000 * seconds for seconds, _ in result.mixture], [bleu for _, bleu in result.mixture]
    series = [
        Series([1000 * one.seconds for one in fixed], [one.bleu for one in fixed], look, "one fixed depth", tips),
        Series(*mixture, {"color": INK, "linewidth": 1.3, "linestyle": (0, (4, 2))}, "random mixture of depths"),
        *(_selector_series(curve, place) for place, curve in enumerate(result.curves)),
        _mark(result.oracle, "oracle: sees references", star),
        _mark(deepest, f"{deepest.name}, the deepest", {**ring, "mec": INK, "markersize": 10}),
        _mark(
            result.chosen,
            f"saved: {result.saved_kind}, threshold {result.threshold:g}",
            {**ring, "mec": saved_colour, "markersize": 12, "zorder": 6},
        ),
    ]
    names, clear = _depth_names(result), _drawn(result)
    draw = plot(
        series,
        "time per sentence in ms, one by one",
        "BLEU",
        legend=1,
        then=lambda canvas, axes: name_points(canvas, axes, names, clear),
    )
    title = "Choosing the depth of each sentence is worth it above the dashed line"
    return rp.Figure("curve", title, draw, caption=f"{title}.", size=(5.6, 5.4))


def _selector_series(curve: SelectorCurve, place: int) -> Series:
    points = sorted(curve.points, key=lambda point: point.seconds)
    return Series(
        [1000 * point.seconds for point in points],
        [point.bleu for point in points],
        {**series_style(place), "markersize": 5, "zorder": 5},
        f"learnt {curve.kind}" + (f", ± standard error of {curve.seeds} seeds" if curve.seeds > 1 else ""),
        [f"{curve.kind}, {point.threshold:g}: {_at(point)}" for point in points],
        [point.bleu_standard_error for point in points],
    )


def _mark(at: ChoiceOutcome | FixedDepth, label: str, look: dict[str, Any]) -> Series:
    return Series([1000 * at.seconds], [at.bleu], {"zorder": 4, **look}, label, [f"{label}: {_at(at)}"])


def _depth_maps(result: TradeoffResult) -> list[rp.Figure]:
    """Which depths the saved selector takes, beside those that would have been best."""
    maps = [result.percentages(outcome) for outcome in (result.chosen, result.oracle)]
    scale, title = Scale("Blues", "% of the sentences", 0), f"{result.saved_kind}, threshold {result.threshold:g}"
    return [
        depth_map("depths", f"% of the sentences, {title}", maps[0], scale, beside=maps),
        depth_map("depths-oracle", "% of the sentences, oracle", maps[1], scale, beside=maps),
    ]


def _depth_names(result: TradeoffResult) -> list[PointName]:
    """Those on the line of mixtures first, then the others, unless there are too many."""
    line = dict(result.mixture)
    on_line = [one for one in result.fixed if abs(line.get(one.seconds, np.inf) - one.bleu) < 1e-6]
    others = [one for one in result.fixed if one not in on_line] if len(result.fixed) <= POINTS_WITH_NAMES else []
    return [
        *(PointName(one.name, 1000 * one.seconds, one.bleu) for one in on_line),
        *(PointName(one.name, 1000 * one.seconds, one.bleu, SOFT, minor=True) for one in others),
    ]


def _drawn(result: TradeoffResult) -> list[tuple[float, float]]:
    """Points that no name may cover: the marks, and places along the curves."""
    marks: list[ChoiceOutcome | FixedDepth] = [*result.fixed, result.oracle, result.chosen]
    points = [(one.seconds, one.bleu) for one in marks]
    for curve in result.curves:
        joints = sorted((point.seconds, point.bleu) for point in curve.points)
        for (x, y), (to_x, to_y) in pairwise(joints):
            points += [(x + part * (to_x - x), y + part * (to_y - y)) for part in np.linspace(0, 1, 8).tolist()]
    return [(1000 * seconds, bleu) for seconds, bleu in points]


def _at(one: ChoiceOutcome | FixedDepth | CurvePoint) -> str:
    return f"{one.bleu:.2f} BLEU, {_ms(one.seconds)} ms"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
