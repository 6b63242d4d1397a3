"""`anydepth oracle`: says which depth would have been best for each sentence."""

from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli import options as opt


def oracle(
    models: Annotated[
        list[str],
        typer.Argument(
            help="One or more models. NAME=PATH names one, and NAME=PATH,PATH,... takes several together, such as a "
            "model trained for each depth.",
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
    """Find which depth would have been best, sentence by sentence, and what it would be worth to know."""
    from anydepth.data.corpus import read_lines
    from anydepth.evaluate.experiment import RunOptions
    from anydepth.evaluate.oracle import oracle as ask
    from anydepth.evaluate.oracle_report import oracle_report
    from anydepth.evaluate.render import to_terminal, write_report

    sources, references = list(read_lines(source)), list(read_lines(reference))
    opt.make_report_folder(out, "oracle.json", "an oracle report")  # before hours of work, not after
    on = opt.LoadOptions(engine, quantize, device, threads, from_language, to_language, batch_size)
    families = opt.load_families(models, on)
    options = RunOptions(beam, length_penalty, batch_size, cut_long, source.name, reference.name, repeats)
    report = oracle_report(ask(families, sources, references, options))
    to_terminal(report, opt.results())
    stale = ("oracle*.tsv", "distribution*.png")  # of a report with other models
    opt.stderr.print(f"report: {write_report(report, out, 'oracle.json', stale=stale)}")
