"""`anydepth shortlist`: build a lexical shortlist from a parallel corpus, to speed up the output layer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.options import From, ModelArgument, To, stderr
from anydepth.errors import UserError


def shortlist(
    model: ModelArgument,
    source: Annotated[Path, typer.Option(help="Source side of the training corpus.", show_default=False)],
    target: Annotated[Path, typer.Option(help="Target side, line by line.", show_default=False)],
    threshold: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Minimum expected alignments of a target subword per sentence with the source subword.",
        ),
    ] = 0.001,
    per_token: Annotated[
        int, typer.Option(min=1, max=10_000, help="Maximum target subwords per source subword.")
    ] = 500,
    always: Annotated[int, typer.Option(min=0, help="Most frequent target subwords, part of every shortlist.")] = 400,
    from_language: From = None,
    to_language: To = None,
) -> None:
    """Build a lexical shortlist from a parallel corpus, to speed up the output layer.

    It is computed from a word alignment of at most 250 million subword pairs and stored in the model folder, where the
    native engine uses it by default (`--no-shortlist`: the whole vocabulary). `export --to ctranslate2` writes it as
    vmap.
    """
    from anydepth.engines.shortlist import build_shortlist
    from anydepth.infer.translator import Translator

    translator = Translator.load(model, engine="torch", device="cpu").between(from_language, to_language)
    if translator.folder is None or translator.pair is not None:
        raise UserError("a shortlist is for a model of one language pair: this one has several")
    with stderr.status("aligning words"):
        made, covered = build_shortlist(translator.loaded, _pairs(source, target), per_token, always, threshold)
        path = made.save(translator.folder)
    if covered.pairs:
        print(
            f"on {covered.pairs:,} held-out pairs the shortlist covers {covered.covered:.2%} of the target subwords "
            f"with {covered.mean_size:,.0f} of {translator.tokenizer.vocabulary_size:,} on average"
        )
    stderr.print(f"stored in {path}; `anydepth translate {model}` uses it, unless --no-shortlist is given")


def _pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    from anydepth.data.corpus import read_lines

    try:
        yield from zip(read_lines(source), read_lines(target), strict=True)
    except ValueError as error:
        raise UserError(f"{source} and {target} have different numbers of lines: they must match") from error
