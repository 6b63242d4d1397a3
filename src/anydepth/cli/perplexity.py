"""`anydepth perplexity`: how well an encoder predicts masked subwords, at every depth."""

from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.options import CutLong, DepthsOption, Device, From, ModelArgument, Threads, results, split_names


def perplexity(
    model: ModelArgument,
    text: Annotated[Path, typer.Option(help="Held-out sentences, one per line.", show_default=False)],
    depths: DepthsOption = None,
    masked: Annotated[float, typer.Option(min=0.01, max=0.99, help="Fraction of subwords to mask.")] = 0.15,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the mask.")] = 1,
    cut_long: CutLong = False,
    from_language: From = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Measure every depth of an encoder-only model: perplexity of masked subwords."""
    from anydepth.artifact.model import load_model
    from anydepth.data.corpus import read_lines
    from anydepth.evaluate.perplexity import perplexity_every_depth
    from anydepth.evaluate.render import print_table
    from anydepth.evaluate.report import Column, Table
    from anydepth.infer.text_model import set_threads

    texts = list(read_lines(text))
    set_threads(threads)
    loaded = load_model(model, device).choose_pair(from_language)
    hidden, found = perplexity_every_depth(
        loaded, texts, split_names(depths), masked=masked, seed=seed, cut_long=cut_long
    )
    title = f"{text.name}: {len(texts):,} lines, {hidden:,} subwords hidden"
    columns = [Column("depth"), Column("parameters", format=","), Column("perplexity", format=".2f")]
    print_table(Table(columns, [[one.depth, one.parameters, one.perplexity] for one in found], title), results())
