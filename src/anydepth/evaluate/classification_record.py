"""Write what an evaluation measured into the model folders, where the model card reads it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from anydepth.artifact import model as artifact
from anydepth.evaluate.classification_result import Evaluation, Outcome, Point
from anydepth.evaluate.labelled_members import Member
from anydepth.infer.classifier import Classifier


def record_evaluation(systems: Mapping[str, Sequence[Member]], evaluation: Evaluation, console: Console) -> list[Path]:
    """The folders in whose menu and card the figures are now; each model gets those of its own depths.

    Figures of other depths that were measured under other conditions go: costs from two machines in one menu would
    mislead whoever picks a depth by them.
    """
    done = []
    for system in evaluation.systems:
        points = [system.main, *([system.own_static] if system.own_static else [])]
        for place, member in enumerate(systems[system.label]):
            classifier = member.load()
            if _record(classifier, points, place, _measured_on(evaluation, member), console):
                assert classifier.folder is not None
                done.append(classifier.folder)
    return done


def _record(
    classifier: Classifier, points: Sequence[Point], place: int, measured_on: dict[str, Any], console: Console
) -> bool:
    menu, folder = classifier.menu, classifier.folder
    own = [point for point in points if point.setting.depth in menu.names]
    if folder is None or not own:
        return False
    names = {point.setting.depth for point in own}
    others = [entry.name for entry in menu if entry.cost and entry.name not in names]
    if others and _undated(menu.measured_on) != _undated(measured_on):
        for name in others:
            menu.measured(name, {}, {})
        _say(console, f"{folder}: the figures of {', '.join(others)} are from other conditions and were taken out")
    for point in own:
        depth = point.setting.depth
        cost = _cost(point.outcomes[place], classifier.parameters(depth))
        menu.measured(depth, cost, {"accuracy": point.outcomes[place].accuracy})
    menu.measured_on = measured_on
    try:
        artifact.record_measurements(folder, menu)
    except OSError as error:
        _say(console, f"warning: the measurements are not recorded in {folder}: {error.strerror}")
        return False
    return True


def _cost(outcome: Outcome, parameters: int) -> dict[str, float]:
    """The time is that of the smallest batches."""
    seconds = outcome.seconds[min(outcome.seconds)]
    return {"seconds_per_text": seconds, "depth": outcome.depth, "parameters": parameters}


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


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
