"""What a training step ran: every encoder with every decoder that it asked for, and what each pair counts.

A model may be an encoder alone: its one decoder is () and runs nothing.

Shapes: n encoders, m decoders, e exits, b batch, s source length, t target length, d width, r real target tokens.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anydepth.data import Batch, Tokenizer
from anydepth.depth import SubNetwork
from anydepth.model import States, Transformer
from anydepth.model.stack import Gates

Layers = tuple[int, ...]


@dataclass(frozen=True)
class Ran:
    """Some layers of one stack, and what they count, of 1: in all, or for each of several copies of the batch.

    Where sentences drew what they run with, `times_b` says of each how many times that it counts.
    """

    states: States
    weights: tuple[float, ...]
    times_b: Tensor | None = None

    @property
    def depth(self) -> int:
        return len(self.states)


@dataclass(frozen=True)
class Passes:
    """A model's outputs for a batch, and the states that they come from.

    `features_erd` are the exits' normed last states at real target tokens, e = m x n or, where each token draws an
    exit, 1. `weight_er` is what each counts, summing to 1. `whole_er` says of each whether all encoder layers, and
    whether all decoder layers, were run for it.
    """

    real_r: Tensor  # where in what the batch wants there is something to predict
    features_erd: Tensor
    weight_er: Tensor
    whole_er: tuple[Tensor, Tensor]
    encoders: list[Ran]  # [b, s, d] each
    decoders: list[Ran]  # [b, t, d] each, or [n x b, t, d]: a copy for each encoder
    layers: tuple[Collection[int], Collection[int]]  # of the two stacks, all that ran


def real_positions(tokens: Tensor) -> Tensor:
    """Where in the flattened tokens there is no padding, which is left out before the vocabulary is touched."""
    return (tokens.flatten() != Tokenizer.PAD).nonzero()[:, 0]


def run_all(
    model: Transformer,
    batch: Batch,
    encoders: Sequence[Layers],
    decoders: Sequence[Layers],
    weights_nm: Tensor,
    watch: bool = False,
) -> Passes:
    """Every encoder with every decoder, each given by its layers; with `watch`, the encoders' attention too.

    An encoder runs once; a decoder takes the exits of them all, stacked on the batch; layers that several begin with
    alike run once for all of these.
    """
    n = len(encoders)
    encoded, decoded = model.encode_each(batch.source, encoders, batch.source_padding, watch), []
    if model.config.decoder_layers:
        memory = model.memory(torch.cat([states[-1] for states in encoded]))
        padding = None if batch.source_padding is None else batch.source_padding.repeat(n, 1)
        decoded = model.decode_each(batch.target_in.repeat(n, 1), memory, decoders, padding)
    return _passes(model, batch, encoders, decoders, encoded, decoded, weights_nm)


def run_gated(model: Transformer, batch: Batch, gates: tuple[Gates, Gates], watch: bool = False) -> Passes:
    """The whole model, each layer counting as much as its gate says."""
    full = model.full
    encoded, decoded = model.encode(batch.source, full, batch.source_padding, watch, gates[0]), []
    if model.config.decoder_layers:
        memory = model.memory(encoded[-1])
        decoded = [model.decode(batch.target_in, memory, full, batch.source_padding, gates=gates[1])]
    return _passes(model, batch, [full.encoder], [full.decoder], [encoded], decoded, torch.ones(1, 1))


def run_by_word(model: Transformer, batch: Batch, watch: bool = False) -> Passes:
    """The whole model, of whose encoder each token runs as many layers as its batch says."""
    sub = SubNetwork.words(model.config.encoder_layers, model.config.decoder_layers)
    encoded, decoded = model.encode(batch.source, sub, batch.source_padding, watch, depths=batch.depths), []
    if model.config.decoder_layers:
        decoded = [model.decode(batch.target_in, model.memory(encoded[-1]), sub, batch.source_padding)]
    ran = tuple(range(len(encoded)))
    return _passes(model, batch, [ran], [sub.decoder], [encoded], decoded, torch.ones(1, 1))


def _passes(
    model: Transformer,
    batch: Batch,
    encoders: Sequence[Layers],
    decoders: Sequence[Layers],
    encoded: list[States],
    decoded: list[States],
    weights_nm: Tensor,
) -> Passes:
    real_r, device, config, n = batch.wanted_rows, batch.source.device, model.config, len(encoders)
    # One call for all exits: each would keep a gradient of the whole output matrix.
    if decoded:
        rows = torch.cat([real_r + i * batch.target_out.numel() for i in range(n)])
        features_rd = model.features(torch.cat([states[-1].flatten(0, 1)[rows] for states in decoded]))
    else:  # an encoder alone says itself what stands at each position, or what the text is about
        features_rd = torch.cat([model.read_out(states[-1], batch.source_padding, real_r) for states in encoded])
    weight_e = weights_nm.T.flatten().to(device, torch.float32)
    whole_n = torch.tensor([len(layers) == config.encoder_layers for layers in encoders], device=device)
    whole_m = torch.tensor([len(layers) == config.decoder_layers for layers in decoders], device=device)
    return Passes(
        real_r,
        features_rd.view(len(weight_e), len(real_r), -1),
        (weight_e / len(real_r))[:, None].expand(-1, len(real_r)),
        (whole_n.repeat(len(decoders))[:, None], whole_m.repeat_interleave(n)[:, None]),
        [Ran(states, (weight,)) for states, weight in zip(encoded, weights_nm.sum(1).tolist(), strict=True)],
        [Ran(states, tuple(weights)) for states, weights in zip(decoded, weights_nm.T.tolist(), strict=bool(decoded))],
        (_all_of(encoders), _all_of(decoders)),
    )


def _all_of(choices: Sequence[Layers]) -> set[int]:
    return {layer for layers in choices for layer in layers}
