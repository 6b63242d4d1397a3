"""What a selector learns from: sentences, their translations at every depth, and how good each depth is for them.

The quality is chrF or, in points of the same size, the likelihood of the reference.
"""

import hashlib
import json
import logging
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anydepth.data import Tokenizer, plan_epoch
from anydepth.data.batching import WHOLE, BatchShare, Indices
from anydepth.data.corpus import read_lines
from anydepth.errors import UserError
from anydepth.evaluate.every_depth import TABLE, EveryDepth, join_tables, score_every_depth, what_is_done
from anydepth.evaluate.perplexity import likelihood_every_depth
from anydepth.infer.options import Progress
from anydepth.infer.runner import Runner, local
from anydepth.infer.translator import Translator
from anydepth.progress import progress_bar
from anydepth.selectors.learned import deepest_index, split_level
from anydepth.selectors.network import DepthPredictor, SelectorInputs, SelectorKind

log = logging.getLogger(__name__)

PIECE = 2048  # sentences; of a killed run, no more than one piece is translated again
MOST_CERTAIN = 0.99  # share of a label above which, or below 1 minus which, its offset does not grow further
POINTS_PER_NAT = 40.0  # per subword: differences between depths are then as large as those in chrF


@dataclass(frozen=True)
class ParallelText:
    """Sentences with their translations."""

    sources: tuple[str, ...]
    references: tuple[str, ...]
    name: str
    reference_name: str

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def checksum(self) -> str:
        text = json.dumps([self.sources, self.references], ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_sample(
    translator: Translator,
    source: Path,
    reference: Path,
    sentences: int | None = None,
    seed: int = 1,
) -> ParallelText:
    """Lines that can be translated, at most `sentences` of them, sampled at random; logs how many are left out."""
    pairs = _usable(translator, source, reference)
    if sentences is not None and sentences < len(pairs):
        chosen = sorted(random.Random(seed).sample(range(len(pairs)), sentences))
        pairs = [pairs[i] for i in chosen]
    return ParallelText(tuple(one for one, _ in pairs), tuple(other for _, other in pairs), source.name, reference.name)


def _usable(translator: Translator, source: Path, reference: Path) -> list[tuple[str, str]]:
    sources, references = list(read_lines(source)), list(read_lines(reference))
    if len(sources) != len(references):
        raise UserError(
            f"{source} has {len(sources):,} lines but {reference} has {len(references):,}: "
            "give two files that correspond line by line"
        )
    lengths = [len(ids) for ids in translator.subwords(sources)]
    lines = zip(sources, references, lengths, strict=True)
    pairs = [(s, r) for s, r, length in lines if 0 < length <= translator.longest_source and r.strip()]
    if not pairs:
        raise UserError(f"{source} has no line that can be translated: all are empty or too long for the model")
    if len(pairs) < len(sources):
        log.info(f"{source.name}: {len(sources) - len(pairs):,} lines left out, empty or too long for the model")
    return pairs


Texts = tuple[Sequence[str], Sequence[str]]  # sentences and their references


def translate_sample(
    translator: Translator, sample: ParallelText, folder: Path, *, beam: int, batch_size: int, run: Runner = local
) -> EveryDepth:
    """The sample at every depth: from `folder` if it is there, otherwise made piece by piece, each kept when ready."""
    if (folder / TABLE).is_file():
        log.info(f"translations at every depth: from {folder}")
        return EveryDepth.load(folder)
    pieces = {pieces_folder(folder) / f"{number:05d}": texts for number, texts in enumerate(_cut(sample), 1)}
    left = {path: texts for path, texts in pieces.items() if not (path / TABLE).is_file()}
    if 0 < len(left) < len(pieces):
        log.info(f"resuming after {len(pieces) - len(left)} of {len(pieces)} pieces of {sample.name}")
    work = partial(translate_piece, options={"beam": beam, "batch_size": batch_size})
    depths = len(translator.menu)
    total = depths * sum(len(sources) for sources, _ in left.values())
    with progress_bar(what_is_done(depths, sample.name), total) as advance:
        made = run(work, translator, iter(left.values()), advance)
        for path, table in zip(left, made, strict=True):
            table.save(path)
    whole = join_tables([EveryDepth.load(path) for path in pieces])
    whole.save(folder)
    shutil.rmtree(pieces_folder(folder))
    return whole


def translate_piece(translator: Translator, texts: Texts, progress: Progress, *, options: dict[str, Any]) -> EveryDepth:
    return score_every_depth([translator], *texts, options, progress)


def add_likelihood(translator: Translator, table: EveryDepth, folder: Path, run: Runner = local) -> EveryDepth:
    """How likely each depth is to find the references; kept with the translations."""
    if table.likelihood_nk is not None:
        return table
    work = partial(likelihood_of_piece, depths=table.depths)
    with progress_bar("likelihood of the references", len(table)) as advance:
        found_nk = np.concatenate(list(run(work, translator, _cut(table), advance)))
    table = replace(table, likelihood_nk=found_nk)
    table.save(folder)
    return table


def likelihood_of_piece(
    translator: Translator, texts: Texts, progress: Progress, *, depths: Sequence[str]
) -> NDArray[np.float32]:
    return likelihood_every_depth(translator, *texts, depths, progress)


def _cut(texts: ParallelText | EveryDepth) -> Iterator[Texts]:
    for start in range(0, len(texts), PIECE):
        rows = slice(start, start + PIECE)
        yield texts.sources[rows], texts.references[rows]


def pieces_folder(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-pieces")


@dataclass(frozen=True)
class SelectorData:
    """`sources` are token ids that end in EOS; `deepest` is the index of the deepest depth."""

    sources: Sequence[Sequence[int]]
    quality_nk: NDArray[np.float32]
    deepest: int

    @classmethod
    def from_table(cls, translator: Translator, table: EveryDepth, kind: SelectorKind) -> "SelectorData":
        """The sentences as the model reads them. Empty ones need no depth; long ones are cut, as `cut_long` does."""
        rows = translator.subwords(table.sources)
        kept = [row for row, ids in enumerate(rows) if ids]
        if not kept:
            raise UserError("there are no sentences to learn from: give a source and a reference file with text")
        sources = [[*rows[row][: translator.longest_source], Tokenizer.EOS] for row in kept]
        quality_nk = table.chrf_nk[kept]
        if kind == "likelihood":
            if table.likelihood_nk is None:
                raise UserError(
                    "the table has no likelihood of the references: compute it with `anydepth select` again"
                )
            lengths_n1 = np.array([[len(source)] for source in sources], dtype=np.float32)
            quality_nk = POINTS_PER_NAT * table.likelihood_nk[kept] / lengths_n1
        return cls(sources, np.ascontiguousarray(quality_nk), deepest_index(table.depths))

    @property
    def lengths_n(self) -> NDArray[np.int64]:
        return np.array([len(source) for source in self.sources], dtype=np.int64)

    def weights_n(self, kind: SelectorKind) -> NDArray[np.int64]:
        """What each sentence counts: as in the paper all the same, or by length, as in the quality of a corpus."""
        return np.ones(len(self.sources), dtype=np.int64) if kind == "labels" else self.lengths_n

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.quality_nk).tobytes())
        for source in self.sources:
            digest.update(np.asarray(source, dtype=np.int32).tobytes() + b";")
        return digest.hexdigest()


@dataclass(frozen=True)
class SelectorBatch:
    inputs: SelectorInputs
    quality_bk: Tensor
    weight_b: Tensor
    terms: int  # the sum of the weights

    @property
    def source_terms(self) -> int:
        return self.terms

    def to(self, device: torch.device | str) -> "SelectorBatch":
        """The inputs are where the model that made them is."""
        return SelectorBatch(self.inputs, self.quality_bk.to(device), self.weight_b.to(device), self.terms)


class SelectorStream:
    """The batch at a position (epoch, index), as data.BatchStream has it."""

    together = 1

    def __init__(
        self,
        data: SelectorData,
        kind: SelectorKind,
        read: Callable[[Sequence[Sequence[int]]], SelectorInputs],
        batch_tokens: int,
        seed: int,
    ) -> None:
        self._data, self._read, self._batch_tokens, self._seed = data, read, batch_tokens, seed
        self._lengths_n, self._weights_n = data.lengths_n, data.weights_n(kind)
        self._epoch = -1
        self._plan: list[Indices] = []

    def batches_in(self, epoch: int) -> int:
        return len(self._plan_for(epoch))

    def at(self, epoch: int, index: int, share: BatchShare = WHOLE) -> SelectorBatch:
        rows = share.rows(self._plan_for(epoch)[index])
        with torch.no_grad():
            inputs = self._read([self._data.sources[row] for row in rows])
        weights = self._weights_n[rows]
        quality_bk = torch.from_numpy(self._data.quality_nk[rows])
        return SelectorBatch(inputs, quality_bk, torch.from_numpy(weights).float(), int(weights.sum()))

    def all(self) -> Iterator[SelectorBatch]:
        """Every sentence once."""
        return (self.at(0, index) for index in range(self.batches_in(0)))

    def _plan_for(self, epoch: int) -> list[Indices]:
        if epoch != self._epoch:
            subwords = (self._lengths_n - 1).astype(np.int32)  # without EOS, which the plan adds
            self._plan = plan_epoch(subwords, subwords, self._batch_tokens, self._seed, epoch)
            self._epoch = epoch
        return self._plan


def best_depths(quality_bk: Tensor) -> Tensor:
    """The paper's labels: 1 at every depth that has the sentence's best chrF."""
    return (quality_bk == quality_bk.amax(1, keepdim=True)).to(quality_bk.dtype)


def label_shares(data: SelectorData) -> Tensor:
    """For each depth the share of the sentences that it is a best one for, [k]."""
    return best_depths(torch.from_numpy(data.quality_nk)).mean(0)


def variances(data: SelectorData) -> tuple[Tensor, Tensor]:
    """Means and variances of what `split_level` gives, [k] each, weighted as the loss is."""
    split_nk = split_level(torch.from_numpy(data.quality_nk), data.deepest).double()
    weight_n = torch.from_numpy(data.weights_n("values")).double()
    weight_n = weight_n / weight_n.sum()
    mean_k = weight_n @ split_nk
    return mean_k.float(), (weight_n @ (split_nk - mean_k) ** 2).float()


@torch.no_grad()
def standardise(network: DepthPredictor, data: SelectorData, features_nf: Tensor) -> None:
    """Set the constants of a new network, so that it begins with the mean of the training data."""
    network.figures_scale_f.copy_(1 / features_nf.std(0, correction=0).clamp(min=1e-3))
    network.figures_shift_f.copy_(-features_nf.mean(0) * network.figures_scale_f)
    if network.config.kind == "labels":
        network.offset_k.copy_(torch.logit(label_shares(data), eps=1 - MOST_CERTAIN))
        return
    mean_k, variance_k = variances(data)
    network.offset_k.copy_(mean_k)
    others = torch.arange(len(mean_k)) != data.deepest
    # One scale for all differences: a chrF point is one, whichever depth it is lost at.
    network.scale_k.fill_(_root_mean(variance_k[others]))
    network.scale_k[data.deepest] = _root_mean(variance_k[[data.deepest]])


def _root_mean(variance_k: Tensor) -> float:
    return max(0.1, float(variance_k.mean().sqrt())) if len(variance_k) else 1.0
