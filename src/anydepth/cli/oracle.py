"""`anydepth oracle`: says which depth would have been best for each sentence."""

from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli import options as opt


def oracle(
    models: Annotated[
        list[str],
        typer.Argument(
            help="One or more models, as PATH or NAME=PATH. NAME=PATH,PATH,... joins several, such as one model "
            "trained per depth.",
            show_default=False,
        ),
    ],
    source: opt.Source,
    reference: opt.Reference,
    out: Annotated[Path, typer.Option(help="Folder for the report.", show_default=False)],
    beam: opt.Beam = 1,
    length_penalty: opt.LengthPenalty = 0.6,
    batch_size: opt.BatchSize = 32,
    repeats: opt.Repeats = 3,
    cut_long: opt.CutLong = False,
    from_language: opt.From = None,
    to_language: opt.To = None,
    engine: opt.EngineOption = "auto",
    quantize: opt.Quantize = None,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
) -> None:
    """Find the best depth of each sentence by its reference: an upper bound for a depth selector."""
    from anydepth.data.corpus import read_lines
    from anydepth.evaluate.experiment import RunOptions
    from anydepth.evaluate.oracle import oracle as run_oracle
    from anydepth.evaluate.oracle_report import oracle_report
    from anydepth.evaluate.render import to_terminal, write_report

    sources, references = list(read_lines(source)), list(read_lines(reference))
    opt.make_report_folder(out, "oracle.json", "an oracle report")  # before hours of work, not after
    on = opt.LoadOptions(engine, quantize, device, threads, from_language, to_language)
    families = opt.load_families(models, on)
    options = RunOptions(beam, length_penalty, batch_size, cut_long, source.name, reference.name, repeats)
    report = oracle_report(run_oracle(families, sources, references, options))
    to_terminal(report, opt.results())
    stale = ("oracle*.tsv", "distribution*.png")  # of a report with other models
    opt.stderr.print(f"report: {write_report(report, out, 'oracle.json', stale=stale)}")
