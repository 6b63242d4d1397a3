"""Forward outputs of a training step: every encoder with every decoder that it asked for, and the weight of each pair.

A model may be encoder-only: its one decoder is () and runs nothing. Layers that a step leaves out still get a gradient,
zero: processes that run different layers then agree on which gradients to all-reduce, and the optimizer treats a layer
alike whether one process left it out or all did.

Shapes: n encoders, m decoders, e exits, b batch, s source length, t target length, d width, r real target tokens.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anydepth.data import Batch, Tokenizer
from anydepth.depth import SubNetwork
from anydepth.depth.assignment import Layers
from anydepth.model import States, Transformer
from anydepth.model.stack import Gates, Stack


@dataclass(frozen=True)
class StackOutputs:
    """The states of some layers of one stack, and their weight in the loss: one, or one for each copy of the batch.

    If sentences sampled what they run with, `weight_cb` multiplies the weight of each sentence in each copy.
    """

    states: States
    weights: tuple[float, ...]
    weight_cb: Tensor | None = None

    @property
    def depth(self) -> int:
        return len(self.states)


@dataclass(frozen=True)
class ForwardOutputs:
    """A model's outputs for a batch, and the states that they come from.

    `features_erd` are the normed last states of the exits at real target tokens; e = m x n or, if each token samples an
    exit, 1. `weight_er` is the weight of each, summing to 1. `is_full_er` says for each whether all encoder layers, and
    whether all decoder layers, were run.
    """

    real_r: Tensor  # the positions in the batch's targets where there is something to predict
    features_erd: Tensor
    weight_er: Tensor
    is_full_er: tuple[Tensor, Tensor]
    encoders: list[StackOutputs]  # [b, s, d] each
    decoders: list[StackOutputs]  # [b, t, d] each, or [n x b, t, d]: a copy for each encoder
    layers: tuple[Collection[int], Collection[int]]  # all layers of the two stacks that ran


def real_positions(tokens: Tensor) -> Tensor:
    """The positions in the flattened tokens that are not padding."""
    return (tokens.flatten() != Tokenizer.PAD).nonzero()[:, 0]


def forward_all(
    model: Transformer,
    batch: Batch,
    encoders: Sequence[Layers],
    decoders: Sequence[Layers],
    weights_nm: Tensor,
    with_attention: bool = False,
) -> ForwardOutputs:
    """Every encoder with every decoder, each given by its layers.

    An encoder runs once. A decoder takes the exits of all encoders, stacked on the batch. Layers that several choices
    begin with run once.
    """
    n = len(encoders)
    encoded, decoded = model.encode_each(batch.source, encoders, batch.source_padding, with_attention), []
    if model.config.decoder_layers:
        memory = model.memory(torch.cat([states[-1] for states in encoded]))
        padding = None if batch.source_padding is None else batch.source_padding.repeat(n, 1)
        decoded = model.decode_each(batch.target_in.repeat(n, 1), memory, decoders, padding)
    return _outputs(model, batch, (encoders, decoders), (encoded, decoded), weights_nm)


def forward_gated(
    model: Transformer, batch: Batch, gates: tuple[Gates, Gates], with_attention: bool = False
) -> ForwardOutputs:
    """The full model with each layer weighted by its gate."""
    full = model.full
    encoded, decoded = model.encode(batch.source, full, batch.source_padding, with_attention, gates[0]), []
    if model.config.decoder_layers:
        memory = model.memory(encoded[-1])
        decoded = [model.decode(batch.target_in, memory, full, batch.source_padding, gates=gates[1])]
    return _outputs(model, batch, ([full.encoder], [full.decoder]), ([encoded], decoded), torch.ones(1, 1))


def forward_by_word(model: Transformer, batch: Batch, with_attention: bool = False) -> ForwardOutputs:
    """The full model, with as many encoder layers for each token as the batch says."""
    sub = SubNetwork.words(model.config.encoder_layers, model.config.decoder_layers)
    encoded, decoded = model.encode(batch.source, sub, batch.source_padding, with_attention, depths=batch.depths), []
    if model.config.decoder_layers:
        decoded = [model.decode(batch.target_in, model.memory(encoded[-1]), sub, batch.source_padding)]
    ran = tuple(range(len(encoded)))
    return _outputs(model, batch, ([ran], [sub.decoder]), ([encoded], decoded), torch.ones(1, 1))


def _outputs(
    model: Transformer,
    batch: Batch,
    layers: tuple[Sequence[Layers], Sequence[Layers]],
    states: tuple[list[States], list[States]],
    weights_nm: Tensor,
) -> ForwardOutputs:
    (encoders, decoders), (encoded, decoded) = layers, states
    real_r, device, config, n = batch.wanted_rows, batch.source.device, model.config, len(encoders)
    # One call for all exits: each call would keep a gradient of the whole output matrix.
    if decoded:
        rows = torch.cat([real_r + i * batch.target_out.numel() for i in range(n)])
        features_rd = model.features(torch.cat([states[-1].flatten(0, 1)[rows] for states in decoded]))
    else:
        features_rd = torch.cat([model.read_out(states[-1], batch.source_padding, real_r) for states in encoded])
    weight_e = weights_nm.T.flatten().to(device, torch.float32)
    full_n = torch.tensor([len(chosen) == config.encoder_layers for chosen in encoders], device=device)
    full_m = torch.tensor([len(chosen) == config.decoder_layers for chosen in decoders], device=device)
    encoder_weights, decoder_weights = weights_nm.sum(1).tolist(), weights_nm.T.tolist()
    return ForwardOutputs(
        real_r,
        features_rd.view(len(weight_e), len(real_r), -1),
        (weight_e / len(real_r))[:, None].expand(-1, len(real_r)),
        (full_n.repeat(len(decoders))[:, None], full_m.repeat_interleave(n)[:, None]),
        [StackOutputs(one, (weight,)) for one, weight in zip(encoded, encoder_weights, strict=True)],
        [StackOutputs(one, tuple(each)) for one, each in zip(decoded, decoder_weights, strict=bool(decoded))],
        (_union(encoders), _union(decoders)),
    )


def _union(choices: Sequence[Layers]) -> set[int]:
    return {layer for layers in choices for layer in layers}


class _KeepInGraph(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(*parameters)
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return grads[0], *(torch.zeros_like(parameter) for parameter in ctx.saved_tensors)


def keep_in_graph(loss: Tensor, unused: Sequence[Tensor]) -> Tensor:
    """The same loss, in which these parameters take part with gradient zero."""
    if not unused:
        return loss
    kept: Tensor = _KeepInGraph.apply(loss, *unused)  # type: ignore[no-untyped-call]
    return kept


def unused_parameters(model: Transformer, encoder: Collection[int], decoder: Collection[int]) -> list[Tensor]:
    """The model's parameters that these layers do not use."""
    unused: list[Tensor] = [*_unused_in(model.encoder, encoder), *_unused_in(model.decoder, decoder)]
    table = model.target_embedding.weight  # an encoder-only model may not use it
    used = any(table is other.weight for other in (model.source_embedding, model.output))
    return unused if model.config.decoder_layers or used else [*unused, table]


def _unused_in(stack: Stack, layers: Collection[int]) -> list[nn.Parameter]:
    if not stack.layers:  # the decoder of an encoder-only model: its norm is not used either
        return list(stack.parameters())
    if len(set(layers)) == len(stack.layers):
        return []
    used = {id(p) for p in stack.used_parameters(layers)}  # layers may share weights
    return [p for p in stack.parameters() if id(p) not in used]
