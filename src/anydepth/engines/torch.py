"""The torch engine: runs every model, at every depth, on every device.

Shapes: b sentences, k beam, r = b x k rows, s source length, d width, v vocabulary, c classes.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anydepth.data import Tokenizer, stacked
from anydepth.depth import SubNetwork
from anydepth.engines.base import Classified, ClassifierDepths, ExitRule, SearchBatch, SearchOptions, SearchResult
from anydepth.engines.search import largest, never, run_search
from anydepth.model import DecoderCache, Transformer
from anydepth.model.stack import EncoderDepths as LayersOfTokens
from anydepth.model.stack import TextExits, TokenExits
from anydepth.word_depths.table import TokenDepths


class TorchEngine:
    """Batch after batch, each on all threads. `Engine` and `ClassifierEngine` in one."""

    name, compute_type = "torch", "float32"
    search_shortlist = False
    why_no_exits: str | None = None

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
    ) -> Iterator[list[SearchResult]]:
        for batch in batches:
            yield search_each(self.model, subs, batch, options, token_depths)

    @torch.inference_mode()
    def classify(self, sub: SubNetwork, sources: list[list[int]], depths: ClassifierDepths) -> list[Classified]:
        device, source_bs = next(self.model.parameters()).device, stacked(sources)
        longest = source_bs.shape[1]
        padding_bs = (source_bs == Tokenizer.PAD).to(device) if any(len(row) < longest for row in sources) else None
        layers = self._depths(sub, source_bs, padding_bs, depths)
        states = self.model.encode(source_bs.to(device), sub, padding_bs, depths=layers)
        if isinstance(layers, EarlyExits):
            logits_bc = layers.logits_bc
        else:
            logits_bc = self.model.output(self.model.read_out(states[-1], padding_bs))
        ran = states.depths
        if ran is None:
            ran = np.full((len(sources), longest), len(sub.encoder))
        probabilities = torch.softmax(logits_bc.float(), dim=-1).tolist()
        return [Classified(row, ran[i, : len(sources[i])]) for i, row in enumerate(probabilities)]

    def _depths(
        self, sub: SubNetwork, source_bs: Tensor, padding_bs: Tensor | None, depths: ClassifierDepths
    ) -> LayersOfTokens:
        if depths.exit_rule is not None:
            return EarlyExits(self.model, depths.exit_rule, len(sub.encoder), padding_bs)
        if not sub.by_word:
            return None
        if depths.table is not None:
            return depths.table.tensor(source_bs)

        def halts(first_bsd: Tensor) -> Tensor:
            wanted = torch.ceil(self.model.halts(first_bsd) * depths.halting_scale - 0.5)
            return wanted.clamp(1, len(sub.encoder)).long()

        return halts


class EarlyExits(TextExits):
    """Whole texts leave by a rule. `logits_bc` has those of each text at the exit where it left."""

    def __init__(self, model: Transformer, rule: ExitRule, layers: int, padding_bs: Tensor | None) -> None:
        self.logits_bc = torch.empty(0)
        self._model, self._rule, self._layers, self._padding_bs = model, rule, layers, padding_bs
        self._left_b = np.zeros(0, bool)
        self._class_b = np.zeros(0, np.int64)
        self._alike_b = np.zeros(0, np.int64)  # exits in a row that have found this class

    def leave(self, state_bsd: Tensor, layers: int) -> NDArray[np.bool_]:
        if not len(self._left_b):
            texts = len(state_bsd)
            self.logits_bc = state_bsd.new_zeros((texts, self._model.classes))
            self._left_b, self._alike_b = np.zeros(texts, bool), np.zeros(texts, np.int64)
            self._class_b = np.full(texts, -1)
        if layers in self._rule.exits or layers == self._layers:
            there = np.flatnonzero(~self._left_b)
            self._left_b[there] = self._are_sure(state_bsd, there) | (layers == self._layers)
        return self._left_b

    def _are_sure(self, state_bsd: Tensor, there: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Of those that have not left; their logits are noted."""
        rows = torch.from_numpy(there).to(state_bsd.device)
        padding_bs = None if self._padding_bs is None else self._padding_bs[rows]
        logits_bc = self._model.output(self._model.read_out(state_bsd[rows], padding_bs))
        self.logits_bc[rows] = logits_bc
        surest_b, class_b = (found.cpu().numpy() for found in torch.softmax(logits_bc.float(), dim=-1).max(-1))
        self._alike_b[there] = np.where(class_b == self._class_b[there], self._alike_b[there] + 1, 1)
        self._class_b[there] = class_b
        if self._rule.kind == "confidence":
            return np.asarray(surest_b >= self._rule.value)
        return np.asarray(self._alike_b[there] >= self._rule.value)


class Encoded(NamedTuple):
    """What the decoder reads: encoder exits, and which of their positions are padding."""

    memory_bsd: Tensor
    padding_bs: Tensor | None


def encode(
    model: Transformer, subs: Sequence[SubNetwork], sources: list[list[int]], token_depths: TokenDepths | None = None
) -> list[Encoded]:
    """The exits of several sub-networks' encoders; layers that they begin with alike run once."""
    device = next(model.parameters()).device
    source_bs = stacked(sources).to(device)
    padding_bs = source_bs == Tokenizer.PAD if any(len(row) < source_bs.shape[1] for row in sources) else None
    plain = [sub.encoder_weights is None and not sub.by_word for sub in subs]
    states = iter(model.encode_each(source_bs, [sub.encoder for sub in compress(subs, plain)], padding_bs))
    depths = None if all(plain) or token_depths is None else token_depths.tensor(source_bs)
    exits = [
        (next(states) if is_plain else model.encode(source_bs, sub, padding_bs, depths=depths))[-1]
        for sub, is_plain in zip(subs, plain, strict=True)
    ]
    return [Encoded(model.memory(state_bsd), padding_bs) for state_bsd in exits]


def search(
    model: Transformer, sub: SubNetwork, sources: list[list[int]], limits: list[int], options: SearchOptions
) -> SearchResult:
    """The best candidates of every source (token ids that end in EOS), each at most its limit long with EOS."""
    return search_each(model, [sub], SearchBatch(sources, limits), options)[0]


def search_each(
    model: Transformer,
    subs: Sequence[SubNetwork],
    batch: SearchBatch,
    options: SearchOptions,
    token_depths: TokenDepths | None = None,
) -> list[SearchResult]:
    """The same for several sub-networks at once, in much less time than one after the other.

    Every encoder runs once, and a decoder searches from the exits of all encoders it goes with, stacked on the batch.
    `token_depths` are for those in which every word has its own depth.
    """
    sources, limits = batch
    found: dict[SubNetwork, SearchResult] = {}
    with torch.inference_mode():
        exits = dict(zip(subs, encode(model, subs, sources, token_depths), strict=True))
        for group in _group_by_decoder(subs):
            joined = _stacked([exits[sub] for sub in group])
            longest = max(limits) + (options.first is not None)
            decoding = Decoding(model, group[0], joined, longest, options)
            rows = run_search(decoding, limits * len(group), options)
            for position, sub in enumerate(group):
                found[sub] = rows[position * len(sources) : (position + 1) * len(sources)]
    return [found[sub] for sub in subs]


def _group_by_decoder(subs: Sequence[SubNetwork]) -> list[list[SubNetwork]]:
    groups: dict[object, list[SubNetwork]] = {}
    for sub in dict.fromkeys(subs):
        groups.setdefault((sub.decoder, sub.decoder_weights), []).append(sub)
    return list(groups.values())


def _stacked(exits: Sequence[Encoded]) -> Encoded:
    if len(exits) == 1:
        return exits[0]
    padding_bs = exits[0].padding_bs
    return Encoded(
        torch.cat([one.memory_bsd for one in exits]),
        None if padding_bs is None else padding_bs.repeat(len(exits), 1),
    )


class Decoding:
    """`Steps` of a Transformer."""

    def __init__(
        self, model: Transformer, sub: SubNetwork, encoded: Encoded, limit: int, options: SearchOptions
    ) -> None:
        self.model, self.sub, self.options = model, sub, options
        self.memory, self.padding_bs = encoded
        self.device = self.memory.device
        self.cache = DecoderCache(len(sub.decoder), limit)
        self.ran: list[int] = []

    def step(self, tokens_r: Tensor) -> Tensor:
        exits, layers = None, len(self.sub.decoder)
        if self.options.exit_rule is not None:
            may_end = self.cache.length - (self.options.first is not None) >= self.options.min_length
            exits = _StepExits(self.model, self.options.exit_rule, layers, len(tokens_r), may_end)
        states = self.model.decode(tokens_r[:, None], self.memory, self.sub, self.padding_bs, self.cache, exits=exits)
        if exits is not None:
            self.ran = exits.layers_r.tolist()
            return exits.logits_rv
        self.ran = [layers] * len(tokens_r)
        return _logits(self.model, states[-1][:, -1])

    def keep_rows(self, rows: Tensor) -> None:
        self.cache.keep_rows(rows)

    def keep_sentences(self, sentences: Tensor) -> None:
        if self.padding_bs is not None:
            self.padding_bs = self.padding_bs[sentences]
        self.cache.keep_sentences(sentences)


def _logits(model: Transformer, state_rd: Tensor) -> Tensor:
    """Of the next position, at an exit."""
    return never(model.output(model.features(state_rd)))


class _StepExits(TokenExits):
    """The rows of a step leave by a rule. `logits_rv` has those of each row at the exit where it left, `layers_r` how
    many layers it ran."""

    def __init__(self, model: Transformer, rule: ExitRule, layers: int, rows: int, may_end: bool) -> None:
        self.logits_rv = torch.empty(0)
        self.layers_r = np.full(rows, layers)
        self._model, self._rule, self._layers, self._may_end = model, rule, layers, may_end
        self._going: Tensor | None = None
        self._best_r = np.full(rows, -1)
        self._alike_r = np.zeros(rows, np.int64)  # exits in a row that have found this token

    def going(self, state_rtd: Tensor, layers: int) -> Tensor | None:
        if layers not in self._rule.exits and layers != self._layers:
            return self._going
        rows, state_rd = self._going, state_rtd[:, -1]
        logits_av = _logits(self._model, state_rd if rows is None else state_rd[rows])
        there = np.arange(len(state_rd)) if rows is None else rows.cpu().numpy()
        leaves = np.ones(len(there), bool) if layers == self._layers else self._are_sure(logits_av, there)
        self.layers_r[there[leaves]] = layers
        if rows is None and leaves.all():
            self.logits_rv = logits_av
            return torch.empty(0, dtype=torch.long, device=state_rd.device)
        if not leaves.any():
            return rows
        if not len(self.logits_rv):
            self.logits_rv = logits_av.new_empty(len(state_rd), logits_av.shape[1])
        left = torch.from_numpy(np.flatnonzero(leaves)).to(state_rd.device)
        self.logits_rv[torch.from_numpy(there[leaves]).to(state_rd.device)] = logits_av[left]
        self._going = torch.from_numpy(there[~leaves]).to(state_rd.device)
        return self._going

    def _are_sure(self, logits_av: Tensor, there: NDArray[np.int64]) -> NDArray[np.bool_]:
        total_a = logits_av.logsumexp(dim=-1)
        if not self._may_end:
            logits_av = logits_av.clone()
            logits_av[:, Tokenizer.EOS] = float("-inf")
        best_a2, token_a2 = largest(logits_av, 2)
        if self._rule.kind == "margin":
            # As in csrc/output_layer.cpp: no other logit is above the best one's less the margin.
            return np.asarray((best_a2[:, 1] <= best_a2[:, 0] - self._rule.value).cpu().numpy())
        if self._rule.kind == "confidence":
            return np.asarray((best_a2[:, 0] - total_a >= math.log(self._rule.value)).cpu().numpy())
        token_a = token_a2[:, 0].cpu().numpy()
        self._alike_r[there] = np.where(token_a == self._best_r[there], self._alike_r[there] + 1, 1)
        self._best_r[there] = token_a
        return np.asarray(self._alike_r[there] >= self._rule.value)
