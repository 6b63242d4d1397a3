"""`anydepth oracle`: says which depth would have been best for each sentence."""

from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.options import (
    BatchSize,
    Beam,
    CutLong,
    Device,
    From,
    LengthPenalty,
    Reference,
    Source,
    Threads,
    To,
    load_families,
    make_report_folder,
    results,
    stderr,
)


def oracle(
    models: Annotated[
        list[str],
        typer.Argument(
            help="One or more models. NAME=PATH names one, and NAME=PATH,PATH,... takes several together, such as a "
            "model trained for each depth.",
            show_default=False,
        ),
    ],
    source: Source,
    reference: Reference,
    out: Annotated[Path, typer.Option(help="Folder for the report.", show_default=False)],
    beam: Beam = 1,
    length_penalty: LengthPenalty = 0.6,
    batch_size: BatchSize = 32,
    repeats: Annotated[int, typer.Option(min=1, help="Timed passes; the median counts.")] = 1,
    cut_long: CutLong = False,
    from_language: From = None,
    to_language: To = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Find which depth would have been best, sentence by sentence, and what it would be worth to know."""
    from anydepth.data.corpus import read_lines
    from anydepth.evaluate.experiment import RunOptions
    from anydepth.evaluate.oracle import oracle as ask
    from anydepth.evaluate.oracle_report import oracle_report
    from anydepth.evaluate.render import to_terminal, write_report

    sources, references = list(read_lines(source)), list(read_lines(reference))
    make_report_folder(out, "oracle.json", "an oracle report")  # before hours of work, not after
    families = load_families(models, device, threads, from_language, to_language)
    options = RunOptions(beam, length_penalty, batch_size, cut_long, source.name, reference.name)
    report = oracle_report(ask(families, sources, references, options, repeats=repeats))
    to_terminal(report, results())
    stale = ("oracle*.tsv", "distribution*.png")  # of a report with other models
    stderr.print(f"report: {write_report(report, out, 'oracle.json', stale=stale)}")
