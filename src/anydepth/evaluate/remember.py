"""Write what a sweep measured into the model folder, where depth selection and the model card read it."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from anydepth.artifact import model as artifact
from anydepth.depth import DepthMenu
from anydepth.evaluate.measurement import Measurement
from anydepth.evaluate.result import SweepResult
from anydepth.infer.translator import Translator


def remember(
    translator: Translator, result: SweepResult, label: str | None = None, *, console: Console | None = None
) -> bool:
    """Record the measurements of the model called `label` (by default the only one); say whether they were.

    Of a family each member gets those of its own depths. What a model did at depths that it was forced to is not
    recorded: nobody should pick one of them.
    A sweep of some depths joins the others' measurements only if those were made in the same way: costs from
    two machines in one menu would mislead whoever picks a depth by them.
    """
    console = console or Console(stderr=True)
    if translator.folder is None or result.conditions.forced:
        return False
    model = result.models[0] if label is None else result.model(label)
    own = [one for one in model.measurements if one.depth in translator.menu.names]
    measured_on = _measured_on(result)
    if not own:
        return False
    if not _comparable(translator.menu, own, measured_on):
        console.print(
            f"warning: {translator.folder.name} keeps its earlier measurements, made under other conditions: "
            "sweep all its depths to replace them",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return False
    for one in own:
        translator.menu.measured(one.depth, _cost(one), _quality(one))
    translator.menu.measured_on = measured_on
    try:
        artifact.record_measurements(translator.folder, translator.menu)
    except OSError as error:
        console.print(
            f"warning: the measurements are not recorded in {translator.folder}: {error.strerror}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return False
    return True


def _measured_on(result: SweepResult) -> dict[str, Any]:
    conditions = result.conditions
    return {
        "device": conditions.device,
        "threads": conditions.threads,
        **({} if conditions.engine == "torch" else {"engine": conditions.engine}),
        "machine": conditions.machine,
        "batch_size": conditions.batch_size,
        "beam": conditions.beam,
        "length_penalty": conditions.length_penalty,
        "cut_long": conditions.cut_long,
        "bleu_signature": result.signatures["BLEU"],
        "chrf_signature": result.signatures["chrF"],
        "test_set": conditions.source_file,
        "reference": conditions.reference_file,
        "lines": conditions.lines,
        "date": conditions.date,
    }


def _comparable(menu: DepthMenu, measurements: Sequence[Measurement], measured_on: dict[str, Any]) -> bool:
    swept = {one.depth for one in measurements}
    others_measured = any(entry.cost for entry in menu if entry.name not in swept)
    return not others_measured or _without_date(menu.measured_on) == _without_date(measured_on)


def _without_date(measured_on: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in measured_on.items() if key != "date"}


def _cost(one: Measurement) -> dict[str, float]:
    return {
        "seconds_per_sentence": one.seconds_per_sentence,
        "sentences_per_second": one.sentences_per_second,
        "tokens_per_second": one.tokens_per_second,
        "parameters": one.parameters,
        "bytes": one.bytes,
    }


def _quality(one: Measurement) -> dict[str, float]:
    return {
        "bleu": one.quality.bleu,
        "chrf": one.quality.chrf,
        "length_ratio": one.quality.length_ratio,
        "repetition_rate": one.quality.repetition_rate,
    }
