"""What to show of a sweep: the trades between quality and time, every measurement, examples, models compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_uppercase

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from anydepth.evaluate.depth_comparison import SIGNIFICANT, Comparison, ComparisonGrid, GridCell, GridValue, lay_out
from anydepth.evaluate.experiment import counted
from anydepth.evaluate.figures import SERIES, SHAPES, Frame, Grid, PointName, Scale, depth_map, name_points, with_tip
from anydepth.evaluate.measurement import Means, Measurement, ModelSweep
from anydepth.evaluate.metrics import sentence_chrf
from anydepth.evaluate.report import (
    Cell,
    Column,
    Details,
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
    file_stems,
    safe_name,
)
from anydepth.evaluate.sweep import SweepResult

BARELY_WORSE = 1.0
FRONT_MARK, BEST_MARK, SIGNIFICANT_MARK = "★", "*", "!"
ROWS_AT_A_GLANCE = 12
POINTS_WITH_NAMES = 40
DEPTHS_SHOWN = 4
WORDS_TO_BE_TELLING = 5

COLUMNS = (
    Column("depth", "encoder layers n and decoder layers m that run, written n-m"),
    Column("BLEU", "overlap of words and word sequences with the reference, 0 to 100", ".2f"),
    Column("chrF", "overlap of character sequences with the reference (chrF2), 0 to 100", ".2f"),
    Column("seconds", "time to translate the whole test set, the median of all passes", ".2f"),
    Column("spread", "how far the passes are apart: slowest minus fastest, as a share of the median", ".0%"),
    Column("ms/sent", "the same time per sentence, in milliseconds", ".1f", where="page"),
    Column("sent/s", "sentences translated per second", ".1f"),
    Column("tok/s", "subwords written per second", ".0f", where="page"),
    Column("params", "weights that this depth uses, each counted once, in millions", ".1f"),
    Column("MB", "what these weights take as they are stored, in millions of bytes", ".1f", where="page"),
    Column("length", "output length divided by reference length, in words; 1 is ideal", ".2f"),
    Column("repeats", "share of output words that repeat the 1 to 4 words right before them", ".1%"),
    Column(FRONT_MARK, "on the Pareto front: no other depth is faster and at least as good in BLEU"),
)


def sweep_report(result: SweepResult) -> Report:
    conditions = result.conditions
    sections: list[Section] = [Text(f"{conditions.lead}. {_timed(result)}.", where="terminal")]
    if result.doubt:
        sections.append(Text(result.doubt, "warning"))
    several = len(result.models) > 1
    for model in result.models:
        sections += [Heading(model.label, 3)] if several else []
        sections.append(_tiles(model))
    sections += [Heading("What time buys"), _quality_time(result.models)]
    sections += [Heading("Quality and time at every depth"), *_depth_maps(result)]
    for model in result.models:
        sections += _numbers(model, several)
    if result.comparison is not None:
        sections += [Heading("The models compared"), *_comparison(result, result.comparison)]
    repetition = f"in {COLUMNS[-2].name}, the references have {result.reference_repetition_rate:.1%}"
    meanings = [(column.name, column.help) for column in COLUMNS]
    sections.append(Details("What the columns mean", [Terms(meanings), Text(repetition, "soft")]))
    sections.append(_examples(result))
    forced = {
        "depths": f"forced: the models ran at the depths of the strategy {conditions.forced}, for which they may not "
        "have been trained, not at those of their menus"
    }
    more = (forced if conditions.forced else {}) | {"time": f"{_timed(result)}, after a warm-up"}
    sections += [Text(f"{name}: {text}", where="terminal") for name, text in result.signatures.items()]
    sections.append(conditions.details(result.signatures, more))
    stems = file_stems(result.labels)
    outputs = {
        f"outputs/{stems[model.label]}.{safe_name(one.depth)}.txt": "".join(f"{line}\n" for line in one.outputs)
        for model in result.models
        for one in model.measurements
    }
    title = f"Depth sweep: {', '.join(result.labels)}"
    return Report(title, sections, result.to_json(), f"{conditions.lead}. {_timed(result)}.", outputs)


def _timed(result: SweepResult) -> str:
    passes = counted(result.conditions.repeats, "pass")
    return f"Time is the median of {passes}, each going round all depths"


@dataclass(frozen=True)
class Trade:
    """What a faster depth gains and loses against the best one."""

    depth: Measurement
    best: Measurement

    @property
    def speedup(self) -> float:
        return self.best.seconds / self.depth.seconds

    @property
    def loss(self) -> float:
        return self.best.bleu - self.depth.bleu

    def __str__(self) -> str:
        return f"{self.speedup:.1f} times as fast as {self.best.depth} at {self.loss:.1f} BLEU lower"


def fastest_trade(model: ModelSweep) -> Trade | None:
    """The fastest depth, unless it is also the best."""
    return Trade(model.fastest, model.best) if model.fastest.depth != model.best.depth else None


def barely_worse_trade(model: ModelSweep) -> Trade | None:
    """The fastest depth within one BLEU of the best, unless that is the best or the fastest itself."""
    near = (one for one in model.measurements if model.best.bleu - one.bleu <= BARELY_WORSE)
    found = min(near, key=lambda one: one.seconds)
    is_news = found.depth not in (model.best.depth, model.fastest.depth)
    return Trade(found, model.best) if is_news else None


def _tiles(model: ModelSweep) -> Tiles:
    best, several = model.best, len(model.measurements) > 1
    text = f"{best.bleu:.1f} BLEU in {_milliseconds(best):.1f} ms per sentence"
    tiles = [Tile("Best depth" if several else "The only depth", best.depth, text)]
    if (near := barely_worse_trade(model)) is not None:
        tiles.append(Tile("Fastest within 1 BLEU of the best", near.depth.depth, str(near)))
    if (fastest := fastest_trade(model)) is not None:
        tiles.append(Tile("Fastest depth", fastest.depth.depth, str(fastest)))
    elif several:
        tiles.append(Tile("Fastest depth", best.depth, "the best depth is also the fastest"))
    return Tiles(tiles)


def _numbers(model: ModelSweep, several: bool) -> list[Section]:
    """Every measurement, and BLEU over n x m with its means."""
    front = set(model.front_depths)
    rows = [
        Row(
            [
                one.depth,
                one.quality.bleu,
                one.quality.chrf,
                one.seconds,
                one.spread,
                _milliseconds(one),
                one.sentences_per_second,
                one.tokens_per_second,
                one.parameters / 1e6,
                one.bytes / 1e6,
                one.quality.length_ratio,
                one.quality.repetition_rate,
                FRONT_MARK if one.depth in front else "",
            ],
            strong=one.depth in front,
        )
        for one in model.measurements
    ]
    means = model.means
    note = f"{FRONT_MARK} on the Pareto front: no other depth is faster and at least as good in BLEU."
    title = model.label
    table = Table(COLUMNS, rows, title, note, foot=[["mean", means.bleu, means.chrf, means.seconds]])
    sections: list[Section] = [table]
    if min(len(model.rows), len(model.columns)) > 1:  # else it says the same again
        sections.append(_bleu_grid(model))
        sections += [
            _means("Means by encoder layers", "n", model.means_of_rows),
            _means("Means by decoder layers", "m", model.means_of_columns),
        ]
    summary = f"All numbers{f' of {model.label}' if several else ''}"
    return [Details(summary, sections, open=len(rows) <= ROWS_AT_A_GLANCE, terminal=True)]


def _bleu_grid(model: ModelSweep) -> Table:
    columns = [Column("n \\ m"), *(Column(str(m), format=".1f") for m in model.columns), Column("mean", format=".1f")]
    rows: list[list[Value]] = []
    for n, means in model.means_of_rows.items():
        cells = [model.cell(n, m) for m in model.columns]
        rows.append([str(n), *(None if one is None else one.bleu for one in cells), means.bleu])
    foot: list[Value] = ["mean", *(means.bleu for means in model.means_of_columns.values()), model.means.bleu]
    return Table(columns, rows, f"{model.label}: BLEU", foot=[foot], where="terminal")


def _means(title: str, side: str, means: dict[int, Means]) -> Table:
    columns = [
        Column(side),
        Column("BLEU", format=".2f"),
        Column("chrF", format=".2f"),
        Column("seconds", format=".2f"),
    ]
    rows: list[list[Value]] = [[str(layers), one.bleu, one.chrf, one.seconds] for layers, one in means.items()]
    return Table(columns, rows, title, where="page")


def _comparison(result: SweepResult, comparison: Comparison) -> list[Section]:
    if not comparison.shared:
        return [Text("The models have no depth in common, so there is nothing to compare.")]
    differences = "; ".join(
        f"{label} differs from it by {difference:+.2f} BLEU on average"
        for label, difference in comparison.mean_differences.items()
    )
    test = (
        f"{SIGNIFICANT_MARK} p < {SIGNIFICANT} against {comparison.first} (two-sided paired bootstrap over sentences, "
        f"{comparison.samples} samples, seed {comparison.seed})."
    )
    sections: list[Section] = [
        Text(f"{comparison.verdict}.", "strong"),
        Text(f"Over the depths that it shares with {comparison.first}, {differences}.", where="page"),
    ]
    grid, every = lay_out(comparison, result.models), _shared_depths(comparison, test)
    if min(len(grid.rows), len(grid.columns)) < 2:
        return [*sections, every]
    maps = [_difference_map(result, comparison, label) for label in comparison.mean_differences]
    return [
        *sections,
        _grid_table(grid, test),
        Details("Maps of the differences", maps),
        Details("Every shared depth, with p-values", [every]),
    ]


def letters(labels: Sequence[str]) -> dict[str, str]:
    """A name for each label that can stand over a narrow column."""
    names = [*ascii_uppercase, *(f"M{number}" for number in range(27, len(labels) + 1))]
    return dict(zip(labels, names, strict=False))


def _grid_table(grid: ComparisonGrid, test: str) -> Table:
    """In the form of Table 1 of Wang, Xiao and Zhu 2021: each decoder depth is a group with a column for each model."""
    named = letters(grid.labels)
    first, *others = named.values()
    columns = [Column("n")]
    for group in (*(f"m={m}" for m in grid.columns), "mean"):
        names = (first, *(f"{other}-{first}" for other in others))
        columns += [Column(name, label, group=group) for name, label in zip(names, grid.labels, strict=True)]

    def cells(*groups: GridCell) -> list[Value]:
        return [_grid_cell(cell.get(label)) for cell in groups for label in grid.labels]

    rows = [[str(n), *cells(*(grid.cells[n, m] for m in grid.columns), grid.row_means[n])] for n in grid.rows]
    foot = ["mean", *cells(*(grid.column_means[m] for m in grid.columns), grid.overall)]
    compared = ", ".join(f"{named[label]} {label}" for label in grid.labels[1:])
    notes = [
        f"rows: encoder depth n; {first} {grid.first}: BLEU; {compared}: difference to {first}; "
        f"{BEST_MARK} best of its depth."
    ]
    if grid.has_uncounted:
        notes.append("Without a sign: BLEU of a depth that one of the two lacks; it counts neither in means nor wins.")
    return Table(columns, rows, "BLEU of the models", " ".join([*notes, test]), foot=[foot])


def _grid_cell(one: GridValue | None) -> Cell | None:
    if one is None:
        return None
    marks = (BEST_MARK if one.is_best else "") + (SIGNIFICANT_MARK if one.is_significant else "")
    heat = 0.8 if one.is_best else None
    return Cell(one.value, one.text, marks, strong=one.is_best, soft=not one.counts, heat=heat)


def _shared_depths(comparison: Comparison, test: str) -> Table:
    columns = [Column("depth"), Column("BLEU", format=".2f", group=comparison.first)]
    for label in comparison.others:
        columns += [
            Column("BLEU", format=".2f", group=label),
            Column("diff", format="+.2f", group=label),
            Column("p", format=".3f", group=label),
        ]
    columns.append(Column("best", align="left"))
    rows: list[list[Value]] = []
    for row in comparison.shared:
        cells: list[Value] = [row.depth, row.bleu[comparison.first]]
        for label in comparison.others:
            if label in row.bleu:
                mark = SIGNIFICANT_MARK if row.p_values[label] < SIGNIFICANT else ""
                cells += [row.bleu[label], Cell(row.differences[label], mark=mark), row.p_values[label]]
            else:
                cells += [None, None, None]
        rows.append([*cells, row.winner or "tie"])
    foot: list[Value] = ["mean", comparison.mean_bleu[comparison.first]]
    for label in comparison.others:
        foot += [comparison.mean_bleu.get(label), comparison.mean_differences.get(label), None]
    return Table(columns, rows, "BLEU of the models", test, foot=[foot])


@dataclass(frozen=True)
class Translation:
    depth: str
    text: str
    chrf: float


@dataclass(frozen=True)
class Example:
    line: int
    source: str
    reference: str
    translations: tuple[Translation, ...]

    @property
    def spread(self) -> float:
        scores = [one.chrf for one in self.translations]
        return max(scores) - min(scores)


def _examples(result: SweepResult) -> Details:
    sections: list[Section] = [Text("The sentences on which these depths differ most, shallow to deep.", "soft")]
    for model in result.models:
        sections += [Heading(model.label, 3)] if len(result.models) > 1 else []
        for one in pick_examples(model, result.sources, result.references):
            outputs = [(f"{other.depth}, chrF {other.chrf:.0f}", other.text) for other in one.translations]
            sections.append(Terms([("source", one.source), ("reference", one.reference), *outputs], boxed=True))
    return Details("Examples", sections)


def pick_examples(
    model: ModelSweep, sources: Sequence[str], references: Sequence[str], count: int = 6
) -> list[Example]:
    """The sentences on which a few depths, shallow to deep, differ most in chrF, in the order of the file.

    Very short ones come last whatever their spread: one wrong word of two says nothing.
    """
    shown = depths_to_show(model)
    scores = [sentence_chrf(one.outputs, references) for one in shown]
    examples = [
        Example(
            line=index + 1,
            source=source,
            reference=reference,
            translations=tuple(
                Translation(one.depth, one.outputs[index], chrf[index]) for one, chrf in zip(shown, scores, strict=True)
            ),
        )
        for index, (source, reference) in enumerate(zip(sources, references, strict=True))
    ]
    is_short = {example.line: len(example.reference.split()) < WORDS_TO_BE_TELLING for example in examples}
    most_telling = sorted(examples, key=lambda example: (is_short[example.line], -example.spread))[:count]
    return sorted(most_telling, key=lambda example: example.line)


def depths_to_show(model: ModelSweep) -> list[Measurement]:
    """Up to four depths spread evenly over the front, or over the whole menu where the front is too short."""
    front = model.front
    candidates = front if len(front) >= min(DEPTHS_SHOWN, len(model.measurements)) else list(model.measurements)
    candidates.sort(key=lambda one: (one.encoder_layers + one.decoder_layers, one.seconds))
    last = len(candidates) - 1
    indices = {round(step * last / (DEPTHS_SHOWN - 1)) for step in range(DEPTHS_SHOWN)}
    return [candidates[index] for index in sorted(indices)]


def _depth_maps(result: SweepResult) -> list[Figure]:
    """BLEU and time over n x m for each model, on one scale for all of them, a depth at the same place in each."""
    frame, stems = Frame.around(result.models), file_stems(result.labels)
    several = len(result.models) > 1
    found = []
    for name, title, cmap, unit, value in (
        ("bleu", "BLEU, higher is better", "viridis", "BLEU", lambda one: one.bleu),
        ("time", "Time per sentence (ms), lower is better", "cividis_r", "ms", _milliseconds),
    ):
        grids = {model.label: _filled(frame, model, value) for model in result.models}
        scale = Scale.over(grids.values(), cmap, unit)
        for label, grid in grids.items():
            of_model = (f"{name}-{stems[label]}", f"{label}: {title}") if several else (name, title)
            found.append(depth_map(*of_model, frame, grid, scale))
    return found


def _difference_map(result: SweepResult, comparison: Comparison, label: str) -> Figure:
    """BLEU of the model called `label` minus that of the first, where both have a depth; boxed where it beats all."""
    model, frame = result.model(label), Frame.around(result.models)
    differences = {row.depth: row.differences[label] for row in comparison.shared if label in row.differences}
    won = {row.depth for row in comparison.shared if row.winner == label}
    grid = _filled(frame, model, lambda one: differences.get(one.depth))
    most = max(float(np.nanmax(np.abs(grid))), 0.1)
    return depth_map(
        f"difference-{file_stems(result.labels)[label]}",
        f"{label} minus {comparison.first}, BLEU" + (" (boxed: best of all)" if won else ""),
        frame,
        grid,
        Scale("RdBu", -most, most, "{:+.1f}", "BLEU"),
        boxed=_filled(frame, model, lambda one: float(one.depth in won)),
    )


def _filled(frame: Frame, model: ModelSweep, value: Callable[[Measurement], float | None]) -> Grid:
    def at(n: int, m: int) -> float | None:
        one = model.cell(n, m)
        return None if one is None else value(one)

    return frame.fill(at)


def _milliseconds(one: Measurement) -> float:
    return 1000 * one.seconds_per_sentence


def _quality_time(models: Sequence[ModelSweep]) -> Figure:
    """Every depth as a point, the front of each model as a line with its depths named."""

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for index, model in enumerate(models):
            colour, shape = SERIES[index % len(SERIES)], SHAPES[index % len(SHAPES)]
            x, y = [_milliseconds(one) for one in model.front], [one.bleu for one in model.front]
            # A step: between two points of the front nothing better than the faster one is on offer.
            axes.step(x, y, where="post", color=colour, linewidth=1.4, alpha=0.8)
            axes.plot(x, y, shape, color=colour, markersize=7, label=f"{model.label}: Pareto front")
            for one in model.measurements:
                look = {"markersize": 7} if one in model.front else {"markersize": 5, "alpha": 0.35}
                (point,) = axes.plot([_milliseconds(one)], [one.bleu], shape, color=colour, **look, mew=0)
                with_tip(point, f"{model.label} {one.depth}: {one.bleu:.2f} BLEU, {_milliseconds(one):.1f} ms")
        axes.set_xlabel("time per sentence in ms")
        axes.set_ylabel("BLEU")
        axes.set_title("Each point a depth, the best trades joined")
        axes.margins(x=0.08, y=0.1)
        axes.grid()
        axes.legend(loc="lower right")
        _name_points(canvas, axes, models)

    return Figure("quality-time", "BLEU against time per sentence, a point for each depth", draw)


def _name_points(canvas: Canvas, axes: Axes, models: Sequence[ModelSweep]) -> None:
    """The depth beside each point, those of the fronts first. Of many points, those off the fronts stay nameless."""
    names: list[PointName] = []
    points: list[tuple[float, float]] = []
    for index, model in enumerate(models):
        for one in model.measurements:
            points.append((_milliseconds(one), one.bleu))
            is_minor = one not in model.front
            names.append(PointName(one.depth, *points[-1], SERIES[index % len(SERIES)], is_minor))
    corners = [(_milliseconds(after), one.bleu) for model in models for one, after in pairwise(model.front)]
    shown = [name for name in names if not name.minor or len(names) <= POINTS_WITH_NAMES]
    name_points(canvas, axes, sorted(shown, key=lambda name: name.minor), points + corners)
