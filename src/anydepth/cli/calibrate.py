"""`anydepth calibrate`: measures every depth on this machine."""

from typing import Annotated

import typer

from anydepth.cli.options import (
    BatchSize,
    Beam,
    CutLong,
    Device,
    EngineOption,
    From,
    LengthPenalty,
    ModelOrBundled,
    Quantize,
    Reference,
    Source,
    Threads,
    To,
    results,
    stderr,
)


def calibrate(
    source: Source,
    reference: Reference,
    model: ModelOrBundled = None,
    beam: Beam = 1,
    length_penalty: LengthPenalty = 0.6,
    batch_size: BatchSize = 32,
    repeats: Annotated[int, typer.Option(min=1, help="Timed passes over all depths; the median counts.")] = 3,
    sentences: Annotated[
        int, typer.Option(min=1, help="At most so many are timed at batch 1, spread over the lengths that occur.")
    ] = 200,
    cut_long: CutLong = False,
    from_language: From = None,
    to_language: To = None,
    engine: EngineOption = "auto",
    quantize: Quantize = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Measure every depth on this machine, so that `translate --budget` can keep its promise here."""
    from anydepth.data.corpus import read_lines
    from anydepth.evaluate.calibrate import calibrate as carry_out
    from anydepth.evaluate.calibrate import calibration_report
    from anydepth.evaluate.experiment import RunOptions
    from anydepth.evaluate.render import to_terminal
    from anydepth.infer.translator import Translator
    from anydepth.selectors.calibration import refuse_newer, save

    sources, references = list(read_lines(source)), list(read_lines(reference))
    translator = Translator.load(
        model,
        engine=engine,
        device=device,
        threads=threads,
        quantize=quantize,
        source_language=from_language,
        target_language=to_language,
        batch_size=batch_size,
    ).between()
    refuse_newer(translator.folder, translator.fingerprint)  # before minutes of work, not after
    options = RunOptions(beam, length_penalty, batch_size, cut_long, source.name, reference.name, repeats)
    calibration = carry_out(translator, sources, references, options, timing_sentences=sentences)
    to_terminal(calibration_report(calibration), results())
    stderr.print(f"stored in {save(calibration, translator.folder, translator.fingerprint)}")
