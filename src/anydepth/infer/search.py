"""Search over token ids. Knows a model and a sub-network; no text, no menu."""

import torch

from anydepth.depth import SubNetwork
from anydepth.infer.beam import beam_search
from anydepth.infer.decoding import Candidate, SearchOptions
from anydepth.infer.greedy import greedy
from anydepth.model import Transformer


def search(
    model: Transformer, sub: SubNetwork, sources: list[list[int]], limits: list[int], options: SearchOptions
) -> list[list[Candidate]]:
    """The best candidates of every source (token ids that end in EOS), each at most its limit long with EOS."""
    run = greedy if options.beam == 1 else beam_search
    with torch.inference_mode():
        return run(model, sub, sources, limits, options)
