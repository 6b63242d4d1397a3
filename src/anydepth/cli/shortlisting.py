"""The verb that learns which outputs a source suggests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.app import From, Model, To, errors, load_model
from anydepth.errors import UserError


def shortlist(
    model: Model,
    source: Annotated[Path, typer.Option(help="Source sentences of the training corpus.", show_default=False)],
    target: Annotated[Path, typer.Option(help="Their translations, line by line.", show_default=False)],
    per_token: Annotated[int, typer.Option(min=1, max=10_000, help="Outputs for each subword of a source.")] = 50,
    always: Annotated[int, typer.Option(min=0, help="Frequent outputs that are always possible.")] = 200,
    from_language: From = None,
    to_language: To = None,
) -> None:
    """Build a lexical shortlist from a parallel corpus, to speed up the output layer.

    By a word alignment of the corpus, of which at most 20 million pairs of subwords are looked at. It is stored in the
    model folder; drafts of `--speculate` are taken from it, too, and `export --to ctranslate2` takes it along as vmap.
    """
    from anydepth.engines.shortlist import build_shortlist

    translator = load_model(model, "cpu", None).between(from_language, to_language)
    translator.hypotheses([])  # refuses what cannot translate
    if translator.folder is None or translator.pair is not None:
        raise UserError("a shortlist is for a model of one language pair: this one has several")
    with errors.status("aligning words"):
        made, covered = build_shortlist(translator.loaded, _pairs(source, target), per_token, always)
        path = made.save(translator.folder)
    if covered.pairs:
        print(
            f"of {covered.pairs:,} pairs that were held out, {covered.covered:.2%} of the output is on their lists, "
            f"which have {covered.mean_size:,.0f} of {translator.tokenizer.vocabulary_size:,} subwords on average"
        )
    errors.print(f"stored in {path}; try `anydepth translate {model} --shortlist`")


def _pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    from anydepth.data.corpus import read_lines

    try:
        yield from zip(read_lines(source), read_lines(target), strict=True)
    except ValueError as error:
        raise UserError(f"{source} and {target} have different numbers of lines: they must match") from error
