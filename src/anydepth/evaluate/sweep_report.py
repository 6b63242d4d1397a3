"""What to show of a sweep: the trade-off of quality and time, every measurement, examples, models compared."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from string import ascii_uppercase

from anydepth.evaluate import report as rp
from anydepth.evaluate.depth_comparison import SIGNIFICANT, Comparison, SharedDepth
from anydepth.evaluate.experiment import Example, counted, pick_telling
from anydepth.evaluate.figures import PointName, Scale, Series, depth_map, name_points, plot, series_style
from anydepth.evaluate.metrics import sentence_chrf
from anydepth.evaluate.sweep import DepthResult, Means, ModelSweep, SweepResult

BARELY_WORSE = 1.0
FRONT_MARK, BEST_MARK, SIGNIFICANT_MARK = "★", "*", "!"
ON_FRONT = "on the Pareto front: no other depth is faster and at least as good in BLEU"
ROWS_AT_A_GLANCE = 12
POINTS_WITH_NAMES = 40
DEPTHS_SHOWN = 4
NAMES = (*ascii_uppercase, *(f"M{number}" for number in range(27, 1000)))  # of models, over narrow columns


def _milliseconds(one: DepthResult) -> float:
    return 1000 * one.seconds_per_sentence


def _millions(count: int | None) -> float | None:
    return None if count is None else count / 1e6


COLUMNS = (
    rp.Column("depth", lambda one: one.depth, help="encoder layers n and decoder layers m that run, written n-m"),
    rp.Column("BLEU", lambda one: one.bleu, ".2f", "overlap of words and word sequences with the reference, 0 to 100"),
    rp.Column("chrF", lambda one: one.quality.chrf, ".2f", "overlap of character sequences, 0 to 100"),
    rp.Column("seconds", lambda one: one.seconds, ".2f", "for the whole test set, the median of all passes"),
    rp.Column("spread", lambda one: one.spread, ".0%", "slowest minus fastest pass, as a share of the median"),
    rp.Column("ms/sent", _milliseconds, ".2f", "the same time per sentence, in milliseconds", where="page"),
    rp.Column("sent/s", lambda one: one.sentences_per_second, ",.1f", "sentences translated per second"),
    rp.Column("tok/s", lambda one: one.tokens_per_second, ",.0f", "subwords written per second", where="page"),
    rp.Column(
        "params", lambda one: _millions(one.parameters), ".1f", "weights that run, each counted once, in millions"
    ),
    rp.Column("MB", lambda one: _millions(one.bytes), ".1f", "their size in the memory of the engine", where="page"),
    rp.Column("length", lambda one: one.quality.length_ratio, ".2f", "words of the output per word of the reference"),
    rp.Column("repeats", lambda one: one.quality.repetition_rate, ".1%", "words that repeat the 1 to 4 before them"),
)


def sweep_report(result: SweepResult) -> rp.Report:
    conditions, comparison, several = result.conditions, result.comparison, len(result.models) > 1
    timed = f"Time is the median of {counted(conditions.repeats, 'pass')}, each going round all depths"
    lead = f"{conditions.lead}. {timed}."
    sections: list[rp.Section] = [rp.Text(lead, where="terminal")]
    sections += [rp.Text(result.doubt, "warning")] if result.doubt else []
    for model in result.models:
        sections += [*([rp.Heading(model.label, 3)] if several else []), _tiles(model)]
    sections += [rp.Heading("What time buys"), _quality_time(result.models)]
    sections += _depth_maps(result)
    sections += [_numbers(model, several) for model in result.models]
    if comparison is not None:
        sections += [rp.Heading("The models compared"), *_comparison(result, comparison)]
    repetition = f"in repeats, the references have {result.quality.reference_repetition_rate:.1%}"
    meanings = {column.name: column.help for column in COLUMNS} | {FRONT_MARK: ON_FRONT}
    more = {"time": f"{timed}, after a warm-up"}
    if conditions.forced:
        forced = f"forced: the models ran at the depths of the strategy {conditions.forced}, for which they may not "
        more = {"depths": forced + "have been trained, not at those of their menus", **more}
    signatures = result.quality.signatures
    sections += [
        rp.Details("What the columns mean", [rp.Terms(meanings), rp.Text(repetition, "soft")]),
        _examples(result),
        *(rp.Text(f"{name}: {text}", where="terminal") for name, text in signatures.items()),
        conditions.details(signatures, more),
    ]
    stems = rp.file_stems(result.labels)
    outputs = {
        f"outputs/{stems[model.label]}.{rp.safe_name(one.depth)}.txt": "".join(f"{line}\n" for line in one.outputs)
        for model in result.models
        for one in model.depths
    }
    return rp.Report(f"Depth sweep: {', '.join(result.labels)}", sections, result.to_json(), lead, outputs)


@dataclass(frozen=True)
class FasterDepth:
    """What a faster depth gains and loses against the best one."""

    depth: DepthResult
    best: DepthResult

    @property
    def speedup(self) -> float:
        return self.best.seconds / self.depth.seconds

    @property
    def loss(self) -> float:
        return self.best.bleu - self.depth.bleu

    def __str__(self) -> str:
        return f"{self.speedup:.1f} times as fast as {self.best.depth} at {self.loss:.1f} BLEU lower"


def fastest_trade(model: ModelSweep) -> FasterDepth | None:
    """The fastest depth, unless it is also the best."""
    return FasterDepth(model.fastest, model.best) if model.fastest.depth != model.best.depth else None


def barely_worse_trade(model: ModelSweep) -> FasterDepth | None:
    """The fastest depth within one BLEU of the best, unless that is the best or the fastest itself."""
    near = (one for one in model.depths if model.best.bleu - one.bleu <= BARELY_WORSE)
    found = min(near, key=lambda one: one.seconds)
    return FasterDepth(found, model.best) if found.depth not in (model.best.depth, model.fastest.depth) else None


def _tiles(model: ModelSweep) -> rp.Tiles:
    best, several = model.best, len(model.depths) > 1
    text = f"{best.bleu:.1f} BLEU in {_milliseconds(best):.1f} ms per sentence"
    tiles = [rp.Tile("Best depth" if several else "The only depth", best.depth, text)]
    if (near := barely_worse_trade(model)) is not None:
        tiles.append(rp.Tile("Fastest within 1 BLEU of the best", near.depth.depth, str(near)))
    if (fastest := fastest_trade(model)) is not None:
        tiles.append(rp.Tile("Fastest depth", fastest.depth.depth, str(fastest)))
    elif several:
        tiles.append(rp.Tile("Fastest depth", best.depth, "the best depth is also the fastest"))
    return rp.Tiles(tiles)


def _numbers(model: ModelSweep, several: bool) -> rp.Details:
    """Every measurement, and BLEU over n x m with its means."""
    front, means = set(model.front_depths), model.means
    columns = [*COLUMNS, rp.Column(FRONT_MARK, lambda one: FRONT_MARK if one.depth in front else "", help=ON_FRONT)]
    foot: list[rp.Value] = ["mean", means.bleu, means.chrf, means.seconds]
    note = f"{FRONT_MARK} {ON_FRONT}."
    table = rp.tabulate(columns, model.depths, model.label, note, strong=lambda one: one.depth in front, foot=[foot])
    sections: list[rp.Section] = [table]
    if model.exits:
        layers = rp.Column("mean m", lambda one: one.mean_decoder_layers, ".2f", "decoder layers of a token on average")
        early = [COLUMNS[0], layers, *COLUMNS[1:]]
        sections.append(rp.tabulate(early, model.exits, f"{model.label}: tokens leave early"))
    if min(len(model.means_by_encoder), len(model.means_by_decoder)) > 1:  # else it says the same again
        points = [(one.encoder_layers, one.decoder_layers, one.bleu) for one in model.depths]
        sections += [
            rp.tabulate_depths(f"{model.label}: BLEU", points, max, ("mean", fmean)),
            rp.Text("Means over all depths with as many layers on one side:", "soft", where="page"),
            _means("Means by encoder layers", "n", model.means_by_encoder),
            _means("Means by decoder layers", "m", model.means_by_decoder),
        ]
    summary = f"All numbers{f' of {model.label}' if several else ''}"
    return rp.Details(summary, sections, open=len(model.depths) <= ROWS_AT_A_GLANCE, terminal=True)


def _means(title: str, side: str, means: dict[int, Means]) -> rp.Table:
    columns = [rp.Column(side), *(rp.Column(name, format=".2f") for name in ("BLEU", "chrF", "seconds"))]
    return rp.Table(
        columns, [[str(n), one.bleu, one.chrf, one.seconds] for n, one in means.items()], title, where="page"
    )


def _comparison(result: SweepResult, comparison: Comparison) -> list[rp.Section]:
    if not comparison.shared:
        return [rp.Text("The models have no depth in common, so there is nothing to compare.")]
    differences = "; ".join(
        f"{label} differs from it by {difference:+.2f} BLEU on average"
        for label, difference in comparison.mean_differences.items()
    )
    test = (
        f"{SIGNIFICANT_MARK} p < {SIGNIFICANT} against {comparison.first} (two-sided paired bootstrap over sentences, "
        f"{comparison.samples} samples, seed {comparison.seed})."
    )
    sections: list[rp.Section] = [
        rp.Text(f"{comparison.verdict}.", "strong"),
        rp.Text(f"Over the depths that it shares with {comparison.first}, {differences}.", where="page"),
    ]
    every = _shared_depths(comparison, test)
    places = {place for model in result.models for place in model.cells}
    if min(len({place[side] for place in places}) for side in (0, 1)) < 2:
        return [*sections, every]
    maps = [_difference_map(result, comparison, label) for label in comparison.mean_differences]
    return [
        *sections,
        grid_table(result.models, comparison, test),
        rp.Details("Maps of the differences", maps),
        rp.Details("Every shared depth, with p-values", [every]),
    ]


def grid_table(models: Sequence[ModelSweep], comparison: Comparison, test: str = "") -> rp.Table:
    """In the form of Table 1 of Wang, Xiao and Zhu 2021: each decoder depth is a group with a column for each model.

    It shows BLEU of the first model and differences to it. Means are over the depths that the first model shares with
    another; a mean difference is over those that the two share. Where the first meets no other there is nothing to
    compare, but what there is can be shown.
    """
    cells = [model.cells for model in models]
    down, across = (sorted({place[side] for one in cells for place in one}) for side in (0, 1))
    by_depth = {row.depth: row for row in comparison.shared}
    shared = {place: by_depth[one.depth] for place, one in cells[0].items() if one.depth in by_depth}

    def values(place: tuple[int, int]) -> list[rp.Value]:
        if place in shared:
            return [_grid_cell(shared[place], label) for label in comparison.labels]
        return [rp.Cell(one[place].bleu, soft=True) if place in one else None for one in cells]

    def means(n: int | None = None, m: int | None = None) -> list[rp.Value]:
        rows = tuple(row for place, row in shared.items() if n in (None, place[0]) and m in (None, place[1]))
        part = replace(comparison, shared=rows)
        return [part.mean_bleu.get(part.first), *(_signed(part.mean_differences.get(one)) for one in part.others)]

    first, *others = zip(NAMES, comparison.labels, strict=False)
    columns = [rp.Column("n")]
    for group in (*(f"m={m}" for m in across), "mean"):
        columns.append(rp.Column(first[0], format=".2f", help=first[1], group=group))
        columns += [rp.Column(f"{name}-{first[0]}", format=".2f", help=label, group=group) for name, label in others]
    rows = [[str(n), *(value for m in across for value in values((n, m))), *means(n)] for n in down]
    foot = ["mean", *(value for m in across for value in means(m=m)), *means()]
    compared = ", ".join(f"{name} {label}" for name, label in others)
    note = (
        f"rows: encoder depth n; {first[0]} {first[1]}: BLEU; {compared}: difference to {first[0]}; "
        f"{BEST_MARK} best of its depth. "
    )
    if any(place not in shared for one in cells for place in one):
        note += "Without a sign: BLEU of a depth that one of the two lacks; it counts neither in means nor wins. "
    return rp.Table(columns, rows, "BLEU of the models", note + test, foot=[foot])


def _grid_cell(row: SharedDepth, label: str) -> rp.Cell | None:
    if label not in row.bleu:
        return None
    best, p_value = row.winner == label, row.p_values.get(label, 1.0)
    marks = (BEST_MARK if best else "") + (SIGNIFICANT_MARK if p_value < SIGNIFICANT else "")
    text = _signed(row.differences.get(label)) or f"{row.bleu[label]:.2f}"
    return rp.Cell(text, mark=marks, strong=best, heat=0.8 if best else None)


def _signed(difference: float | None) -> str | None:
    return None if difference is None else f"{difference:+.2f}"


def _shared_depths(comparison: Comparison, test: str) -> rp.Table:
    first, mean_bleu, differences = comparison.first, comparison.mean_bleu, comparison.mean_differences
    columns = [
        rp.Column("depth", lambda row: row.depth),
        rp.Column("BLEU", lambda row: row.bleu[first], ".2f", group=first),
    ]
    foot: list[rp.Value] = ["mean", mean_bleu[first]]
    for label in comparison.others:
        columns += _compared_columns(label)
        foot += [mean_bleu.get(label), differences.get(label), None]
    columns.append(rp.Column("best", lambda row: row.winner or "tie", align="left"))
    return rp.tabulate(columns, comparison.shared, "BLEU of the models", test, foot=[foot])


def _compared_columns(label: str) -> list[rp.Column]:
    def difference(row: SharedDepth) -> rp.Cell:
        is_clear = row.p_values.get(label, 1.0) < SIGNIFICANT
        return rp.Cell(row.differences.get(label), mark=SIGNIFICANT_MARK if is_clear else "")

    return [
        rp.Column("BLEU", lambda row: row.bleu.get(label), ".2f", group=label),
        rp.Column("diff", difference, "+.2f", group=label),
        rp.Column("p", lambda row: row.p_values.get(label), ".3f", group=label),
    ]


def _examples(result: SweepResult) -> rp.Details:
    sections: list[rp.Section] = [rp.Text("The sentences on which these depths differ most, shallow to deep.", "soft")]
    for model in result.models:
        sections += [rp.Heading(model.label, 3)] if len(result.models) > 1 else []
        sections += [one.card() for one in pick_examples(model, result.sources, result.references)]
    return rp.Details("Examples", sections)


def pick_examples(
    model: ModelSweep, sources: Sequence[str], references: Sequence[str], count: int = 6
) -> list[Example]:
    """The sentences on which a few depths, shallow to deep, differ most."""
    scored = [(one, sentence_chrf(one.outputs, references)) for one in depths_to_show(model)]
    examples = (
        Example(row + 1, source, reference, {one.depth: (one.outputs[row], chrf[row]) for one, chrf in scored})
        for row, (source, reference) in enumerate(zip(sources, references, strict=True))
    )
    return pick_telling(examples, count)


def depths_to_show(model: ModelSweep) -> list[DepthResult]:
    """Up to four depths spread evenly over the front, or over the whole menu where the front is too short."""
    front = model.front
    candidates = front if len(front) >= min(DEPTHS_SHOWN, len(model.depths)) else list(model.depths)
    candidates.sort(key=lambda one: (one.encoder_layers + one.decoder_layers, one.seconds))
    last = len(candidates) - 1
    indices = {round(step * last / (DEPTHS_SHOWN - 1)) for step in range(DEPTHS_SHOWN)}
    return [candidates[index] for index in sorted(indices)]


def _is_short(result: SweepResult) -> bool:
    """Whether a tenth of a millisecond is much."""
    return max(map(_milliseconds, (one for model in result.models for one in model.depths))) < 10


def _depth_maps(result: SweepResult) -> list[rp.Section]:
    """BLEU and time over n x m for each model, on one scale for all of them, a depth at the same place in each."""
    stems, several = rp.file_stems(result.labels), len(result.models) > 1
    sections: list[rp.Section] = [] if several else [rp.Heading("Quality and time at every depth")]
    kinds: Sequence[tuple[str, str, Scale, Callable[[DepthResult], float]]] = (
        ("bleu", "BLEU, higher is better", Scale("viridis", "BLEU"), lambda one: one.bleu),
        (
            "time",
            "ms per sentence, lower is better",
            Scale("cividis_r", "ms", number="{:.2f}" if _is_short(result) else ""),
            _milliseconds,
        ),
    )
    for name, title, scale, value in kinds:
        maps = {one.label: {place: value(cell) for place, cell in one.cells.items()} for one in result.models}
        sections += [rp.Heading(title)] if several else []
        for label, cells in maps.items():
            named = (f"{name}-{stems[label]}", f"{label}: {title}") if several else (name, title)
            sections.append(depth_map(*named, cells, scale, beside=maps.values()))
    return sections


def _difference_map(result: SweepResult, comparison: Comparison, label: str) -> rp.Figure:
    """BLEU of the model called `label` minus that of the first, where both have a depth; boxed where it beats all."""
    rows = {row.depth: row for row in comparison.shared if label in row.differences}
    there = {place: rows[one.depth] for place, one in result.model(label).cells.items() if one.depth in rows}
    cells = {place: row.differences[label] for place, row in there.items()}
    boxed = {place for place, row in there.items() if row.winner == label}
    most = max(*map(abs, cells.values()), 0.1)
    title = f"{label} minus {comparison.first}, BLEU" + (" (boxed: best of all)" if boxed else "")
    return depth_map(
        f"difference-{rp.file_stems(result.labels)[label]}",
        title,
        cells,
        Scale("RdBu", "BLEU", -most, most, "{:+.1f}"),
        beside=[dict.fromkeys(model.cells, 0.0) for model in result.models],  # room for the depths of all
        boxed=boxed,
    )


Point = tuple[float, float]


def _along_step(before: Point, after: Point, count: int = 40) -> Iterator[Point]:
    """Places on the line between two points of a front: first to the side, then up."""
    (x, y), (next_x, next_y) = before, after
    for share in (number / count for number in range(count + 1)):
        yield x + share * (next_x - x), y
        yield next_x, y + share * (next_y - y)


def _quality_time(models: Sequence[ModelSweep]) -> rp.Figure:
    """Every depth as a point, the front of each model as a line with its depths named."""
    series, names = [], []
    points: list[Point] = []
    for index, model in enumerate(models):
        look, front = series_style(index), model.front
        on_front = f"{model.label}: Pareto front" if len(models) > 1 else "on the Pareto front"
        x, y = [_milliseconds(one) for one in front], [one.bleu for one in front]
        # A step: between two points of the front nothing better than the faster one is on offer.
        series.append(Series(x, y, {**look, "drawstyle": "steps-post", "marker": "", "linewidth": 1.4, "alpha": 0.8}))
        series.append(Series(x, y, {**look, "linestyle": "", "markersize": 7}, on_front))
        x, y = [_milliseconds(one) for one in model.depths], [one.bleu for one in model.depths]
        tips = [f"{model.label} {one.depth}: {one.bleu:.2f} BLEU, {_milliseconds(one):.1f} ms" for one in model.depths]
        others = {**look, "linestyle": "", "markersize": 5, "alpha": 0.35, "mew": 0}
        series.append(Series(x, y, others, "" if len(models) > 1 else "other depths", tips))
        if model.exits:
            early_x, early_y = [_milliseconds(one) for one in model.exits], [one.bleu for one in model.exits]
            crosses = {**look, "linestyle": "", "marker": "x", "markersize": 6, "mew": 1.6}
            tips = [f"{one.depth}: {one.bleu:.2f} BLEU, {_milliseconds(one):.2f} ms" for one in model.exits]
            named = f"{model.label}: tokens leave early" if len(models) > 1 else "tokens leave early"
            series.append(Series(early_x, early_y, crosses, named, tips))
            points += zip(early_x, early_y, strict=True)
        for one, place in zip(model.depths, zip(x, y, strict=True), strict=True):
            names.append(PointName(one.depth, *place, look["color"], minor=one not in front))
        points += zip(x, y, strict=True)
        for ends in pairwise([(_milliseconds(one), one.bleu) for one in front]):
            points += _along_step(*ends)
    # Those of the fronts first. Of many points, those off the fronts stay nameless.
    shown = sorted((n for n in names if not n.minor or len(names) <= POINTS_WITH_NAMES), key=lambda name: name.minor)
    draw = plot(
        series,
        "time per sentence in ms",
        "BLEU",
        title="Depths, with the Pareto front as a line",
        then=lambda canvas, axes: name_points(canvas, axes, shown, points),
    )
    return rp.Figure("quality-time", "BLEU against time per sentence, a point for each depth", draw, size=(5.6, 4.2))
