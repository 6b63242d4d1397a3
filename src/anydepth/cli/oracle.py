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
    source: Annotated[Path, typer.Option(help="Source sentences, one per line.", show_default=False)],
    reference: Annotated[Path, typer.Option(help="Their translations, line by line.", show_default=False)],
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
    from anydepth.evaluate.oracle import oracle as ask
    from anydepth.evaluate.oracle_report import write_oracle_report
    from anydepth.evaluate.oracle_table import print_oracle

    sources, references = list(read_lines(source)), list(read_lines(reference))
    make_report_folder(out, "oracle.json", "an oracle report")  # before hours of work, not after
    result = ask(
        load_families(models, device, threads, from_language, to_language),
        sources,
        references,
        beam=beam,
        length_penalty=length_penalty,
        batch_size=batch_size,
        cut_long=cut_long,
        repeats=repeats,
        source_name=source.name,
        reference_name=reference.name,
        console=stderr,
    )
    print_oracle(result, results())
    stderr.print(f"report: {write_oracle_report(result, out)}")
