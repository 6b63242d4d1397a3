"""What an engine is: it runs sub-networks on token ids, and knows no text.

torch.py runs everything, native.py what translates or classifies, ctranslate2.py and onnx.py what translates. auto.py
chooses one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from anydepth.config import ModelConfig
from anydepth.depth import SubNetwork
from anydepth.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from anydepth.word_depths.table import TokenDepths

MOST_FFN = 131_072  # with more inputs, the native engine's sums of products would not fit in 32 bits


class SearchBatch(NamedTuple):
    """Sources, token ids that end in EOS, and how long the output of each may be, with EOS."""

    sources: list[list[int]]
    limits: list[int]


TEXT_EXITS = ("confidence", "patience")
TOKEN_EXITS = ("margin", "confidence", "patience")  # numbered from 1 as in csrc/anydepth.h
_EXIT_VALUES: dict[str, tuple[Callable[[float], bool], str]] = {
    "margin": (lambda x: x >= 0, "margin:2 (a difference of logits, at least 0)"),
    "confidence": (lambda x: 0 < x < 1, "confidence:0.9 (a probability between 0 and 1)"),
    "patience": (lambda x: x >= 2 and x == x // 1, "patience:2 (a number of exits, at least 2)"),
}


@dataclass(frozen=True)
class ExitRule:
    """When a whole text leaves the encoder early, or a token the decoder: at the first exit where the most probable
    class or token has this probability (`confidence`), where its logit is so far above the second (`margin`), or where
    so many exits in a row have found the same (`patience`).

    `exits` are the layers after which it may; after the last one of a sub-network everything leaves.
    """

    kind: str
    value: float
    exits: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str, kinds: tuple[str, ...] = TEXT_EXITS) -> "ExitRule":
        """From margin:2, confidence:0.9 or patience:2."""
        kind, _, number = text.strip().partition(":") if isinstance(text, str) else ("", "", "")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if kind in kinds and _EXIT_VALUES[kind][0](value):
            return cls(kind, value)
        *others, last = (_EXIT_VALUES[known][1] for known in kinds)
        raise UserError(f"{text!r} is not an early-exit rule: write {', '.join(others)} or {last}")


@dataclass(frozen=True)
class SearchOptions:
    beam: int = 1
    nbest: int = 1
    length_penalty: float = 0.6
    min_length: int = 1  # tokens before EOS: no output is empty, as in other decoders
    scores: bool = True  # greedy search can do without, and is faster
    exit_rule: ExitRule | None = None  # where tokens leave the decoder
    first: int | None = None  # what every output begins with, besides BOS; it is no part of a candidate


@dataclass(frozen=True)
class Candidate:
    """An output without BOS and EOS, and its log-probability (EOS included) over the length penalty.

    The score is not a number if it was not asked for. What ran into its limit before EOS came has not ended. `layers`
    is the mean number of decoder layers of its tokens (EOS included), where an engine says so.
    """

    tokens: tuple[int, ...]
    score: float
    ended: bool = True
    layers: float | None = None


SearchResult = list[list[Candidate]]  # of each source


def length_penalty(length: int, alpha: float) -> float:
    """GNMT's: ((5 + length) / 6) ^ alpha, the length counting EOS."""
    return float(((5 + length) / 6) ** alpha)


class AnyEngine(Protocol):
    """What engines of all kinds say of themselves."""

    @property
    def name(self) -> str:
        """As users write it; times measured with one say nothing of another."""

    @property
    def compute_type(self) -> str:
        """Such as float32 or int8."""

    @property
    def threads(self) -> int:
        """Cores that it uses at once."""


class Engine(AnyEngine, Protocol):
    """Runs a model that translates."""

    @property
    def why_no_exits(self) -> str | None:
        """Why it does not take an exit rule for tokens, or None."""

    @property
    def search_shortlist(self) -> bool:
        """Whether it searches among the outputs of a lexical shortlist."""

    def prepare(self, subs: Iterable[SubNetwork]) -> None:
        """Get ready to run these, or refuse those that it cannot run."""

    def search(
        self,
        subs: Sequence[SubNetwork],
        batches: Iterable[SearchBatch],
        options: SearchOptions,
        token_depths: "TokenDepths | None" = None,
    ) -> Iterator[list[SearchResult]]:
        """For each batch, in order, what each of the sub-networks finds."""


class Classified(NamedTuple):
    """The probability of each class, and how many layers each token of the source ran."""

    probabilities: list[float]
    depths: "NDArray[np.int64]"


@dataclass(frozen=True)
class ClassifierDepths:
    """How deep the tokens of a text go where a sub-network leaves that open: each word by a table, or by the model's
    halting unit, whose decisions are multiplied by `halting_scale`; or whole texts by an exit rule."""

    table: "TokenDepths | None" = None
    halting_scale: float = 1.0
    exit_rule: ExitRule | None = None


class ClassifierEngine(AnyEngine, Protocol):
    """Runs a model that classifies."""

    def prepare(self, subs: Iterable[SubNetwork]) -> None:
        """As of an `Engine`."""

    def classify(self, sub: SubNetwork, sources: list[list[int]], depths: ClassifierDepths) -> list[Classified]:
        """What each source of a batch is."""


def check_exportable(config: ModelConfig, sub: SubNetwork, to: str, *, classifies: bool = False) -> None:
    """Refuse, with the reason, what CTranslate2 and ONNX have no place for."""
    if config.decoder_layers == 0 and not classifies:
        raise UserError(f'{to} takes models that translate; this one is encoder-only: use engine="torch"')
    if sub.by_word:
        raise UserError(
            f"at depth {sub.name} each word has its own depth, which {to} cannot run: take another depth, or torch"
        )
    if config.residual == "dlcl":
        raise UserError(f"each layer of this model reads all those before it (dlcl), which {to} cannot run: use torch")
    if config.norm == "none":
        raise UserError(f"the layers of this model have no norms, which {to} cannot do without: use torch")


def check_native(config: ModelConfig, sub: SubNetwork | None = None, *, classifies: bool = False) -> None:
    """Refuse, with the reason, what only torch can run."""
    if config.decoder_layers == 0 and not classifies:
        raise UserError(
            "the native engine is for models that translate or classify; this one predicts masked subwords: use torch"
        )
    if config.halting and not classifies:
        raise UserError('words of this model halt by a unit that the native engine does not have: use engine="torch"')
    if config.target_positions:
        raise UserError(
            "source and target of this model have positions of their own (target_positions), as in mBART, which the "
            'native engine cannot run: use engine="torch"'
        )
    if config.ffn > MOST_FFN:
        raise UserError(f'the native engine takes feed-forward blocks of up to {MOST_FFN:,}: use engine="torch"')
    if sub is not None and sub.by_word and config.residual == "dlcl":
        raise UserError('the native engine cannot run words at their own depths with dlcl: use engine="torch"')
