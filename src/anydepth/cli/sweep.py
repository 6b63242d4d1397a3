"""`anydepth sweep`: quality, time and size of every depth."""

from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli import options as opt
from anydepth.depth.assignment import STRATEGIES


def sweep(
    models: Annotated[
        list[str],
        typer.Argument(
            help="One or more models, as PATH or NAME=PATH; several are compared depth by depth. NAME=PATH,PATH,... "
            "joins several, such as one model trained per depth.",
            show_default=False,
        ),
    ],
    source: opt.Source,
    reference: opt.Reference,
    out: Annotated[Path, typer.Option(help="Folder for the report.", show_default=False)],
    depths: opt.DepthsOption = None,
    force: Annotated[
        str | None,
        typer.Option(
            help=f"Measure at the depths of this strategy ({', '.join(STRATEGIES)}) instead of the model's own.",
            show_default=False,
        ),
    ] = None,
    exits: Annotated[
        str | None,
        typer.Option(
            help="Also measure rules by which tokens leave the decoder early, such as margin:1,margin:2, at the "
            "default and the deepest depth; see translate --exit.",
            show_default=False,
        ),
    ] = None,
    beam: opt.Beam = 1,
    length_penalty: opt.LengthPenalty = 0.6,
    batch_size: opt.BatchSize = 32,
    repeats: opt.Repeats = 3,
    samples: Annotated[int, typer.Option(min=1, help="Samples of the paired bootstrap between models.")] = 1000,
    cut_long: opt.CutLong = False,
    record: Annotated[
        bool, typer.Option(help="Write the results to the depth menu and the model card of each model.")
    ] = True,
    from_language: opt.From = None,
    to_language: opt.To = None,
    engine: opt.EngineOption = "auto",
    quantize: opt.Quantize = None,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
) -> None:
    """Measure quality, time and size of every depth. Writes a report, and the results to the model's depth menu."""
    from anydepth.data.corpus import read_lines
    from anydepth.evaluate.experiment import RunOptions
    from anydepth.evaluate.render import to_terminal, write_report
    from anydepth.evaluate.sweep import record_sweep
    from anydepth.evaluate.sweep import sweep as run_sweep
    from anydepth.evaluate.sweep_report import sweep_report

    sources, references = list(read_lines(source)), list(read_lines(reference))
    opt.make_report_folder(out, "sweep.json", "a report")  # before hours of work, not after
    on = opt.LoadOptions(engine, quantize, device, threads, from_language, to_language)
    translators = opt.load_families(models, on)
    named = (source.name, reference.name)
    options = RunOptions(beam, length_penalty, batch_size, cut_long, *named, repeats=repeats, samples=samples)
    result = run_sweep(
        translators,
        sources,
        references,
        options,
        depths=opt.split_names(depths),
        force=force,
        exits=opt.split_names(exits) or (),
    )
    report = sweep_report(result)
    to_terminal(report, opt.results())
    for label, members in translators.items() if record else ():
        for member in members:
            if record_sweep(member, result, label):
                opt.stderr.print(f"recorded in the menu and the card of {member.folder}")
    stale = ("bleu*.png", "time*.png", "difference-*.png")  # of a report with other models
    opt.stderr.print(f"report: {write_report(report, out, 'sweep.json', stale=stale)}")
