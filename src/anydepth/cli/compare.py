"""`anydepth compare`: compares ways of training."""

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


def compare(
    systems: Annotated[
        list[str],
        typer.Argument(
            help="Two or more ways of training, the baseline first: NAME=PATH,PATH,... has a model for each seed.",
            show_default=False,
        ),
    ],
    source: Source,
    reference: Reference,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for a report; translations that are there already are not made again."),
    ] = None,
    depth: Annotated[
        str | None,
        typer.Option(help="A depth that all models have, such as 6-2.  [default: that of each]", show_default=False),
    ] = None,
    beam: Beam = 1,
    length_penalty: LengthPenalty = 0.6,
    batch_size: BatchSize = 32,
    samples: Annotated[int, typer.Option(min=1, help="Samples of the paired bootstrap over sentences.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 1,
    over_seeds: Annotated[
        bool,
        typer.Option("--over-seeds", help="Resample the seeds, too: what training again might change as well."),
    ] = False,
    cut_long: CutLong = False,
    from_language: From = None,
    to_language: To = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Compare ways of training over several seeds, with a paired significance test against the first."""
    from anydepth.data.corpus import read_lines
    from anydepth.evaluate.compare import compare_systems
    from anydepth.evaluate.compare_report import compare_report, write_comparison
    from anydepth.evaluate.experiment import RunOptions
    from anydepth.evaluate.kept_outputs import MARK, KeptOutputs
    from anydepth.evaluate.render import to_terminal

    sources, references = list(read_lines(source)), list(read_lines(reference))
    if out is not None:
        make_report_folder(out, MARK, "a comparison")  # before hours of work, not after
    result = compare_systems(
        load_families(systems, device, threads, from_language, to_language),
        sources,
        references,
        RunOptions(beam, length_penalty, batch_size, cut_long, source.name, reference.name),
        depth=depth,
        samples=samples,
        seed=seed,
        over_seeds=over_seeds,
        kept=KeptOutputs(out),
    )
    to_terminal(compare_report(result), results())
    if out is not None:
        stderr.print(f"report: {write_comparison(result, out)}")
