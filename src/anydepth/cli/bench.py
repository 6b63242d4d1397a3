"""`anydepth bench`: times the engines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anydepth.artifact import bundled_model
from anydepth.cli.options import DepthsOption, From, ModelOrBundled, Threads, To, results, split_names, stderr

if TYPE_CHECKING:
    from anydepth.export.bench import BenchRow

COMPARED = 10_000  # texts at most on which the labels of two engines are compared


def bench(
    model: ModelOrBundled = None,
    depths: DepthsOption = None,
    source: Annotated[
        Path | None,
        typer.Option(
            help="Sentences to translate; or texts to classify, best with their labels (label, tab, text).  [default: "
            "the model's sample, or the run's validation text]",
            show_default=False,
        ),
    ] = None,
    sentences: Annotated[int, typer.Option(min=1, help="Maximum number of sentences or texts to time.")] = 64,
    batch_size: Annotated[int, typer.Option(min=2, help="Larger batch size to time, next to batch size 1.")] = 32,
    repeats: Annotated[
        int, typer.Option(min=1, help="Timed repeats; engines take turns in each, and the median is reported.")
    ] = 3,
    from_language: From = None,
    to_language: To = None,
    threads: Threads = None,
) -> None:
    """Time every engine at every depth on this machine: milliseconds per sentence, greedy search.

    For a model that classifies: milliseconds per text, and what int8 costs. Labels are compared on all texts.
    """
    from anydepth.cli.export import classifies
    from anydepth.device import cores
    from anydepth.evaluate.experiment import OtherLoad
    from anydepth.export.bench import bench as run_bench
    from anydepth.export.bench import count_passes, load_engines
    from anydepth.export.sample import find_sample
    from anydepth.infer.translator import Translator
    from anydepth.progress import progress_bar

    given, chosen = model or bundled_model(), split_names(depths)
    if classifies(given):
        _bench_classifier(given, chosen, source, (1, batch_size), sentences, repeats, threads or cores())
        return
    translator = Translator.load(model, engine="torch", device="cpu", threads=threads or cores())
    translator = translator.between(from_language, to_language)
    names = translator.menu.names if chosen is None else [translator.menu[one].name for one in chosen]
    sample = find_sample(translator, given, source, size=sentences)
    ways, missing = load_engines(translator, threads or cores())
    sizes, load = (1, batch_size), OtherLoad()
    with progress_bar("passes", count_passes(ways, names, sizes, repeats)) as advance:
        rows = list(run_bench(ways, names, sample.sources, sizes, repeats, advance))
    _print_table(rows, list(ways))
    print(f"{len(sample.sources):,} sentences, {sample.origin}; {threads or cores()} thread(s)")
    for line in filter(None, (*missing, load.doubt(threads or cores()))):
        stderr.print(line)


def _bench_classifier(
    model: Path,
    depths: list[str] | None,
    source: Path | None,
    sizes: tuple[int, int],
    texts: int,
    repeats: int,
    threads: int,
) -> None:
    from anydepth.evaluate.experiment import OtherLoad
    from anydepth.export.bench import bench as run_bench
    from anydepth.export.bench import count_passes, load_classifier_engines
    from anydepth.export.classifier import compare_labels, find_texts
    from anydepth.infer.classifier import Classifier
    from anydepth.progress import progress_bar

    classifier = Classifier.load(model, engine="torch", device="cpu", threads=threads)
    names = classifier.depths if depths is None else [classifier.check(one) for one in depths]
    sample = find_texts(classifier, model, source, COMPARED)
    ways, missing = load_classifier_engines(classifier, threads)
    timed = sample.sources[:texts]
    load = OtherLoad()
    with progress_bar("passes", count_passes(ways, names, sizes, repeats)) as advance:
        rows = list(run_bench(ways, names, timed, sizes, repeats, advance))
    _print_table(rows, list(ways), "torch")
    print(f"{len(timed):,} texts, {sample.origin}; {threads} thread(s)")
    for name in names if "native" in ways else ():
        one = compare_labels(classifier, ways["native"], name, sample)
        line = f"{name} in int8: {one.same:,} of {one.texts:,} labels as in float32"
        if one.accuracy is not None:
            before, after = one.accuracy
            line += f"; accuracy {before:.2f} in float32, {after:.2f} in int8 ({after - before:+.2f})"
        print(line)
    for line in filter(None, (*missing, load.doubt(threads))):
        stderr.print(line)


def _print_table(rows: "list[BenchRow]", ways: list[str], compared: str = "ctranslate2 int8") -> None:
    from anydepth.evaluate.render import print_table
    from anydepth.evaluate.report import Column, Table

    names = ("batch", *(f"{way}, ms" for way in ways), f"native against {compared.split()[0]}")
    lines = []
    for row in rows:
        times = [f"{row.milliseconds[way]:.2f}" if way in row.milliseconds else "-" for way in ways]
        best = row.milliseconds.get("native")
        peer = row.milliseconds.get(compared)
        ratio = "-" if best is None or peer is None else f"{peer / best:.2f}x"
        lines.append([row.depth, str(row.batch_size), *times, ratio])
    print_table(Table([Column("depth", align="left"), *map(Column, names)], lines), results())
