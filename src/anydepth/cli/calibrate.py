"""`anydepth calibrate`: measures every depth on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from anydepth.cli.options import (
    BatchSize,
    Beam,
    CutLong,
    Device,
    Engine,
    From,
    LengthPenalty,
    ModelOrBundled,
    Quantize,
    Threads,
    To,
    load_translator,
    results,
    stderr,
)

if TYPE_CHECKING:
    from anydepth.selectors.calibration import Calibration


def calibrate(
    source: Annotated[Path, typer.Option(help="Source sentences, one per line.", show_default=False)],
    reference: Annotated[Path, typer.Option(help="Their translations, line by line.", show_default=False)],
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
    engine: Engine = "auto",
    quantize: Quantize = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Measure every depth on this machine, so that `translate --budget` can keep its promise here."""
    from anydepth.data.corpus import read_lines
    from anydepth.evaluate.calibrate import calibrate as carry_out
    from anydepth.selectors.calibration import refuse_newer, save

    sources, references = list(read_lines(source)), list(read_lines(reference))
    translator = load_translator(
        model, device, threads, from_language, to_language, engine, quantize, batch_size=batch_size
    )
    refuse_newer(translator.folder, translator.fingerprint)  # before minutes of work, not after
    calibration = carry_out(
        translator,
        sources,
        references,
        beam=beam,
        length_penalty=length_penalty,
        batch_size=batch_size,
        repeats=repeats,
        timing_sentences=sentences,
        cut_long=cut_long,
        source_name=source.name,
        reference_name=reference.name,
        console=stderr,
    )
    _print_table(calibration, results())
    stderr.print(f"stored in {save(calibration, translator.folder, translator.fingerprint)}")


def _print_table(calibration: "Calibration", console: Console) -> None:
    from anydepth.evaluate.plain_table import plain_table

    length = calibration.mean_length
    single = {name: one.single.at(length) for name, one in calibration.depths.items()}
    batched = {name: one.batched.at(length) for name, one in calibration.depths.items()}
    bleu = {name: one.quality["bleu"] for name, one in calibration.depths.items()}
    fronts = _front(single, bleu), _front(batched, bleu)
    headers = ("BLEU", "chrF", "ms, batch 1", "", f"ms, batch {calibration.conditions.batch_size}", "", "sent/s")
    table = plain_table(console, "", "depth", *headers)
    for name, one in calibration.depths.items():
        table.add_row(
            name,
            f"{bleu[name]:.2f}",
            f"{one.quality['chrf']:.2f}",
            f"{single[name] * 1000:.2f}",
            "*" if name in fronts[0] else "",
            f"{batched[name] * 1000:.2f}",
            "*" if name in fronts[1] else "",
            f"{1 / batched[name]:.1f}",
        )
    console.print(table)
    console.print("ms per sentence, fitted over lengths and layers")
    console.print("* on the Pareto front: no other depth is faster and at least as good")


def _front(seconds: dict[str, float], bleu: dict[str, float]) -> set[str]:
    return {
        name
        for name in seconds
        if not any(
            (seconds[other], -bleu[other]) != (seconds[name], -bleu[name])
            and seconds[other] <= seconds[name]
            and bleu[other] >= bleu[name]
            for other in seconds
        )
    }
