"""How likely a model finds given text at each of its depths: a forward pass, no search.

The log-probability of references, and how well an encoder alone predicts hidden subwords; and how
often a model that classifies is right.

Shapes: n sentences, k depths, b batch, t target length, r positions that are not padding, v vocabulary.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anydepth.artifact.model import LoadedModel
from anydepth.data import Batch, Tokenizer, alike, masked_batches
from anydepth.depth import SubNetwork
from anydepth.errors import UserError
from anydepth.infer.text_model import TooLongError
from anydepth.infer.translator import Translator
from anydepth.model import Transformer
from anydepth.progress import progress_bar

LARGEST_EXPONENT = 700
LOGITS = 2**25  # so many at a time, 128 MiB
SENTENCES = 64


@dataclass(frozen=True)
class DepthPerplexity:
    depth: str
    parameters: int
    nll: float  # per hidden subword, in nats

    @property
    def perplexity(self) -> float:
        return to_perplexity(self.nll)


def to_perplexity(nll: float) -> float:
    """Infinite where a float has no room for it, as in a model that has diverged."""
    return math.exp(nll) if nll < LARGEST_EXPONENT else math.inf


def perplexity_every_depth(
    loaded: LoadedModel,
    texts: Sequence[str],
    depths: Sequence[str] | None = None,
    *,
    masked: float = 0.15,
    seed: int = 1,
    cut_long: bool = False,
) -> tuple[int, list[DepthPerplexity]]:
    """How many subwords were hidden, the same ones for every depth, and what each depth made of them."""
    model, menu = loaded.model, loaded.menu
    if model.config.decoder_layers:
        raise UserError("this model translates, and perplexity is for encoder-only models: use `anydepth sweep`")
    names = menu.names if depths is None else [menu[name].name for name in depths]
    batches = list(masked_batches(loaded.tokenizer, _rows(loaded, texts, cut_long), masked, seed))
    batches = [batch.to(model.output.weight.device) for batch in batches]
    found = []
    with progress_bar("depths", len(names)) as advance:
        for name in names:
            sub = menu[name].subnetwork
            parameters = sum(one.numel() for one in model.used_parameters(sub))
            found.append(DepthPerplexity(name, parameters, mean_nll(model, sub, batches)))
            advance(1)
    return sum(batch.target_tokens for batch in batches), found


def _rows(loaded: LoadedModel, texts: Sequence[str], cut_long: bool) -> list[list[int]]:
    limit, rows = loaded.longest_source, []
    for number, ids in enumerate(loaded.tokenizer.encode_many(texts), 1):
        if len(ids) > limit and not cut_long:
            raise TooLongError(number, len(ids), limit)
        rows.append(ids[:limit])
    rows = [row for row in rows if row]
    if not rows:
        raise UserError("there is no text to measure with: every line is empty")
    return rows


def likelihood_every_depth(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    depths: Sequence[str],
    advance: Callable[[int], None] = lambda count: None,
) -> NDArray[np.float32]:
    """Log-probability of each reference at each depth, [n, k]; texts that are too long are cut."""
    limit = translator.longest_source
    rows = [
        ([*source[:limit]], [*target[:limit]])
        for source, target in zip(
            translator.subwords(sources), translator.tokenizer.encode_targets(references), strict=True
        )
    ]
    subs = [translator.menu[name].subnetwork for name in depths]
    if any(sub.is_weighted or sub.by_word for sub in subs):
        raise UserError(
            "depths whose layers have weights, or with a depth for each word, cannot be scored together: leave them out"
        )
    found_nk = np.zeros((len(rows), len(subs)), np.float32)
    for chosen in alike([(len(target), len(source)) for source, target in rows], SENTENCES):
        batch = Batch.from_rows([rows[i][0] for i in chosen], [rows[i][1] for i in chosen])
        found_nk[chosen] = _batch_likelihoods(translator.model, subs, batch.to(_device(translator.model))).cpu().numpy()
        advance(len(chosen))
    return found_nk


@torch.no_grad()
def mean_nll(model: Transformer, sub: SubNetwork, batches: Iterable[Batch]) -> float:
    """Of all that is to be predicted, in nats: the tokens of a translation, those that are hidden from an encoder
    alone, or labels."""
    total, tokens = 0.0, 0
    for batch in batches:
        rows_r, padding = batch.wanted_rows, batch.source_padding
        target_r = batch.wanted[rows_r]
        exit_bsd = model.encode(batch.source, sub, padding, depths=batch.depths)[-1]
        if sub.decoder:
            state_btd = model.decode(batch.target_in, model.memory(exit_bsd), sub, padding)[-1]
            features_rd = model.features(state_btd.flatten(0, 1)[rows_r])
        else:
            features_rd = model.read_out(exit_bsd, padding, rows_r)
        total -= float(_log_probability(model, features_rd, target_r).sum())
        tokens += len(target_r)
    return total / tokens


@torch.inference_mode()
def _batch_likelihoods(model: Transformer, subs: Sequence[SubNetwork], batch: Batch) -> Tensor:
    """[b, k]. Every encoder runs once, every decoder once over the exits of them all."""
    encoders, decoders = (
        list(dict.fromkeys(layers)) for layers in zip(*((s.encoder, s.decoder) for s in subs), strict=True)
    )
    exits = [states[-1] for states in model.encode_each(batch.source, encoders, batch.source_padding)]
    padding = None if batch.source_padding is None else batch.source_padding.repeat(len(encoders), 1)
    target_in = batch.target_in.repeat(len(encoders), 1)
    decoded = model.decode_each(target_in, model.memory(torch.cat(exits)), decoders, padding)
    target_out = batch.target_out.repeat(len(encoders), 1)
    scored = [_row_likelihoods(model, state, target_out).view(len(encoders), -1) for *_, state in decoded]
    return torch.stack([scored[decoders.index(s.decoder)][encoders.index(s.encoder)] for s in subs], dim=1)


def _row_likelihoods(model: Transformer, state_btd: Tensor, target_bt: Tensor) -> Tensor:
    """Log-probability of each row of targets, padding left out."""
    real_bt = target_bt != Tokenizer.PAD
    found_bt = torch.zeros(target_bt.shape, device=target_bt.device)
    found_bt[real_bt] = _log_probability(model, model.features(state_btd[real_bt]), target_bt[real_bt])
    return found_bt.sum(1)


def _log_probability(model: Transformer, features_rd: Tensor, target_r: Tensor) -> Tensor:
    """Of each token, [r]; the logits of some of them at a time."""
    parts, some = [], max(1, LOGITS // model.vocabulary)
    for features, target in zip(torch.split(features_rd, some), torch.split(target_r, some), strict=True):
        logits_rv = model.output(features).float()
        parts.append(logits_rv.gather(-1, target[:, None])[:, 0] - logits_rv.logsumexp(-1))
    return torch.cat(parts)


def _device(model: Transformer) -> torch.device:
    return next(model.parameters()).device


@torch.no_grad()
def mean_accuracy(model: Transformer, sub: SubNetwork, batches: Iterable[Batch]) -> float:
    """The share of texts to which a model that classifies gives the right label."""
    right, texts = 0, 0
    for batch in batches:
        state_bsd = model.encode(batch.source, sub, batch.source_padding, depths=batch.depths)[-1]
        found_b = model.output(model.read_out(state_bsd, batch.source_padding)).argmax(-1)
        right += int((found_b == batch.wanted).sum())
        texts += len(batch)
    return right / texts
