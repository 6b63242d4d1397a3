"""How likely a model finds the references at each of its depths: a forward pass, no search.

Shapes: n sentences, k depths, e encoders, b batch, t target length, v vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anydepth.depth import SubNetwork
from anydepth.errors import UserError
from anydepth.infer.translator import Translator
from anydepth.model import Transformer
from anydepth.text import Batch, Tokenizer

LOGITS = 2**25  # so many at a time, 128 MiB
SENTENCES = 64


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
            translator.tokenizer.encode_many(sources), translator.tokenizer.encode_many(references), strict=True
        )
    ]
    subs = [translator.menu[name].subnetwork for name in depths]
    if any(sub.encoder_weights or sub.decoder_weights for sub in subs):
        raise UserError("depths whose layers have weights cannot be scored together: leave them out")
    found_nk = np.zeros((len(rows), len(subs)), np.float32)
    for chosen in _alike(rows):
        batch = Batch.from_rows([rows[i][0] for i in chosen], [rows[i][1] for i in chosen])
        found_nk[chosen] = _of_batch(translator.model, subs, batch.to(_device(translator.model))).cpu().numpy()
        advance(len(chosen))
    return found_nk


def _alike(rows: Sequence[tuple[list[int], list[int]]]) -> Iterator[list[int]]:
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i][1]), len(rows[i][0])))
    for start in range(0, len(order), SENTENCES):
        yield order[start : start + SENTENCES]


@torch.inference_mode()
def _of_batch(model: Transformer, subs: Sequence[SubNetwork], batch: Batch) -> Tensor:
    """[b, k]. Every encoder runs once, every decoder once over the exits of them all."""
    encoders, decoders = (
        list(dict.fromkeys(layers)) for layers in zip(*((s.encoder, s.decoder) for s in subs), strict=True)
    )
    exits = [states[-1] for states in model.encode_each(batch.source, encoders, batch.source_padding)]
    padding = None if batch.source_padding is None else batch.source_padding.repeat(len(encoders), 1)
    target_in = batch.target_in.repeat(len(encoders), 1)
    decoded = model.decode_each(target_in, model.memory(torch.cat(exits)), decoders, padding)
    target_out = batch.target_out.repeat(len(encoders), 1)
    scored = [_log_probability(model, state, target_out).view(len(encoders), -1) for *_, state in decoded]
    return torch.stack([scored[decoders.index(s.decoder)][encoders.index(s.encoder)] for s in subs], dim=1)


def _log_probability(model: Transformer, state_btd: Tensor, target_bt: Tensor) -> Tensor:
    """Of each row of targets, padding left out; the logits of a few rows at a time."""
    rows = max(1, LOGITS // (target_bt.shape[1] * model.vocabulary))
    parts = []
    for start in range(0, len(target_bt), rows):
        target = target_bt[start : start + rows]
        logits_btv = model.output(model.features(state_btd[start : start + rows]))
        chosen_bt = logits_btv.gather(-1, target[..., None])[..., 0] - logits_btv.logsumexp(-1)
        parts.append(torch.where(target == Tokenizer.PAD, 0.0, chosen_bt).sum(1))
    return torch.cat(parts)


def _device(model: Transformer) -> torch.device:
    return next(model.parameters()).device
