"""What becomes of an evaluation of models that classify: a report, and the figures in the model folders."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, NullFormatter

from anydepth.evaluate import report as rp
from anydepth.evaluate.classification_data import Member, Systems
from anydepth.evaluate.classification_result import ALIKE, Evaluation, SettingResult, SystemResult
from anydepth.evaluate.experiment import counted, measured_alike, record_measurements
from anydepth.evaluate.explain import depth_scale
from anydepth.evaluate.figures import INK, PAPER, Series, plot, series_style

RECORD = "evaluation.json"
STALE = ("accuracy-depth.png", "speed-batch.png")
AT_FULL = "at full depth"
SIZES_OF_A_LINE = 3  # two points make no picture
LARGEST_MATRIX = 8  # labels; of more, the page shows how many of each were found
COMPUTED = "layers that tokens ran, as a share of all layers"

log = logging.getLogger(__name__)


def evaluation_report(evaluation: Evaluation) -> rp.Report:
    conditions, labels = evaluation.conditions, ", ".join(system.label for system in evaluation.systems)
    sections: list[rp.Section] = [
        *_tiles(evaluation),
        rp.Heading("All systems"),
        _systems_table(evaluation),
        *(rp.Text(line, "soft") for line in _legend(evaluation)),
        *([rp.Details("Every model", [_models_table(evaluation)])] if evaluation.has_members else []),
        rp.Heading("Accuracy over depth"),
        _accuracy_figure(evaluation),
        *(_curve_table(system, evaluation) for system in evaluation.systems if system.curve),
    ]
    if len(conditions.batch_sizes) >= SIZES_OF_A_LINE:
        sections += [rp.Heading("Speed over batch size"), _speed_figure(evaluation)]
    sections += [rp.Heading("Which labels are found"), *_label_tables(evaluation), *_mistakes(evaluation)]
    sections += [rp.Heading("How this was measured"), _terms(evaluation)]
    threads = counted(conditions.threads, "thread")
    lead = f"{evaluation.texts}; {conditions.device} with {threads}, {conditions.date[:10]}"
    return rp.Report(f"How well, how deep, how fast: {labels}", sections, evaluation.to_json(), lead)


def record_evaluation(systems: Systems, evaluation: Evaluation) -> list[Path]:
    """Write the figures into the menu and card of each model, those of its own depths; return the folders.

    Figures of other depths that were measured under other conditions go.
    """
    done = []
    for system in evaluation.systems:
        for place, member in enumerate(systems[system.label]):
            folder = _record(member, system, place, evaluation)
            done += [folder] if folder is not None else []
    return done


def _record(member: Member, system: SystemResult, place: int, evaluation: Evaluation) -> Path | None:
    classifier = member.load()
    menu, folder, conditions = classifier.menu, classifier.folder, evaluation.conditions
    measured_on = {
        "engine": conditions.engine,
        "device": conditions.device,
        "threads": conditions.threads,
        "machine": conditions.machine,
        "batch_size": min(conditions.batch_sizes),
        "test_set": member.test.name,
        "texts": len(member.test.texts),
        "timed_texts": conditions.timed,
        "date": conditions.date,
    }
    found: dict[str, tuple[dict[str, float], dict[str, float]]] = {}
    for depth, result in ((point.setting.depth, point.models[place]) for point in system.depth_points):
        if depth in menu.names:
            seconds = result.seconds[min(result.seconds)]  # in the smallest batches
            cost = {"seconds_per_text": seconds, "depth": result.depth}
            cost["parameters"] = classifier.parameters(depth) or 0
            found[depth] = cost, {"accuracy": result.accuracy}
    if folder is None or not found:
        return None
    if not measured_alike(menu, found, measured_on):
        others = [entry.name for entry in menu if entry.cost and entry.name not in found]
        for name in others:
            menu.measured(name, {}, {})
        log.info("%s: the figures of %s are from other conditions and were taken out", folder, ", ".join(others))
    return folder if record_measurements(folder, menu, found, measured_on) else None


def _tiles(evaluation: Evaluation) -> list[rp.Section]:
    """Of the most accurate system in which words have depths of their own."""
    others = [one for one in evaluation.systems if one.main.share.mean < 1]
    best = max(others, key=lambda one: one.main.accuracy.mean, default=None)
    if best is None:
        return []
    main, own, sizes = best.main, best.own_static, evaluation.conditions.batch_sizes
    against = f"its weights with all words at full depth: {own.accuracy.mean:.2f} %" if own else f"by {best.kind}"
    depth = f"mean depth {main.depth.mean:.2f} of {main.layers} layers; arithmetic allows {main.allowed:.2f}x"
    speeds = [f"{main.speed_up[size].mean:.2f}x" for size in sizes]
    batches = ", ".join(f"{speed} at batch {size}" for speed, size in zip(speeds, sizes, strict=True))
    return [
        rp.Tiles(
            [
                rp.Tile(f"Accuracy of {best.label}", f"{main.accuracy.shown(2)} %", against),
                rp.Tile("Computed, of what full depth computes", _percent(main.share.mean), depth),
                rp.Tile("Speed-up, measured", speeds[0], batches),
            ]
        )
    ]


def _point_columns(evaluation: Evaluation) -> list[rp.Column]:
    """Of a `SettingResult`: how good, how deep, how fast at each batch size."""

    def time(size: int) -> rp.Column:
        return rp.Column(
            f"ms at {size}",
            lambda point: f"{1000 * point.seconds[size].mean:.2f} ({point.speed_up[size].mean:.2f}x)",
        )

    return [
        rp.Column("accuracy %", lambda point: point.accuracy.shown(2)),
        rp.Column("mean depth", lambda point: point.depth.mean, ".2f"),
        rp.Column("computed", lambda point: _percent(point.share.mean), help=COMPUTED),
        *(time(size) for size in evaluation.conditions.batch_sizes),
    ]


def _systems_table(evaluation: Evaluation) -> rp.Table:
    quality, times = _point_columns(evaluation)[:3], _point_columns(evaluation)[3:]
    columns = [
        *([rp.Column("models", lambda point: str(len(point.models)))] if evaluation.has_members else []),
        *quality,
        rp.Column("allows", lambda one: f"{one.allowed:.2f}x", help="speed-up if computed layers were all that counts"),
        *times,
    ]
    rows = []
    marked = any(system.own_static for system in evaluation.systems)
    for system in evaluation.systems:
        for point in system.depth_points:
            is_main = point is system.main
            first = [system.label, system.kind] if is_main else [AT_FULL, ALIKE]
            cells = [*first, *(column.value and column.value(point) for column in columns)]
            rows.append(rp.Row(cells, strong=is_main and marked, indent=not is_main))
    return rp.Table([rp.Column("system"), rp.Column("depths by"), *columns], rows)


def _curve_table(system: SystemResult, evaluation: Evaluation) -> rp.Table:
    columns = [rp.Column("", lambda point: point.setting.name), *_point_columns(evaluation)]
    title = f"{system.label}, deeper and shallower"
    return rp.tabulate(columns, system.points, title, strong=lambda point: point is system.main)


def _models_table(evaluation: Evaluation) -> rp.Table:
    models = [(system.label, one) for system in evaluation.systems for one in system.main.models]
    columns = [
        rp.Column("model", lambda pair: f"{pair[0]}: {pair[1].member}"),
        rp.Column("test set", lambda pair: pair[1].test),
        rp.Column("texts", lambda pair: pair[1].texts, ","),
        rp.Column("accuracy %", lambda pair: pair[1].accuracy, ".2f"),
        rp.Column("mean depth", lambda pair: pair[1].depth, ".2f"),
        rp.Column("computed", lambda pair: _percent(pair[1].share), help=COMPUTED),
    ]

    def time(size: int) -> rp.Column:
        return rp.Column(f"ms at {size}", lambda pair: 1000 * pair[1].seconds[size], ".2f")

    return rp.tabulate([*columns, *map(time, evaluation.conditions.batch_sizes)], models)


def _legend(evaluation: Evaluation) -> list[str]:
    """What the figures are, a line each."""
    conditions, has_members = evaluation.conditions, evaluation.has_members
    against = evaluation.static or "the same weights with all words at full depth"
    lines = ["at full depth: the same weights, all words run all layers"] if not evaluation.static else []
    lines += [
        f"accuracy: on {evaluation.texts}",
        f"computed: {COMPUTED}; allows: the speed-up if that were all there is",
        f"ms at a batch size: per text, texts in and labels out, {conditions.timed:,} texts, median of "
        f"{conditions.repeats}; in brackets the speed-up against {against}",
    ]
    if has_members:
        lines.append("±: sample deviation over the models of a system")
    if has_members and any(system.curve for system in evaluation.systems):
        lines.append("times at other scales, lambdas and exits are those of the first model of a system")
    return lines


def _label_tables(evaluation: Evaluation) -> list[rp.Section]:
    """A confusion matrix for each system, or how often each of many labels was found."""
    labels, systems = evaluation.labels, evaluation.systems
    if len(labels) > LARGEST_MATRIX:
        columns = [rp.Column("label"), *(rp.Column(system.label) for system in systems)]
        return [
            rp.Table(columns, [[one, *(_recall(system, one) for system in systems)] for one in labels], where="page")
        ]
    over = ", counted over all models of a system" if evaluation.has_members else ""
    columns = [rp.Column(""), *(rp.Column(label) for label in labels), rp.Column("right")]
    return [
        rp.Text(f"Down the true label, across the one that was found{over}.", where="page"),
        *(
            rp.Table(columns, [_matrix_row(system, true, labels) for true in labels], title=system.label, where="page")
            for system in systems
        ),
    ]


def _matrix_row(system: SystemResult, true: str, labels: Sequence[str]) -> list[rp.Value]:
    counts = {found: system.confusion.get((true, found), 0) for found in labels}
    most = max(sum(counts.values()), 1)
    cells = [rp.Cell(n, f"{n:,}", strong=found == true, heat=n / most) for found, n in counts.items()]
    return [true, *cells, _recall(system, true)]


def _recall(system: SystemResult, label: str) -> str:
    recall = system.recall(label)
    return "" if recall is None else f"{recall:.1f} %"


def _mistakes(evaluation: Evaluation) -> list[rp.Section]:
    if not evaluation.mistakes:
        return []
    levels = max(one.layers for _, one in evaluation.mistakes)
    sections: list[rp.Section] = [
        rp.Heading(f"Most confident mistakes of {evaluation.mistakes_of}"),
        depth_scale(levels, where="page"),
    ]
    for truth, one in evaluation.mistakes:
        title = f"{one.label} with probability {one.probability:.2f}, in truth {truth}; mean depth {one.depth:.2f}"
        sections.append(one.section(title, levels, where="page"))
    return sections


def _terms(evaluation: Evaluation) -> rp.Terms:
    conditions, sizes = evaluation.conditions, ", ".join(map(str, evaluation.conditions.batch_sizes))
    own = "of each system against its own weights with all words at full depth"
    pairs = {
        "test set": "; ".join(f"{name}, {count:,} texts" for name, count in conditions.tests),
        "time": f"texts in, labels out: with tokenizing and looking up depths; {conditions.timed:,} texts from a fixed "
        f"random sample, in the order of their length, a call for each batch of {sizes}; a round goes through all "
        f"systems, and the median of {conditions.repeats} counts",
        "speed-up": f"against {evaluation.static}" if evaluation.static else own,
        "machine": f"{conditions.runs_on}, {conditions.machine}",
        "engine": conditions.engine,
        **conditions.terms(),
    }
    return rp.Terms(pairs)


def _looks(evaluation: Evaluation) -> list[tuple[SystemResult, dict[str, Any]]]:
    """Colour and shape of each system; the static one is in ink."""
    static = {"color": INK, "marker": "D"}
    systems = enumerate(evaluation.systems)
    return [(one, static if one.label == evaluation.static else series_style(place)) for place, one in systems]


def _accuracy_figure(evaluation: Evaluation) -> rp.Figure:
    """Mean depth across, accuracy up: a line over the scales of each system, a large mark where it was trained."""

    def limits(canvas: Canvas, axes: Axes) -> None:
        for system, look in _looks(evaluation):
            if system.label == evaluation.static:
                axes.axhline(system.main.accuracy.mean, color=look["color"], linewidth=1.1, linestyle=(0, (4, 2)))
        deepest = max(system.main.layers for system in evaluation.systems)
        axes.set_xlim(0.9 if deepest > 1 else 0.5, deepest + 0.04 * deepest)
        axes.set_ylim(top=min(axes.get_ylim()[1], 101))  # a deviation may go beyond what there is

    series = []
    for system, look in _looks(evaluation):
        joined = sorted(system.points, key=lambda point: point.depth.mean)
        if system.curve:
            series.append(_accuracies(system, joined, {**look, "marker": "", "linewidth": 1.5}))
            series.append(_accuracies(system, system.curve, {**look, "linestyle": "", "markersize": 5}))
        series.append(_accuracies(system, [system.main], {**look, "markersize": 10, "zorder": 5}, system.label))
        if system.own_static is not None:
            hollow = {**look, "markerfacecolor": PAPER, "markersize": 9, "markeredgewidth": 1.6, "zorder": 5}
            series.append(_accuracies(system, [system.own_static], hollow, f"{system.label} {AT_FULL}"))
    has_curves = any(system.curve for system in evaluation.systems)
    read = ["Large mark: as trained, small ones: other scales, lambdas or exits."] if has_curves else []
    read += ["Strokes: ± the deviation over models."] if evaluation.has_members else []
    draw = plot(series, "mean depth of a token, in layers", "accuracy in %", then=limits)
    return rp.Figure("accuracy-depth", "Accuracy over the mean depth of a token", draw, " ".join(read), (6.4, 4.4))


def _accuracies(system: SystemResult, points: Sequence[SettingResult], look: dict[str, Any], label: str = "") -> Series:
    tips = [
        f"{system.label}, {AT_FULL if one is system.own_static else one.setting.name}: {one.accuracy.shown(2)} % at "
        f"mean depth {one.depth.mean:.2f}"
        for one in points
    ]
    x, y, errors = zip(*((one.depth.mean, one.accuracy.mean, one.accuracy.deviation) for one in points), strict=True)
    shown = tips if look["marker"] else []  # a bare line has its marks drawn beside it
    return Series(x, y, look, label, shown, errors if shown else (), strokes=True)


def _speed_figure(evaluation: Evaluation) -> rp.Figure:
    """Batch size across, texts per second up."""
    sizes = sorted(evaluation.conditions.batch_sizes)

    def ticks(canvas: Canvas, axes: Axes) -> None:
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(0, 1.1 * axes.dataLim.y1)

    series = []
    for system, look in _looks(evaluation):
        for point in system.depth_points:
            is_main = point is system.main
            own = {} if is_main else {"linestyle": "--", "markerfacecolor": PAPER}
            label = system.label if is_main else f"{system.label} {AT_FULL}"
            speeds = [point.texts_per_second[size] for size in sizes]
            means, errors = [speed.mean for speed in speeds], [speed.deviation for speed in speeds]
            tips = [f"{label}: {mean:.1f} texts/s at {size}" for mean, size in zip(means, sizes, strict=True)]
            series.append(Series(sizes, means, {**look, "markersize": 6, **own}, label, tips, errors))
    caption = "Bands: ± the deviation over models." if evaluation.has_members else ""
    draw = plot(series, "batch size", "texts per second", then=ticks)
    return rp.Figure("speed-batch", "Speed over batch size", draw, caption, (6.4, 4.4))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
