"""`anydepth bench`: times the engines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anydepth.artifact import bundled_model
from anydepth.cli.options import From, ModelOrBundled, Threads, To, complete_depths, results, stderr

if TYPE_CHECKING:
    from anydepth.export.bench import BenchRow


def bench(
    model: ModelOrBundled = None,
    depth: Annotated[
        list[str] | None,
        typer.Option(help="Time only this depth; may be repeated.", show_default=False, autocompletion=complete_depths),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            help="Sentences to translate.  [default: the model's sample, or the run's validation text]",
            show_default=False,
        ),
    ] = None,
    sentences: Annotated[int, typer.Option(min=1, help="Maximum number of sentences.")] = 64,
    batch_size: Annotated[int, typer.Option(min=2, help="Larger batch size to time, next to batch size 1.")] = 32,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds; engines take turns in each, and the median is reported.")
    ] = 3,
    from_language: From = None,
    to_language: To = None,
    threads: Threads = None,
) -> None:
    """Time every engine at every depth on this machine: milliseconds per sentence, greedy search."""
    from anydepth.device import cores
    from anydepth.export.bench import bench as carry_out
    from anydepth.export.bench import load_engines
    from anydepth.export.sample import find_sample
    from anydepth.infer.translator import Translator
    from anydepth.progress import progress_bar

    translator = Translator.load(model, engine="torch", device="cpu", threads=threads or cores())
    translator = translator.between(from_language, to_language)
    names = translator.menu.names if depth is None else [translator.menu[one].name for one in depth]
    sample = find_sample(translator, model or bundled_model(), source, size=sentences)
    ways, missing = load_engines(translator, threads or cores())
    sizes = (1, batch_size)
    with progress_bar("translating", len(names) * len(sizes) * rounds) as advance:
        rows = list(carry_out(ways, names, sample.sources, sizes, rounds, lambda: advance(1)))
    _print_table(rows, list(ways))
    print(f"{len(sample.sources):,} sentences, {sample.origin}; {threads or cores()} thread(s)")
    for line in missing:
        stderr.print(line)


def _print_table(rows: "list[BenchRow]", ways: list[str]) -> None:
    from anydepth.evaluate.render import print_table
    from anydepth.evaluate.report import Column, Table

    names = ("batch", *(f"{way}, ms" for way in ways), "native against ctranslate2")
    lines = []
    for row in rows:
        times = [f"{row.milliseconds[way]:.2f}" if way in row.milliseconds else "-" for way in ways]
        best = row.milliseconds.get("native")
        peer = row.milliseconds.get("ctranslate2 int8")
        ratio = "-" if best is None or peer is None else f"{peer / best:.2f}x"
        lines.append([row.depth, str(row.batch_size), *times, ratio])
    print_table(Table([Column("depth", align="left"), *map(Column, names)], lines), results())
