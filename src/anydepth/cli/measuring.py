"""Verbs that measure."""

from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.app import (
    BatchSize,
    Beam,
    CutLong,
    Device,
    Engine,
    From,
    LengthPenalty,
    Model,
    Quantize,
    Threads,
    To,
    errors,
    load_translator,
)
from anydepth.cli.families import load_families, make_report_folder, results
from anydepth.depth.assignment import STRATEGIES

Depths = Annotated[
    str | None,
    typer.Option(help="Only these, such as 6-6,6-2, or of an encoder alone 6-0.  [default: all]", show_default=False),
]


def sweep(
    models: Annotated[
        list[str],
        typer.Argument(
            help="One or more models; several are compared cell by cell. NAME=PATH names one, and NAME=PATH,PATH,... "
            "takes several together, such as a model trained for each depth.",
            show_default=False,
        ),
    ],
    source: Annotated[Path, typer.Option(help="Source sentences, one per line.", show_default=False)],
    reference: Annotated[Path, typer.Option(help="Their translations, line by line.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the report.", show_default=False)],
    depths: Depths = None,
    force: Annotated[
        str | None,
        typer.Option(
            help=f"Measure at the depths of this strategy ({', '.join(STRATEGIES)}) instead of the model's own.",
            show_default=False,
        ),
    ] = None,
    beam: Beam = 1,
    length_penalty: LengthPenalty = 0.6,
    batch_size: BatchSize = 32,
    repeats: Annotated[int, typer.Option(min=1, help="Timed passes over all depths; the median counts.")] = 3,
    samples: Annotated[int, typer.Option(min=1, help="Samples of the paired bootstrap between models.")] = 1000,
    cut_long: CutLong = False,
    record: Annotated[
        bool, typer.Option(help="Put the figures into the depth menu and the card of each model.")
    ] = True,
    from_language: From = None,
    to_language: To = None,
    engine: Engine = "auto",
    quantize: Quantize = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Measure every depth: quality, time, size. Leaves a report, and the figures in the model's depth menu."""
    from anydepth.data.corpus import read_lines
    from anydepth.evaluate.experiment import RunOptions
    from anydepth.evaluate.render import to_terminal, write_report
    from anydepth.evaluate.sweep import remember
    from anydepth.evaluate.sweep import sweep as run_sweep
    from anydepth.evaluate.sweep_report import sweep_report

    sources, references = list(read_lines(source)), list(read_lines(reference))
    make_report_folder(out, "sweep.json", "a report")  # before hours of work, not after
    on = {"engine": engine, "quantize": quantize, "together": batch_size}
    translators = load_families(models, device, threads, from_language, to_language, **on)
    options = RunOptions(beam, length_penalty, batch_size, cut_long, source.name, reference.name)
    result = run_sweep(
        translators, sources, references, options, depths=_names(depths), force=force, repeats=repeats, samples=samples
    )
    report = sweep_report(result)
    to_terminal(report, results())
    for label, members in translators.items() if record else ():
        for member in members:
            if remember(member, result, label):
                errors.print(f"recorded in the menu and the card of {member.folder}")
    stale = ("bleu*.png", "time*.png", "difference-*.png")  # of a report with other models
    errors.print(f"report: {write_report(report, out, 'sweep.json', stale=stale)}")


def perplexity(
    model: Model,
    text: Annotated[Path, typer.Option(help="Sentences that it was not trained on, one per line.", show_default=False)],
    depths: Depths = None,
    masked: Annotated[float, typer.Option(min=0.01, max=0.99, help="Share of the subwords to hide.")] = 0.15,
    seed: Annotated[int, typer.Option(min=0, help="Decides which ones.")] = 1,
    cut_long: CutLong = False,
    from_language: From = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Measure every depth of an encoder alone: how well it predicts subwords that are hidden from it."""
    from anydepth.data.corpus import read_lines
    from anydepth.evaluate.perplexity import perplexity_every_depth
    from anydepth.evaluate.render import print_table
    from anydepth.evaluate.report import Column, Table

    texts = list(read_lines(text))
    translator = load_translator(model, device, threads, from_language)
    hidden, found = perplexity_every_depth(
        translator, texts, _names(depths), masked=masked, seed=seed, cut_long=cut_long
    )
    title = f"{text.name}: {len(texts):,} lines, {hidden:,} subwords hidden"
    columns = [Column("depth"), Column("parameters", format=","), Column("perplexity", format=".2f")]
    print_table(Table(columns, [[one.depth, one.parameters, one.perplexity] for one in found], title), results())


def _names(depths: str | None) -> list[str] | None:
    return None if depths is None else [depth.strip() for depth in depths.split(",")]
