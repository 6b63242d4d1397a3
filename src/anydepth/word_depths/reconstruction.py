"""Word depths by reconstruction: how well each layer predicts a masked word from its context (Liu et al. 2021, Eq. 4).

Trains a masked language model that predicts from every layer through one head ("anytime prediction"), masks each word
of a sample of texts in turn, and averages the losses over the occurrences of each word.

Shapes: w words of a text, n layers, r masked subwords, b masked texts, s length, v vocabulary.
"""

import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anydepth.artifact import model as artifact
from anydepth.config import Recipe
from anydepth.data import Tokenizer, alike, mask_and_vocabulary, stacked
from anydepth.data.corpus import normalise
from anydepth.data.tokenizer import MASK
from anydepth.data.words import UNKNOWN, words_of_pieces
from anydepth.depth import SubNetwork
from anydepth.errors import UserError
from anydepth.files import write_atomically
from anydepth.model import Transformer
from anydepth.model.hf import is_pretrained
from anydepth.progress import progress_bar
from anydepth.training.run import train
from anydepth.word_depths.table import WordDepths, mean_values, text_key

log = logging.getLogger(__name__)

Losses = NDArray[np.float32] | NDArray[np.float64]
LAMBDAS = (0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)  # a table has a figure for each, and for its own
TEXTS, TOKENS = 256, 8192  # at a time: texts that are sorted by length, and subwords that run together
MASKED_TOKENS = 2_000_000  # of all masked texts that are held in memory
TEXT = "text.txt"
SEED = 1
FEWEST = 20  # texts
VALIDATIONS = 10  # in the training of the masked language model
STILL_FALLING = 0.02  # of the loss, in the last two tenths of the training: then it has not converged


@dataclass(frozen=True)
class ReconstructionConfig:
    """How to make the table."""

    encoder: Path | None  # to start from, or one that predicts masked words already; None: from scratch
    layers: int | None
    steps: int
    learning_rate: float
    batch_tokens: int
    sample: int  # texts that the table is averaged over
    lambda_: float
    max_tokens: int
    threads: int | None = None
    device: str = "auto"
    vocabulary: int | None = None  # of an encoder from scratch; None: as a recipe has it


# what a caller calls these keys of the recipe
NAMES = {"data.vocabulary": "vocabulary=…", "data.max_tokens": "max_tokens=…"}


def reconstruction_depths(
    settings: ReconstructionConfig, texts: Sequence[str], given: Sequence[str], work: Path
) -> tuple[WordDepths, Counter[str]]:
    """The table, and how often its words occurred. Of the `given` texts, each occurrence gets a depth of its own."""
    there = _load_filler(settings)
    filler = there or _train_filler(settings, texts, work)
    model, averager = filler.model, Averager(filler.model.config.encoder_layers, settings.lambda_)
    chosen = random.Random(SEED).sample(list(texts), min(settings.sample, len(texts)))
    with progress_bar("texts reconstructed", len(chosen)) as advance:
        for one in reconstruct(model, filler.tokenizer, _read(filler, chosen, settings.max_tokens), advance):
            averager.add(one)
    if not averager.counts:
        raise UserError("there are no words in these texts: give others")
    with progress_bar("given texts reconstructed", len(given)) as advance:
        found = reconstruct(model, filler.tokenizer, _read(filler, given, settings.max_tokens), advance)
        of_texts = occurrence_depths(found, settings.lambda_)
    facts: dict[str, object] = {
        "texts": len(texts),
        "sampled": len(chosen),
        "steps": 0 if there else settings.steps,
        "max_tokens": settings.max_tokens,
        "encoder": None if settings.encoder is None else settings.encoder.name,
    }
    if there is None:
        facts["converged"] = _has_converged(work, settings.steps)
    return averager.table(of_texts, facts), averager.counts


def _read(filler: artifact.LoadedModel, texts: Sequence[str], limit: int) -> list[list[int]]:
    """As a classifier with this limit reads them, so that it finds their depths again."""
    longest = min(limit - len(filler.tokenizer.opening), filler.longest_source)
    return [filler.as_read(ids[:longest]) for ids in filler.tokenizer.encode_many(texts) if ids]


def _load_filler(settings: ReconstructionConfig) -> artifact.LoadedModel | None:
    """The given encoder, if it can fill in from every layer."""
    if settings.encoder is None or is_pretrained(settings.encoder):
        return None
    there = artifact.load_model(settings.encoder, settings.device)
    if there.kind == "classifier":
        return None
    if there.kind == "translator":
        raise UserError(f"{settings.encoder} translates: give an encoder-only model, or none to train from scratch")
    exits = {SubNetwork.prefix(depth, 0) for depth in range(1, there.model.config.encoder_layers + 1)}
    if there.tokenizer.symbol_id(MASK) is None or not exits <= {entry.subnetwork for entry in there.menu}:
        return None
    log.info(f"{settings.encoder} predicts masked words from every layer: it is used as it is")
    return there


def _train_filler(settings: ReconstructionConfig, texts: Sequence[str], work: Path) -> artifact.LoadedModel:
    """A model that learns to fill in from every layer."""
    try:
        return artifact.load_model(train(_recipe(settings, texts, work), work), settings.device)
    except UserError as error:
        said = str(error)
        for key, name in NAMES.items():
            said = said.replace(key, name)
        raise UserError(said) from error


def _has_converged(work: Path, steps: int) -> bool:
    """Whether the loss on held-out text, the mean over all layers, had all but stopped falling. Says so if not."""
    records = [json.loads(line) for line in (work / "log.jsonl").read_text("utf-8").splitlines()]
    losses = [fmean(record["nll"].values()) for record in records if record["kind"] == "valid"]
    before, last = losses[max(0, len(losses) - 3)], losses[-1]
    if len(losses) >= VALIDATIONS and before - last <= STILL_FALLING * before:
        return True
    fell = f"from {before:.2f} to {last:.2f} nats at the end" if len(losses) > 1 else "in too few updates to tell"
    log.warning(
        "warning: the masked language model has not converged: its loss fell %s; train it longer than %s updates",
        fell,
        f"{steps:,}",
    )
    return False


def _parts(text: str, max_tokens: int) -> Iterator[str]:
    """A long text in parts that are short enough, for which half as many words as subwords are allowed."""
    words, size = text.split(), max(1, max_tokens // 2)
    for start in range(0, len(words), size):
        yield " ".join(words[start : start + size])


def _recipe(settings: ReconstructionConfig, texts: Sequence[str], work: Path) -> Recipe:
    lines = [part for text in texts for part in _parts(normalise(text), settings.max_tokens)]
    if len(lines) < FEWEST:
        raise UserError(f"{len(lines)} texts are too few to learn from: give at least {FEWEST}")
    held_out = max(1, min(500, len(lines) // 20))
    text = work.with_name(f"{work.name}.{TEXT}")
    text.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(line + "\n" for line in lines)
    if (work / "recipe.json").exists() and text.exists() and text.read_text("utf-8") != content:
        raise UserError(f"{work} was started with other texts: give the same to resume, or another folder with work=…")
    write_atomically(text, content)
    model: dict[str, Any] = {} if settings.encoder is not None else {"encoder_layers": settings.layers or 6}
    data: dict[str, Any] = {
        "train": {"text": text},
        "hold_out": held_out,
        "max_tokens": settings.max_tokens,
        "max_ratio": 1e9,
        **({} if settings.vocabulary is None else {"vocabulary": settings.vocabulary}),
    }
    return Recipe.model_validate(
        {
            "init_from": settings.encoder,
            "data": data,
            "model": {"decoder_layers": 0, "head": "transform", **model},
            "objective": {"name": "tied-multi", "mode": "exact"},
            "train": {
                "steps": settings.steps,
                "batch_tokens": settings.batch_tokens,
                "learning_rate": settings.learning_rate,
                "warmup": max(1, settings.steps // 10),
                "schedule": "linear",
                "label_smoothing": 0.0,
                "clip": 5.0,
                "average": 1,
                "log_every": max(1, settings.steps // 20),
                "valid_every": max(1, settings.steps // VALIDATIONS),
                "checkpoint_every": max(1, settings.steps // 4),
                "threads": settings.threads,
                "device": settings.device,
            },
        }
    )


@dataclass(frozen=True)
class Occurrences:
    """The words of a text, and the loss of each after each layer, [w, n].

    That is no number for a word none of whose subwords is its own, such as the second full stop of `...` in one.
    """

    words: list[str]
    losses_wn: Losses

    def depths(self, lambda_: float) -> NDArray[np.int64]:
        """The layer with the least loss, where each layer costs lambda.

        The paper has minus lambda n; then a larger lambda would make words deeper, not shallower as it reports. A word
        of which nothing is known goes deepest.
        """
        layers = self.losses_wn.shape[1]
        found: NDArray[np.int64] = (self.losses_wn + lambda_ * np.arange(1, layers + 1)).argmin(axis=1) + 1
        return np.where(self.known_w, found, layers)

    @property
    def known_w(self) -> NDArray[np.bool_]:
        known: NDArray[np.bool_] = np.atleast_1d(np.isfinite(self.losses_wn).all(axis=1))
        return known


@dataclass(frozen=True)
class MaskedRow:
    """A text with one of its words masked."""

    text: int
    word: int
    ids: list[int]
    places: list[int]  # of the masked subwords
    wanted: list[int]


def reconstruct(
    model: Transformer,
    tokenizer: Tokenizer,
    sources: Iterable[list[int]],
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[Occurrences]:
    """Mask every word of every text in turn, all its subwords together; texts are as the encoder reads them.

    The loss of a word is the mean over its subwords.
    """
    mask, _ = mask_and_vocabulary(tokenizer)
    for chunk in _chunks(sources):
        words_of = [words_of_pieces(tokenizer.surfaces(ids)) for ids in chunk]
        found = [np.full((len(words), model.config.encoder_layers), np.nan, np.float32) for words, _ in words_of]
        rows = [row for i, ids in enumerate(chunk) for row in _masked(i, ids, words_of[i][1], mask, tokenizer.specials)]
        size = max(1, TOKENS // max((len(row.ids) for row in rows), default=1))
        for chosen in alike([len(row.ids) for row in rows], size):
            batch = [rows[i] for i in chosen]
            for row, losses_n in zip(batch, _losses(model, batch), strict=True):
                found[row.text][row.word] = losses_n
        advance(len(chunk))
        yield from (Occurrences(words, losses) for (words, _), losses in zip(words_of, found, strict=True))


def _chunks(sources: Iterable[list[int]]) -> Iterator[list[list[int]]]:
    """Texts of which there are about as many masked copies as memory has room for."""
    chunk: list[list[int]] = []
    for ids in sources:
        chunk.append(ids)
        if len(chunk) == TEXTS or sum(len(one) ** 2 for one in chunk) > MASKED_TOKENS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _masked(
    text: int, ids: list[int], number_of: list[int], mask: int, specials: Collection[int]
) -> Iterator[MaskedRow]:
    places_of: dict[int, list[int]] = {}
    for place, (token, number) in enumerate(zip(ids, number_of, strict=True)):
        if token not in specials and number >= 0:
            places_of.setdefault(number, []).append(place)
    for word, places in places_of.items():
        hidden = [mask if place in places else token for place, token in enumerate(ids)]
        yield MaskedRow(text, word, hidden, places, [ids[place] for place in places])


@torch.inference_mode()
def _losses(model: Transformer, rows: Sequence[MaskedRow]) -> Losses:
    """[b, n]."""
    device = next(model.parameters()).device
    source_bs = stacked([row.ids for row in rows]).to(device)
    longest = source_bs.shape[1]
    padding_bs = source_bs == Tokenizer.PAD
    rows_r = torch.tensor([b * longest + place for b, row in enumerate(rows) for place in row.places], device=device)
    wanted_r = torch.tensor([token for row in rows for token in row.wanted], device=device)
    counts_b = torch.tensor([len(row.places) for row in rows])
    states = model.encode(source_bs, model.full, padding_bs if bool(padding_bs.any()) else None)
    losses_bn = np.empty((len(rows), len(states)), np.float32)
    for layer, state in enumerate(states):
        losses_bn[:, layer] = _word_means(_loss(model, state, padding_bs, rows_r, wanted_r), counts_b)
    return losses_bn


def _loss(model: Transformer, state_bsd: Tensor, padding_bs: Tensor, rows_r: Tensor, wanted_r: Tensor) -> Tensor:
    logits_rv = model.output(model.read_out(state_bsd, padding_bs, rows_r)).float()
    found: Tensor = torch.nn.functional.cross_entropy(logits_rv, wanted_r, reduction="none")
    return found.cpu()


def _word_means(loss_r: Tensor, counts_b: Tensor) -> Losses:
    means: Losses = torch.segment_reduce(loss_r, "mean", lengths=counts_b).numpy()
    return means


class Averager:
    """The losses of occurrences, averaged for each word, and the depths that follow: the table that a served model
    looks words up in. (The mean of the occurrences' depths would pull all words to the middle.)"""

    def __init__(self, layers: int, lambda_: float) -> None:
        """`lambda_` is the one that counts unless another is asked for; the table has it beside some more."""
        self.layers, self.lambda_ = layers, lambda_
        self.lambdas = tuple(sorted({*LAMBDAS, lambda_}))
        self.counts: Counter[str] = Counter()
        self._sums: dict[str, NDArray[np.float64]] = {}

    def add(self, one: Occurrences) -> None:
        for word, losses_n in compress(zip(one.words, one.losses_wn, strict=True), one.known_w):
            if word == UNKNOWN.strip():  # stands for any word
                continue
            self.counts[word] += 1
            self._sums[word] = self._sums.get(word, 0.0) + losses_n.astype(np.float64)

    def table(self, texts: dict[str, tuple[int, ...]], facts: dict[str, object]) -> WordDepths:
        words = list(self._sums)
        sums_wn = np.array([self._sums[word] for word in words]).reshape(len(words), self.layers)
        means = Occurrences(words, sums_wn / np.array([[self.counts[word]] for word in words]).reshape(-1, 1))
        depths_wl = np.stack([means.depths(lambda_) for lambda_ in self.lambdas], axis=1).astype(np.float64)
        values = dict(zip(words, map(tuple, depths_wl.tolist()), strict=True))
        rare = mean_values([values[word] for word in words if self.counts[word] == 1])
        return WordDepths("reconstruction", self.layers, values, self.lambdas, self.lambda_, texts, facts, rare)


def occurrence_depths(found: Iterable[Occurrences], lambda_: float) -> dict[str, tuple[int, ...]]:
    """For each text the depths of its words, as the paper has it."""
    return {text_key(one.words): tuple(one.depths(lambda_).tolist()) for one in found}
