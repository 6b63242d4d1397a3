"""The language pairs of a model, and the choice of one."""

from collections.abc import Sequence
from dataclasses import dataclass

from anydepth.depth import DepthMenu
from anydepth.errors import UserError


@dataclass(frozen=True)
class LanguagePair:
    """The tag is a symbol before every source, by which a model of several target languages knows the one wanted."""

    source: str
    target: str
    tag: str | None = None

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"


def differ(pairs: Sequence[LanguagePair], menu: DepthMenu) -> bool:
    """Whether it matters which of the pairs a text is of: with a tag or with layers of its own."""
    return len(pairs) > 1 and (_have_tags(pairs) or any(entry.pair for entry in menu))


def _have_tags(pairs: Sequence[LanguagePair]) -> bool:
    return len({pair.tag for pair in pairs}) > 1


def matching(
    pairs: Sequence[LanguagePair], source: str | None, target: str | None, translates: bool = True
) -> list[LanguagePair]:
    """Those from `source` to `target`, where None is any."""
    found = [pair for pair in pairs if source in (None, pair.source) and target in (None, pair.target)]
    if not found and not translates:
        raise encoder_alone() if target is not None else _unread(pairs, source)
    if not found:
        wanted = " ".join(f"{word} {name!r}" for word, name in (("from", source), ("to", target)) if name is not None)
        raise UserError(f"this model does not translate {wanted}; it has: {_names(pairs)}")
    return found


def ambiguous(pairs: Sequence[LanguagePair]) -> UserError:
    example = pairs[0]
    option, argument = ("--to", "target") if _have_tags(pairs) else ("--from", "source")
    language = getattr(example, argument)
    return UserError(
        f"this model has several language pairs, {_names(pairs)}: choose one, for instance with {option} {language} "
        f'(in Python, between({argument}="{language}"))'
    )


def encoder_alone() -> UserError:
    return UserError("this model is an encoder alone, for masked words: it does not translate")


def _unread(pairs: Sequence[LanguagePair], source: str | None) -> UserError:
    return UserError(f"this model was not trained on {source!r}; it has: {', '.join(pair.source for pair in pairs)}")


def _names(pairs: Sequence[LanguagePair]) -> str:
    return ", ".join(pair.name for pair in pairs)
