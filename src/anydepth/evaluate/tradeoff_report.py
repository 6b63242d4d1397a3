"""The report of `anydepth select`: whether choosing the depth of each sentence is worth it."""

import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from anydepth.evaluate.figures import (
    INK,
    SERIES,
    SHAPES,
    SOFT,
    Frame,
    PointName,
    Scale,
    depth_map,
    legend_below,
    name_points,
    tip_points,
)
from anydepth.evaluate.report import (
    Cell,
    Column,
    Figure,
    Heading,
    Report,
    Row,
    Section,
    Table,
    Terms,
    Text,
    Tile,
    Tiles,
    Value,
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


def tradeoff_report(result: TradeoffResult, key: dict[str, Any]) -> Report:
    """`key` says what the folder's translations and networks were made from."""
    conditions = result.conditions
    of_file = f" of {conditions.source_file}" if conditions.source_file else ""
    sections: list[Section] = [
        Text(result.verdict, "strong", where="page"),
        _tiles(result),
        Heading("Quality against time"),
        _curve_figure(result),
        Text(MIXTURES, where="page"),
    ]
    for curve in result.curves:
        saved = ", saved with the model" if curve.kind == result.saved_kind else ""
        sections += [
            Heading(f"The curve of {curve.kind}{saved}"),
            Text(f"It {MEANING[curve.kind]}. It is {curve.verdict}.", where="page"),
            _curve_table(result, curve),
            Text(f"{curve.kind}: {curve.verdict}\n", where="terminal"),
        ]
    sections += [
        Text(_about_curves(result), "soft", where="page"),
        Heading("Which depths are taken"),
        *_depth_maps(result),
        Heading("Every fixed depth"),
        _fixed_table(result),
        Heading("How this was measured"),
        _terms(result),
        Text(_timing(result), where="terminal"),
        Text(result.verdict, where="terminal"),
    ]
    return Report(
        f"Is it worth choosing the depth of each sentence? {result.label}",
        sections,
        _record(key, result),
        lead=f"{result.sizes['test']} test sentences{of_file}, which the selector never saw, beam {conditions.beam}, "
        f"one sentence at a time on {conditions.device} with {_threads(conditions.threads)}, {conditions.date[:10]}",
    )


def write_record(folder: Path, key: dict[str, Any]) -> None:
    """What is known before the end, so that the same command can go on with it: select.json without a result."""
    write_atomically(folder / RECORD, json.dumps(_record(key, None), indent=2, ensure_ascii=False) + "\n")


def _record(key: dict[str, Any], result: TradeoffResult | None) -> dict[str, Any]:
    return {"format": FORMAT, "key": key, "result": result and result.to_json()}


def _tiles(result: TradeoffResult) -> Tiles:
    timing, deepest, chosen = result.timing, result.deepest_depth, result.chosen
    mixture = "" if chosen.mixture is None else f" and a mixture as fast {chosen.mixture:.2f}"
    return Tiles(
        [
            Tile(
                "Time with depth auto, measured",
                _percent(timing.ratio),
                f"of what {deepest.name} takes: {_ms(timing.auto)} ms for {_ms(timing.deepest)} ms",
            ),
            Tile(
                "Quality with depth auto",
                f"{chosen.bleu - deepest.bleu:+.2f} BLEU",
                f"{chosen.bleu:.2f}, where {deepest.name} has {deepest.bleu:.2f}{mixture}",
            ),
            Tile(
                "Choosing alone, measured",
                _percent(timing.overhead),
                f"of translating at {result.fixed[0].name}, the shallowest: {_ms(timing.choosing)} ms for "
                f"{_ms(timing.shallowest)} ms",
            ),
        ]
    )


def _curve_table(result: TradeoffResult, curve: SelectorCurve) -> Table:
    columns = [
        Column("threshold", format="g"),
        Column("ms", format=".2f"),
        Column("BLEU", format=".2f"),
        Column("mixture", "BLEU of the random mixture that takes no longer", format=".2f"),
        Column("difference", "to the mixture"),
        Column("chrF", format=".2f", where="page"),
        Column("mostly at"),
        Column("", align="left"),
    ]
    rows = [
        Row(
            [
                point.threshold,
                1000 * point.seconds,
                point.bleu,
                point.mixture,
                _difference(point),
                point.chrf,
                _mostly(point, result),
                Cell(point.note or ("above" if point.is_above else "not above"), soft=True),
            ],
            strong=curve.kind == result.saved_kind and point.threshold == result.threshold,
        )
        for point in curve.points
    ]
    return Table(columns, rows, title=curve.kind)


def _fixed_table(result: TradeoffResult) -> Table:
    columns = [
        Column("depth"),
        *(Column(name, format=".2f") for name in ("ms", "BLEU", "chrF")),
        Column("selector takes it for"),
        Column("oracle takes it for"),
    ]
    shares = zip(result.fixed, result.chosen.share_k, result.oracle.share_k, strict=True)
    rows = [
        Row(
            [one.name, 1000 * one.seconds, one.bleu, one.chrf, _percent(selector), _percent(oracle)],
            strong=one.name == result.deepest,
        )
        for one, selector, oracle in shares
    ]
    oracle: list[Value] = ["oracle", 1000 * result.oracle.seconds, result.oracle.bleu, result.oracle.chrf]
    return Table(columns, rows, foot=[oracle], where="page")


def _about_curves(result: TradeoffResult) -> str:
    seeds, deepest = result.saved.seeds, result.deepest
    overheads = " and ".join(f"{_ms(curve.overhead)} ms for {curve.kind}" for curve in result.curves)
    said = [f"Each figure is the mean over {seeds} seed{'s' if seeds != 1 else ''}."]
    if seeds > 1:
        said.append("± is the standard error over the seeds of the network and over the test sentences, by bootstrap.")
    said.append(f"The time includes that of choosing, {overheads}.")
    if len(result.curves) > 1:
        said.append(
            f"Of these, {result.saved_kind} is the furthest above the mixtures on the validation part, and saved."
        )
    if result.saved_kind == "labels":
        said.append("The threshold it was saved with is the paper's.")
    else:
        said.append(
            f"The threshold it was saved with is the fastest that loses at most {BLEU_TO_GIVE_UP} BLEU against "
            f"{deepest} on the validation part, or else the best there."
        )
    return " ".join(said)


def _terms(result: TradeoffResult) -> Terms:
    conditions, sizes, timing = result.conditions, result.sizes, result.timing
    files = " and ".join(filter(None, (conditions.source_file, conditions.reference_file))) or "unnamed"
    tuned = f"; fine-tuned on {result.fine_tuned_on}" if result.fine_tuned_on else ""
    return Terms(
        [
            (
                "sentences",
                f"{files}, {conditions.lines} lines: {sizes['train']} to train on, {sizes['valid']} to validate, "
                f"{sizes['test']} to test; equal sources are in the same part{tuned}",
            ),
            ("search", f"beam {conditions.beam}, length penalty {conditions.length_penalty}"),
            (
                "time of curves",
                "from the calibration of this machine: the time of each depth at batch 1 as a line over the length of "
                "the sentence",
            ),
            (
                "time measured",
                f"{timing.sentences} test sentences one by one, each at its chosen depth, at {result.deepest} and at "
                f"{result.fixed[0].name} in turn",
            ),
            ("machine", f"{conditions.device}, {_threads(conditions.threads)}, {conditions.machine}"),
            *((f"{name} signature", signature) for name, signature in result.signatures.items()),
            ("chrF", "in the tables, the mean over the sentences"),
            ("versions", ", ".join(f"{name} {number}" for name, number in conditions.versions.items())),
            ("date", conditions.date),
        ]
    )


def _timing(result: TradeoffResult) -> str:
    timing = result.timing
    return (
        f"measured one by one on {timing.sentences} test sentences: {_ms(timing.auto)} ms at chosen depths, "
        f"{timing.ratio:.2f} of {result.deepest}'s {_ms(timing.deepest)} ms; choosing takes {_ms(timing.choosing)} ms, "
        f"{timing.overhead:.0%} of {result.fixed[0].name}'s {_ms(timing.shallowest)} ms"
    )


def _difference(point: CurvePoint) -> str:
    """To the mixture, with the standard error where it is known."""
    if point.difference is None:
        return ""
    return f"{point.difference:+.2f}" + ("" if point.error is None else f" ± {point.error:.2f}")


def _mostly(point: CurvePoint, result: TradeoffResult, count: int = 3) -> str:
    """The depths that most sentences are at."""
    named = sorted(zip(point.share_k, result.fixed, strict=True), key=lambda pair: -pair[0])
    return ", ".join(f"{depth.name} {share:.0%}" for share, depth in named[:count] if share >= 0.005)


def _curve_figure(result: TradeoffResult) -> Figure:
    """Milliseconds per sentence across, BLEU up: the line to beat, what was learnt, and what an oracle could do."""

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        x, y = [1000 * one.seconds for one in result.fixed], [one.bleu for one in result.fixed]
        axes.plot(x, y, "o", color=SOFT, alpha=0.6, markersize=5, mew=0, zorder=2, label="one fixed depth")
        tip_points(axes, x, y, [f"{one.name}: {one.bleu:.2f} BLEU, {_ms(one.seconds)} ms" for one in result.fixed])
        line = [1000 * at for at, _ in result.mixture], [bleu for _, bleu in result.mixture]
        axes.plot(*line, color=INK, linewidth=1.3, linestyle=(0, (4, 2)), zorder=3, label="random mixture of depths")
        for index, curve in enumerate(result.curves):
            _draw_selector(axes, curve, SERIES[index], SHAPES[index])
        deepest, saved = result.deepest_depth, SERIES[result.curves.index(result.saved)]
        what = f"saved: {result.saved_kind}, threshold {result.threshold:g}"
        _draw_mark(axes, result.oracle, "oracle: sees references", "*", color=ORACLE, markersize=13, zorder=4)
        _draw_mark(axes, deepest, f"{deepest.name}, the deepest", "o", mfc="none", mec=INK, markersize=10, zorder=4)
        _draw_mark(axes, result.chosen, what, "o", mfc="none", mec=saved, markersize=12, zorder=6)
        axes.set_xlabel("time per sentence in ms, one by one")
        axes.set_ylabel("BLEU")
        axes.margins(x=0.06, y=0.08)
        axes.grid()
        legend_below(canvas, axes, 1)
        name_points(canvas, axes, _depth_names(result), _drawn(result))

    title = "Choosing the depth of each sentence is worth it above the dashed line"
    return Figure("curve", title, drawing, caption=f"{title}.", size=(5.6, 5.4))


def _depth_maps(result: TradeoffResult) -> list[Figure]:
    """Which depths the saved selector takes, beside those that would have been best."""
    frame = Frame.around([result])
    titles = {
        "depths": (f"{result.saved_kind}, threshold {result.threshold:g}", result.chosen),
        "depths-oracle": ("oracle", result.oracle),
    }
    grids = {name: 100 * frame.fill(partial(result.share_at, outcome)) for name, (_, outcome) in titles.items()}
    scale = Scale.over(grids.values(), "Blues", "% of the sentences", low=0.0)
    return [
        depth_map(name, f"% of the sentences, {title}", frame, grids[name], scale)
        for name, (title, _) in titles.items()
    ]


def _draw_mark(axes: Axes, at: ChoiceOutcome | FixedDepth, label: str, shape: str, **look: Any) -> None:
    axes.plot([1000 * at.seconds], [at.bleu], shape, mew=1.5, label=label, linestyle="", **look)
    tip_points(axes, [1000 * at.seconds], [at.bleu], [f"{label}: {at.bleu:.2f} BLEU, {_ms(at.seconds)} ms"])


def _draw_selector(axes: Axes, curve: SelectorCurve, colour: str, shape: str) -> None:
    points = sorted(curve.points, key=lambda point: point.seconds)
    x, bleu = [1000 * point.seconds for point in points], np.array([point.bleu for point in points])
    error = np.array([point.bleu_error or 0.0 for point in points])
    axes.fill_between(x, bleu - error, bleu + error, color=colour, alpha=0.18, linewidth=0, zorder=4)
    name = f"learnt {curve.kind}" + (f", ± standard error of {curve.seeds} seeds" if curve.seeds > 1 else "")
    axes.plot(x, bleu, shape + "-", color=colour, markersize=5, linewidth=1.6, zorder=5, label=name)
    tips = [f"{curve.kind}, {one.threshold:g}: {one.bleu:.2f} BLEU, {_ms(one.seconds)} ms" for one in points]
    tip_points(axes, x, bleu.tolist(), tips)


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


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"
