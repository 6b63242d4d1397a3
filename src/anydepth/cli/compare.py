"""`anydepth compare`: compares ways of training."""

from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli import options as opt


def compare(
    systems: Annotated[
        list[str],
        typer.Argument(
            help="Two or more systems, the baseline first: NAME=PATH,PATH,... lists one model per seed.",
            show_default=False,
        ),
    ],
    source: opt.Source,
    reference: opt.Reference,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report. Translations already in it are reused."),
    ] = None,
    depth: Annotated[
        str | None,
        typer.Option(
            help="Depth that all models have, such as 6-2.  [default: the default depth of each]", show_default=False
        ),
    ] = None,
    beam: opt.Beam = 1,
    length_penalty: opt.LengthPenalty = 0.6,
    batch_size: opt.BatchSize = 32,
    samples: Annotated[int, typer.Option(min=1, help="Samples of the paired bootstrap over sentences.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the bootstrap.")] = 1,
    over_seeds: Annotated[
        bool,
        typer.Option("--over-seeds", help="Resample seeds as well as sentences, to include the variance of training."),
    ] = False,
    cut_long: opt.CutLong = False,
    from_language: opt.From = None,
    to_language: opt.To = None,
    engine: opt.EngineOption = "auto",
    quantize: opt.Quantize = None,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
) -> None:
    """Compare systems over several seeds, with a paired significance test against the first."""
    from anydepth.data.corpus import read_lines
    from anydepth.evaluate.compare import compare_systems
    from anydepth.evaluate.compare_report import compare_report, write_comparison
    from anydepth.evaluate.experiment import RunOptions
    from anydepth.evaluate.kept_outputs import MARK, KeptOutputs
    from anydepth.evaluate.render import to_terminal

    sources, references = list(read_lines(source)), list(read_lines(reference))
    if out is not None:
        opt.make_report_folder(out, MARK, "a comparison")  # before hours of work, not after
    on = opt.LoadOptions(engine, quantize, device, threads, from_language, to_language)
    translators = opt.load_families(systems, on)
    named = (source.name, reference.name)
    options = RunOptions(
        beam, length_penalty, batch_size, cut_long, *named, samples=samples, seed=seed, over_seeds=over_seeds
    )
    result = compare_systems(translators, sources, references, options, depth=depth, kept=KeptOutputs(out))
    to_terminal(compare_report(result), opt.results())
    if out is not None:
        opt.stderr.print(f"report: {write_comparison(result, out)}")
