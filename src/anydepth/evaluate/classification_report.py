"""What becomes of an evaluation of models that classify: a report, and the figures in the model folders."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, NullFormatter

from anydepth.artifact import model as artifact
from anydepth.evaluate.classification import Member
from anydepth.evaluate.classification_result import ALIKE, Evaluation, ModelResult, SettingResult, SystemResult
from anydepth.evaluate.explain import depth_scale
from anydepth.evaluate.figures import INK, PAPER, SERIES, SHAPES, legend_below, tip_points
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
)
from anydepth.infer.classifier import Classifier

RECORD = "evaluation.json"
STALE = ("accuracy-depth.png", "speed-batch.png")
AT_FULL = "at full depth"
SIZES_OF_A_LINE = 3  # two points make no picture
LARGEST_MATRIX = 8  # labels; of more, the page shows how many of each were found

log = logging.getLogger(__name__)


def evaluation_report(evaluation: Evaluation) -> Report:
    conditions, labels = evaluation.conditions, ", ".join(system.label for system in evaluation.systems)
    sections: list[Section] = [
        *_tiles(evaluation),
        Heading("All systems"),
        _systems_table(evaluation),
        *(Text(line, "soft") for line in _legend(evaluation)),
        *([Details("Every model", [_models_table(evaluation)])] if evaluation.has_members else []),
        Heading("Accuracy over depth"),
        _accuracy_figure(evaluation),
        *(_curve_table(system, evaluation) for system in evaluation.systems if system.curve),
    ]
    if len(conditions.batch_sizes) >= SIZES_OF_A_LINE:
        sections += [Heading("Speed over batch size"), _speed_figure(evaluation)]
    sections += [Heading("Which labels are found"), *_label_tables(evaluation), *_mistakes(evaluation)]
    sections += [Heading("How this was measured"), _terms(evaluation)]
    return Report(
        f"How well, how deep, how fast: {labels}",
        sections,
        evaluation.to_json(),
        lead=f"{evaluation.texts:,} texts of {evaluation.test_names}; {conditions.device} with "
        f"{_threads(conditions.threads)}, {conditions.date[:10]}",
    )


def record_evaluation(systems: Mapping[str, Sequence[Member]], evaluation: Evaluation) -> list[Path]:
    """Write the figures into the menu and card of each model, those of its own depths; return the folders.

    Figures of other depths that were measured under other conditions go: costs from two machines in one menu would
    mislead whoever picks a depth by them.
    """
    done = []
    for system in evaluation.systems:
        points = [system.main, *([system.own_static] if system.own_static else [])]
        for place, member in enumerate(systems[system.label]):
            classifier = member.load()
            if _record(classifier, points, place, _measured_on(evaluation, member)):
                assert classifier.folder is not None
                done.append(classifier.folder)
    return done


def _tiles(evaluation: Evaluation) -> list[Section]:
    """Of the most accurate system in which words have depths of their own."""
    others = [one for one in evaluation.systems if one.main.share.mean < 1]
    best = max(others, key=lambda one: one.main.accuracy.mean, default=None)
    if best is None:
        return []
    main, own, sizes = best.main, best.own_static, evaluation.conditions.batch_sizes
    against = f"its weights with all words at full depth: {own.accuracy.mean:.2f} %" if own else f"by {best.kind}"
    depth = f"mean depth {main.depth.mean:.2f} of {main.layers} layers; arithmetic allows {main.allowed:.2f}x"
    speeds = ", ".join(f"{main.speed_up(size).mean:.2f}x at batch {size}" for size in sizes)
    return [
        Tiles(
            [
                Tile(f"Accuracy of {best.label}", f"{main.accuracy.shown(2)} %", against),
                Tile("Computed, of what full depth computes", _percent(main.share.mean), depth),
                Tile("Speed-up, measured", f"{main.speed_up(sizes[0]).mean:.2f}x", speeds),
            ]
        )
    ]


def _systems_table(evaluation: Evaluation) -> Table:
    columns = [Column("depths by"), *([Column("models")] if evaluation.has_members else []), *_quality_columns()]
    columns += [
        Column("allows", "the speed-up if layers computed were all that takes time"),
        *_time_columns(evaluation),
    ]
    rows = []
    marked = any(system.own_static for system in evaluation.systems)
    for system in evaluation.systems:
        for point in (system.main, system.own_static):
            if point is not None:
                is_main = point is system.main
                models = [str(len(point.models))] if evaluation.has_members else []
                cells: list[Value] = [system.label if is_main else AT_FULL, system.kind if is_main else ALIKE, *models]
                cells += [*_quality_cells(point), f"{point.allowed:.2f}x", *_time_cells(point, evaluation)]
                rows.append(Row(cells, strong=is_main and marked, indent=not is_main))
    return Table([Column("system"), *columns], rows)


def _curve_table(system: SystemResult, evaluation: Evaluation) -> Table:
    columns = [Column(""), *_quality_columns(), *_time_columns(evaluation)]
    rows = [
        Row([one.setting.name, *_quality_cells(one), *_time_cells(one, evaluation)], strong=one is system.main)
        for one in system.points
    ]
    return Table(columns, rows, title=f"{system.label}, deeper and shallower")


def _models_table(evaluation: Evaluation) -> Table:
    sizes = evaluation.conditions.batch_sizes
    columns = [
        Column("model"),
        Column("test set"),
        Column("texts", format=","),
        Column("accuracy %", format=".2f"),
        Column("mean depth", format=".2f"),
        Column("computed"),
        *(Column(f"ms at {size}", format=".2f") for size in sizes),
    ]
    rows: list[list[Value]] = [
        [
            f"{system.label}: {one.member}",
            one.test,
            one.texts,
            one.accuracy,
            one.depth,
            _percent(one.share),
            *(1000 * one.seconds[size] for size in sizes),
        ]
        for system in evaluation.systems
        for one in system.main.models
    ]
    return Table(columns, rows)


def _quality_columns() -> list[Column]:
    computed = "layers that tokens ran, as a share of all layers"
    return [Column("accuracy %"), Column("mean depth", format=".2f"), Column("computed", computed)]


def _quality_cells(point: SettingResult) -> list[Value]:
    return [point.accuracy.shown(2), point.depth.mean, _percent(point.share.mean)]


def _time_columns(evaluation: Evaluation) -> list[Column]:
    """A time and a speed-up for each batch size."""
    return [Column(f"ms at {size}") for size in evaluation.conditions.batch_sizes]


def _time_cells(point: SettingResult, evaluation: Evaluation) -> list[Value]:
    sizes = evaluation.conditions.batch_sizes
    return [f"{1000 * point.seconds(size).mean:.2f} ({point.speed_up(size).mean:.2f}x)" for size in sizes]


def _legend(evaluation: Evaluation) -> list[str]:
    """What the figures are, a line each."""
    conditions, has_members = evaluation.conditions, evaluation.has_members
    against = evaluation.static or "the same weights with all words at full depth"
    lines = ["at full depth: the same weights, all words run all layers"] if not evaluation.static else []
    lines += [
        f"accuracy: on {evaluation.texts:,} texts of {evaluation.test_names}",
        "computed: layers that tokens ran, as a share of all layers; allows: the speed-up if that were all there is",
        f"ms at a batch size: per text, texts in and labels out, {conditions.timed:,} texts, median of "
        f"{conditions.repeats}; in brackets the speed-up against {against}",
    ]
    if has_members:
        lines.append("±: sample deviation over the models of a system")
    if has_members and any(system.curve for system in evaluation.systems):
        lines.append("times at other scales, lambdas and exits are those of the first model of a system")
    return lines


def _label_tables(evaluation: Evaluation) -> list[Section]:
    """A confusion matrix for each system, or how often each of many labels was found."""
    labels, systems = evaluation.labels, evaluation.systems
    if len(labels) > LARGEST_MATRIX:
        columns = [Column("label"), *(Column(system.label) for system in systems)]
        rows = [[label, *(_found(system.right_of(label)) for system in systems)] for label in labels]
        return [Table(columns, rows, where="page")]
    over = ", counted over all models of a system" if evaluation.has_members else ""
    columns = [Column(""), *(Column(label) for label in labels), Column("right")]
    return [
        Text(f"Down the true label, across the one that was found{over}.", where="page"),
        *(
            Table(columns, [_matrix_row(system, true, labels) for true in labels], title=system.label, where="page")
            for system in systems
        ),
    ]


def _matrix_row(system: SystemResult, true: str, labels: Sequence[str]) -> list[Value]:
    counts = {found: system.confusion.get((true, found), 0) for found in labels}
    most = max(sum(counts.values()), 1)
    cells = [Cell(n, f"{n:,}", strong=found == true, heat=n / most) for found, n in counts.items()]
    return [true, *cells, _found(system.right_of(true))]


def _mistakes(evaluation: Evaluation) -> list[Section]:
    if not evaluation.mistakes:
        return []
    levels = max(one.layers for _, one in evaluation.mistakes)
    sections: list[Section] = [
        Heading(f"Most confident mistakes of {evaluation.mistakes_of}"),
        depth_scale(levels, where="page"),
    ]
    for truth, one in evaluation.mistakes:
        title = f"{one.label} with probability {one.probability:.2f}, in truth {truth}; mean depth {one.depth:.2f}"
        sections.append(one.section(title, levels, where="page"))
    return sections


def _terms(evaluation: Evaluation) -> Terms:
    conditions = evaluation.conditions
    sizes = ", ".join(map(str, conditions.batch_sizes))
    own = "of each system against its own weights with all words at full depth"
    return Terms(
        [
            ("test set", "; ".join(f"{name}, {count:,} texts" for name, count in conditions.tests)),
            (
                "time",
                f"texts in, labels out: with tokenizing and looking up depths; {conditions.timed:,} texts from a "
                f"fixed random sample, in the order of their length, a call for each batch of {sizes}; a round goes "
                f"through all systems, and the median of {conditions.repeats} counts",
            ),
            ("speed-up", f"against {evaluation.static}" if evaluation.static else own),
            ("machine", f"{conditions.device}, {_threads(conditions.threads)}, {conditions.machine}"),
            ("versions", ", ".join(f"{name} {number}" for name, number in conditions.versions.items())),
            ("date", conditions.date),
        ]
    )


def _accuracy_figure(evaluation: Evaluation) -> Figure:
    """Mean depth across, accuracy up: a line over the scales of each system, a large mark where it was trained."""

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for system, colour, shape in _looks(evaluation):
            if system.label == evaluation.static:
                axes.axhline(system.main.accuracy.mean, color=colour, linewidth=1.1, linestyle=(0, (4, 2)), zorder=2)
            _draw_system(axes, system, colour, shape)
        deepest = max(system.main.layers for system in evaluation.systems)
        axes.set_xlim(0.9 if deepest > 1 else 0.5, deepest + 0.04 * deepest)
        axes.set_xlabel("mean depth of a token, in layers")
        axes.set_ylabel("accuracy in %")
        axes.margins(y=0.1)
        axes.grid()
        axes.set_ylim(top=min(axes.get_ylim()[1], 101))  # a deviation may go beyond what there is
        legend_below(canvas, axes)

    read = []
    if any(system.curve for system in evaluation.systems):
        read.append("Large mark: as trained, small ones: other scales, lambdas or exits.")
    if evaluation.has_members:
        read.append("Strokes: ± the deviation over models.")
    return Figure("accuracy-depth", "Accuracy over the mean depth of a token", drawing, " ".join(read), (6.4, 4.4))


def _draw_system(axes: Axes, system: SystemResult, colour: str, shape: str) -> None:
    joined = sorted(system.points, key=lambda point: point.depth.mean)
    if system.curve:
        axes.plot(*_places(joined), color=colour, linewidth=1.5, zorder=3)
        axes.plot(*_places(system.curve), shape, color=colour, markersize=5, zorder=4)
    axes.plot(*_places([system.main]), shape, color=colour, markersize=10, label=system.label, zorder=5)
    if system.own_static is not None:
        look: dict[str, Any] = {"color": colour, "markerfacecolor": PAPER, "markersize": 9, "markeredgewidth": 1.6}
        axes.plot(*_places([system.own_static]), shape, **look, label=f"{system.label} {AT_FULL}", zorder=5)
    for point in [*joined, *([system.own_static] if system.own_static else [])]:
        accuracy, depth = point.accuracy, point.depth.mean
        if accuracy.deviation is not None:
            ends = [accuracy.mean - accuracy.deviation, accuracy.mean + accuracy.deviation]
            axes.plot([depth] * 2, ends, "-_", color=colour, linewidth=1.0, markersize=6, alpha=0.7, zorder=2)
        name = AT_FULL if point is system.own_static else point.setting.name
        tip = f"{system.label}, {name}: {accuracy.shown(2)} % at mean depth {depth:.2f}"
        tip_points(axes, [depth], [accuracy.mean], [tip])


def _speed_figure(evaluation: Evaluation) -> Figure:
    """Batch size across, texts per second up."""
    sizes = sorted(evaluation.conditions.batch_sizes)

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for system, colour, shape in _looks(evaluation):
            _draw_speed(axes, system.main, sizes, (colour, f"{shape}-", colour), system.label)
            if system.own_static is not None:
                _draw_speed(axes, system.own_static, sizes, (colour, f"{shape}--", PAPER), f"{system.label} {AT_FULL}")
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(bottom=0)
        axes.set_xlabel("batch size")
        axes.set_ylabel("texts per second")
        axes.grid()
        legend_below(canvas, axes)

    caption = "Bands: ± the deviation over models." if evaluation.has_members else ""
    return Figure("speed-batch", "Speed over batch size", drawing, caption, (6.4, 4.4))


def _draw_speed(axes: Axes, point: SettingResult, sizes: Sequence[int], look: tuple[str, str, str], label: str) -> None:
    """`look` has the colour, the shape and line, and the colour within the marks."""
    colour, line, face = look
    speeds = [point.texts_per_second(size) for size in sizes]
    means, deviations = [speed.mean for speed in speeds], [speed.deviation or 0.0 for speed in speeds]
    low, high = ([m + sign * d for m, d in zip(means, deviations, strict=True)] for sign in (-1, 1))
    axes.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(sizes, means, line, color=colour, markersize=6, linewidth=1.6, markerfacecolor=face, label=label)
    tip_points(axes, sizes, means, [f"{label}: {m:.1f} texts/s at {n}" for m, n in zip(means, sizes, strict=True)])


def _looks(evaluation: Evaluation) -> list[tuple[SystemResult, str, str]]:
    """A colour and a shape for each system; the static one is in ink."""
    return [
        (system, INK, "D")
        if system.label == evaluation.static
        else (system, SERIES[index % len(SERIES)], SHAPES[index % len(SHAPES)])
        for index, system in enumerate(evaluation.systems)
    ]


def _places(points: Sequence[SettingResult]) -> tuple[list[float], list[float]]:
    return [point.depth.mean for point in points], [point.accuracy.mean for point in points]


def _record(classifier: Classifier, points: Sequence[SettingResult], place: int, measured_on: dict[str, Any]) -> bool:
    menu, folder = classifier.menu, classifier.folder
    own = [point for point in points if point.setting.depth in menu.names]
    if folder is None or not own:
        return False
    names = {point.setting.depth for point in own}
    others = [entry.name for entry in menu if entry.cost and entry.name not in names]
    if others and _undated(menu.measured_on) != _undated(measured_on):
        for name in others:
            menu.measured(name, {}, {})
        log.info("%s: the figures of %s are from other conditions and were taken out", folder, ", ".join(others))
    for point in own:
        depth, result = point.setting.depth, point.models[place]
        menu.measured(depth, _cost(result, classifier.parameters(depth)), {"accuracy": result.accuracy})
    menu.measured_on = measured_on
    try:
        artifact.record_measurements(folder, menu)
    except OSError as error:
        log.warning("warning: the measurements are not recorded in %s: %s", folder, error.strerror)
        return False
    return True


def _cost(result: ModelResult, parameters: int) -> dict[str, float]:
    """The time is that of the smallest batches."""
    seconds = result.seconds[min(result.seconds)]
    return {"seconds_per_text": seconds, "depth": result.depth, "parameters": parameters}


def _measured_on(evaluation: Evaluation, member: Member) -> dict[str, Any]:
    conditions = evaluation.conditions
    return {
        "device": conditions.device,
        "threads": conditions.threads,
        "machine": conditions.machine,
        "batch_size": min(conditions.batch_sizes),
        "test_set": member.test.name,
        "texts": len(member.test.texts),
        "timed_texts": conditions.timed,
        "date": conditions.date,
    }


def _undated(measured_on: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in measured_on.items() if key != "date"}


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _found(right: float | None) -> str:
    return "" if right is None else f"{right:.1f} %"


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"
