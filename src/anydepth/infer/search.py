"""Search over token ids. Knows a model and sub-networks; no text, no menu."""

from collections.abc import Sequence

import torch

from anydepth.depth import SubNetwork
from anydepth.infer.beam import beam_search
from anydepth.infer.decoding import Candidate, Decoding, Encoded, SearchOptions, Steps, encode
from anydepth.infer.greedy import greedy
from anydepth.model import Transformer
from anydepth.word_depths.table import TokenDepths

Found = list[list[Candidate]]


def search(
    model: Transformer, sub: SubNetwork, sources: list[list[int]], limits: list[int], options: SearchOptions
) -> Found:
    """The best candidates of every source (token ids that end in EOS), each at most its limit long with EOS."""
    return search_each(model, [sub], sources, limits, options)[0]


def run(decoding: Steps, limits: list[int], options: SearchOptions) -> Found:
    return (greedy if options.beam == 1 else beam_search)(decoding, limits, options)


def search_each(
    model: Transformer,
    subs: Sequence[SubNetwork],
    sources: list[list[int]],
    limits: list[int],
    options: SearchOptions,
    token_depths: TokenDepths | None = None,
) -> list[Found]:
    """The same for several sub-networks at once, in much less time than one after the other.

    Every encoder runs once, and a decoder searches from the exits of all encoders it goes with, stacked on the batch.
    `token_depths` are for those in which every word has its own depth.
    """
    found: dict[SubNetwork, Found] = {}
    with torch.inference_mode():
        exits = dict(zip(subs, encode(model, subs, sources, token_depths), strict=True))
        for group in _with_the_same_decoder(subs):
            stacked = _stacked([exits[sub] for sub in group])
            decoding = Decoding(model, group[0], stacked, max(limits))
            rows = run(decoding, limits * len(group), options)
            for place, sub in enumerate(group):
                found[sub] = rows[place * len(sources) : (place + 1) * len(sources)]
    return [found[sub] for sub in subs]


def _with_the_same_decoder(subs: Sequence[SubNetwork]) -> list[list[SubNetwork]]:
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
