"""How often a model that classifies is right."""

from collections.abc import Iterable

import torch

from anydepth.data import Batch
from anydepth.depth import SubNetwork
from anydepth.model import Transformer


@torch.no_grad()
def accuracy_of(model: Transformer, sub: SubNetwork, batches: Iterable[Batch]) -> float:
    """The share of texts with the right label."""
    right, texts = 0, 0
    for batch in batches:
        state_bsd = model.encode(batch.source, sub, batch.source_padding, depths=batch.depths)[-1]
        found_b = model.output(model.read_out(state_bsd, batch.source_padding)).argmax(-1)
        right += int((found_b == batch.wanted).sum())
        texts += len(batch)
    return right / texts
