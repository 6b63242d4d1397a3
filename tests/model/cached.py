"""What every decoder has to do: give the same logits with a cache as without."""

import torch

from anydepth.data import Batch
from anydepth.depth import SubNetwork
from anydepth.model import DecoderCache, Transformer


@torch.no_grad()
def assert_cached_equals_uncached(model: Transformer, batch: Batch, sub: SubNetwork) -> None:
    whole = model(batch.source, batch.target_in, sub, batch.source_padding)
    memory = model.memory(model.encode(batch.source, sub, batch.source_padding)[-1])
    cache = DecoderCache(len(sub.decoder), limit=10)
    for t in range(batch.target_in.shape[1]):
        states = model.decode(batch.target_in[:, t : t + 1], memory, sub, batch.source_padding, cache)
        step = model.output(model.features(states[-1][:, 0]))
        torch.testing.assert_close(step, whole[:, t], atol=1e-5, rtol=1e-5)
