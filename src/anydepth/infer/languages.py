"""The choice of one of the language pairs that a model has."""

from collections.abc import Sequence
from dataclasses import replace

from anydepth.artifact.folder import LanguagePair
from anydepth.artifact.model import LoadedModel
from anydepth.errors import UserError


def choose_pair(loaded: LoadedModel, source: str | None = None, target: str | None = None) -> LoadedModel:
    """The same model for one of its language pairs: with the depths of that, under short names, and its tag.

    Where it does not matter which one a text is of, as in a model of one pair, there is nothing to choose.
    """
    found = [pair for pair in loaded.pairs if source in (None, pair.source) and target in (None, pair.target)]
    if not found:
        raise _unknown(loaded, source, target)
    if len(found) > 1 and must_choose(loaded):
        raise ambiguous(found)
    if len(found) > 1 or len(loaded.pairs) == 1:
        return loaded
    (pair,) = found
    return replace(
        loaded,
        menu=loaded.menu.of_pair(pair.name),
        languages=(pair.source, pair.target),
        pairs=(pair,),
        pair=pair.name,
        tag=pair.tag,
    )


def must_choose(loaded: LoadedModel) -> bool:
    """Whether it matters which of its pairs a text is of: with a tag or with layers of its own."""
    return len(loaded.pairs) > 1 and (_have_tags(loaded.pairs) or any(entry.pair for entry in loaded.menu))


def each_pair(loaded: LoadedModel) -> list[LoadedModel]:
    """Of a model that asks for a language pair each; else itself."""
    return [choose_pair(loaded, pair.source, pair.target) for pair in loaded.pairs] if must_choose(loaded) else [loaded]


def ambiguous(pairs: Sequence[LanguagePair]) -> UserError:
    example = pairs[0]
    chosen = f'target_language="{example.target}"' if _have_tags(pairs) else f'source_language="{example.source}"'
    return UserError(f"this model has several language pairs, {_names(pairs)}: choose one, for instance with {chosen}")


def _have_tags(pairs: Sequence[LanguagePair]) -> bool:
    return len({pair.tag for pair in pairs}) > 1


def _unknown(loaded: LoadedModel, source: str | None, target: str | None) -> UserError:
    pairs = loaded.pairs
    if loaded.kind == "encoder" and target is not None:
        return encoder_alone()
    if loaded.kind == "encoder":
        there = ", ".join(pair.source for pair in pairs)
        return UserError(f"this model was not trained on {source!r}; it has: {there}")
    wanted = " ".join(f"{word} {name!r}" for word, name in (("from", source), ("to", target)) if name is not None)
    return UserError(f"this model does not translate {wanted}; it has: {_names(pairs)}")


def encoder_alone() -> UserError:
    return UserError("this model is an encoder alone, for masked words: it does not translate")


def _names(pairs: Sequence[LanguagePair]) -> str:
    return ", ".join(pair.name for pair in pairs)
