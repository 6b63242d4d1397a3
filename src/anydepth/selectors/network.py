"""The network behind the learnt selector: reads a sentence, gives a number for each depth.

Shapes: b batch, s source length, d width, k depths, f figures.
"""

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anydepth.config import ModelConfig
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.model.layers import EncoderLayer
from anydepth.model.stack import Stack
from anydepth.model.transformer import sinusoids
from anydepth.selectors.config import SelectorConfig
from anydepth.selectors.reading import FIGURES, Inputs


class DepthPredictor(nn.Module):
    """With layers: self-attention with an extra token before the sentence, which a linear layer reads.

    Without: mean and maximum over the sentence, read by a layer of hidden units. Without those either: the mean alone,
    wherever in the sentence a sub-word stands (word_depths/scores.py). What its outputs mean is for the loss to say;
    they are `scale_k` times what the last layer gives, plus `offset_k`, constants from the training data.
    """

    figures_shift_f: Tensor
    figures_scale_f: Tensor
    offset_k: Tensor
    scale_k: Tensor
    positions_pd: Tensor

    def __init__(self, config: SelectorConfig, model: Transformer, depths: int) -> None:
        super().__init__()
        width = model.config.width
        if config.layers and width % config.heads:
            raise UserError(f"{config.heads} heads do not divide the model's width, {width}: give another number")
        self.config, self.root_width = config, math.sqrt(width)
        self.has_hidden = not config.layers and config.ffn > 0
        if config.reads == "embeddings":
            self.embedding = nn.Embedding(model.vocabulary, width)
            self.embedding.weight.data.copy_(model.source_embedding.weight.data)
            positions = sinusoids(model.config.max_length + 1, width)
            self.register_buffer("positions_pd", positions, persistent=False)
        if config.layers:
            size = ModelConfig.model_construct(width=width, heads=config.heads, ffn=config.ffn, dropout=config.dropout)
            self.stack = Stack(EncoderLayer, tuple(range(config.layers)), size)
            self.token_d = nn.Parameter(torch.randn(width))
        self.register_buffer("figures_shift_f", torch.zeros(FIGURES))
        self.register_buffer("figures_scale_f", torch.ones(FIGURES))
        self.register_buffer("offset_k", torch.zeros(depths))
        self.register_buffer("scale_k", torch.ones(depths))
        read = (2 * width if self.has_hidden else width) + (FIGURES if config.features else 0)
        if self.has_hidden:
            self.hidden = nn.Linear(read, config.ffn)
        self.read_out = nn.Linear(config.ffn if self.has_hidden else read, depths)
        nn.init.zeros_(self.read_out.weight)  # it begins with what the offsets say for any sentence
        nn.init.zeros_(self.read_out.bias)

    def forward(self, inputs: Inputs) -> Tensor:
        """A number for each sentence and depth, [b, k]."""
        x_bsd = self._embedded(inputs.source_bs) if inputs.states_bsd is None else inputs.states_bsd
        x_bsd = F.dropout(x_bsd, self.config.dropout, self.training) if self.training else x_bsd
        read = [self._attended(x_bsd, inputs.padding_bs)] if self.config.layers else _pooled(x_bsd, inputs.padding_bs)
        read = read if self.has_hidden else read[:1]
        if self.config.features:
            read.append(torch.addcmul(self.figures_shift_f, inputs.figures_bf, self.figures_scale_f))
        read_br = torch.cat(read, dim=1) if len(read) > 1 else read[0]
        if self.has_hidden:
            read_br = torch.relu(self.hidden(read_br))
        if self.training:
            read_br = F.dropout(read_br, self.config.dropout)
        return torch.addcmul(self.offset_k, self.read_out(read_br), self.scale_k)

    @property
    def is_of_words(self) -> bool:
        """Whether it is a sum over the sub-words, each by itself."""
        return self.config.reads == "embeddings" and not self.config.layers and not self.has_hidden

    def _embedded(self, source_bs: Tensor) -> Tensor:
        embedded_bsd = F.embedding(source_bs, self.embedding.weight) * self.root_width
        return embedded_bsd if self.is_of_words else embedded_bsd + self.positions_pd[: source_bs.shape[1]]

    def _attended(self, x_bsd: Tensor, padding_bs: Tensor | None) -> Tensor:
        """The state of the extra token after the last layer."""
        x_bsd = torch.cat([self.token_d.expand(x_bsd.shape[0], 1, -1), x_bsd], dim=1)
        attend = None if padding_bs is None else ~F.pad(padding_bs, (1, 0))[:, None, None, :]
        states = self.stack(x_bsd, tuple(range(self.config.layers)), attend=attend)
        return cast(Tensor, self.stack.norm(states[-1][:, 0]))


def _pooled(x_bsd: Tensor, padding_bs: Tensor | None) -> list[Tensor]:
    """Mean and maximum over what is no padding."""
    if padding_bs is None:
        return [x_bsd.mean(1), x_bsd.amax(1)]
    padding_bs1 = padding_bs.unsqueeze(-1)
    lengths_b1 = (~padding_bs).sum(1, keepdim=True)
    return [x_bsd.masked_fill(padding_bs1, 0.0).sum(1) / lengths_b1, x_bsd.masked_fill(padding_bs1, -math.inf).amax(1)]
