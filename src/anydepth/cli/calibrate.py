"""`anydepth calibrate`: measures every depth on this machine, or finds the exit rule that keeps a promise."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from anydepth.artifact import bundled_model
from anydepth.cli.options import (
    BatchSize,
    Beam,
    CutLong,
    Device,
    EngineOption,
    From,
    LengthPenalty,
    ModelFileOrBundled,
    Quantize,
    Threads,
    To,
    UseShortlist,
    complete_depths,
    results,
    stderr,
)
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.evaluate.experiment import RunOptions
    from anydepth.infer.translator import Translator


class _TestText(NamedTuple):
    """What to translate, and what its files are called."""

    sources: list[str]
    references: list[str]
    source_name: str
    reference_name: str


def calibrate(
    model: ModelFileOrBundled = None,
    source: Annotated[
        Path | None,
        typer.Option(
            help="Source sentences, one per line.  [default: sample.tsv of the model, or the run's validation text]",
            show_default=False,
        ),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Their reference translations, line by line.", show_default=False)
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Find the exit rule for `translate --keep` instead: such a share of sentences, as 99%, keeps the text "
            "of the full depth, or nearly so. Needs no references.",
            show_default=False,
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="With --keep: the chrF against the full depth from which on a sentence counts as kept.  [default: 80]",
            show_default=False,
        ),
    ] = None,
    depth: Annotated[
        str | None,
        typer.Option(
            help="With --keep: the full depth, such as 6-3.  [default: the model's default depth]",
            show_default=False,
            autocompletion=complete_depths,
        ),
    ] = None,
    beam: Beam = 1,
    length_penalty: LengthPenalty = 0.6,
    batch_size: BatchSize = 32,
    repeats: Annotated[int, typer.Option(min=1, help="Timed passes over all depths; the median counts.")] = 3,
    sentences: Annotated[
        int, typer.Option(min=1, help="Number of sentences timed one at a time, sampled evenly by length.")
    ] = 200,
    cut_long: CutLong = False,
    from_language: From = None,
    to_language: To = None,
    engine: EngineOption = "auto",
    quantize: Quantize = None,
    shortlist: UseShortlist = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Measure time and quality of every depth on this machine, for `translate --budget`, or with --keep find the rule
    for `translate --keep`."""
    from anydepth.evaluate.calibrate import calibrate as run_calibrate
    from anydepth.evaluate.calibrate import calibration_report
    from anydepth.evaluate.experiment import OtherLoad, RunOptions
    from anydepth.evaluate.render import to_terminal
    from anydepth.infer.translator import Translator
    from anydepth.selectors.calibration import refuse_newer, save

    if keep is None and (tolerance is not None or depth is not None or shortlist is not None):
        raise UserError("--tolerance, --depth and --shortlist are for --keep: give a share of sentences, such as 99%")
    given = _read_given(source, reference, keep is not None)
    translator = Translator.load(
        model,
        engine=engine,
        device=device,
        threads=threads,
        quantize=quantize,
        shortlist=shortlist,
        source_language=from_language,
        target_language=to_language,
    ).between()
    if keep is not None:
        text = given or _own_text(translator, model or bundled_model(), references=False)
        options = RunOptions(beam, length_penalty, batch_size, cut_long, text.source_name, repeats=repeats)
        _promise(translator, text, keep, depth, tolerance, options)
        return
    refuse_newer(translator.folder, translator.fingerprint)  # before minutes of work, not after
    text = given or _own_text(translator, model or bundled_model())
    options = RunOptions(beam, length_penalty, batch_size, cut_long, text.source_name, text.reference_name, repeats)
    load = OtherLoad()
    calibration = run_calibrate(translator, text.sources, text.references, options, timing_sentences=sentences)
    to_terminal(calibration_report(calibration), results())
    if doubt := load.doubt(translator.engine.threads):
        stderr.print(f"{doubt} Calibrate again when they have ended.")
    stderr.print(f"stored in {save(calibration, translator.folder, translator.fingerprint)}")


def _promise(
    translator: "Translator",
    text: _TestText,
    keep: str,
    depth: str | None,
    tolerance: float | None,
    options: "RunOptions",
) -> None:
    from anydepth.evaluate.promise import calibrate_promise, promise_report
    from anydepth.evaluate.render import to_terminal
    from anydepth.selectors.promise import TOLERANCE, refuse_newer, save

    refuse_newer(translator.folder, translator.fingerprint)
    result = calibrate_promise(
        translator,
        text.sources,
        keep,
        depth=depth,
        tolerance=TOLERANCE if tolerance is None else tolerance,
        options=options,
    )
    to_terminal(promise_report(result), results())
    stderr.print(f"stored in {save(result.promise, translator.folder, translator.fingerprint)}")


def _read_given(source: Path | None, reference: Path | None, alone: bool) -> _TestText | None:
    """Sources `alone`, or with references."""
    from anydepth.data.corpus import read_lines

    if alone and reference is not None:
        raise UserError("--keep compares with the full depth and needs no references: leave out --reference")
    if alone:
        return None if source is None else _TestText(list(read_lines(source)), [], source.name, "")
    if source is None and reference is None:
        return None
    if source is None or reference is None:
        raise UserError("--source and --reference belong together: give both, or neither")
    return _TestText(list(read_lines(source)), list(read_lines(reference)), source.name, reference.name)


def _own_text(translator: "Translator", given: Path, references: bool = True) -> _TestText:
    """That of the model, or of its run."""
    from anydepth.export.sample import find_sample

    sample = find_sample(translator, given)
    if sample.references is None:
        files = "--source and --reference" if references else "--source"
        raise UserError(f"this model has no sample.tsv to measure on: give {files}")
    stderr.print(f"measuring on {len(sample.sources):,} sentences, {sample.origin}")
    return _TestText(sample.sources, sample.references, sample.origin, sample.origin)
