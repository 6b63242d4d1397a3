"""What runs a model: an engine finds translations of token ids. The Translator around it does not know which it is."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import torch

from anydepth.depth import SubNetwork
from anydepth.infer.decoding import SearchOptions
from anydepth.infer.search import Found, search_each
from anydepth.model import Transformer
from anydepth.word_depths.table import TokenDepths


class SearchBatch(NamedTuple):
    """Sources, token ids that end in EOS, and how long the output of each may be, with EOS."""

    sources: list[list[int]]
    limits: list[int]


class Engine(Protocol):
    @property
    def name(self) -> str:
        """As on the command line; times measured with one say nothing of another."""

    @property
    def threads(self) -> int:
        """Cores that it uses at once."""

    def prepare(self, subs: Iterable[SubNetwork]) -> None:
        """Get ready to run these, or refuse those that it cannot run."""

    def search(
        self,
        subs: Sequence[SubNetwork],
        batches: Iterable[SearchBatch],
        options: SearchOptions,
        token_depths: TokenDepths | None = None,
    ) -> Iterator[list[Found]]:
        """For each batch, in order, what each of the sub-networks finds."""


class TorchEngine:
    """PyTorch: runs everything, on every device; batch after batch, each on all threads."""

    name = "torch"

    def __init__(self, model: Transformer) -> None:
        self.model = model

    @property
    def threads(self) -> int:
        return torch.get_num_threads()

    def prepare(self, subs: Iterable[SubNetwork]) -> None:
        pass

    def search(
        self,
        subs: Sequence[SubNetwork],
        batches: Iterable[SearchBatch],
        options: SearchOptions,
        token_depths: TokenDepths | None = None,
    ) -> Iterator[list[Found]]:
        for sources, limits in batches:
            yield search_each(self.model, subs, sources, limits, options, token_depths)
