"""The network of the learned selector: its settings, what it reads of a sentence, the number it gives each depth.

Shapes: b batch, s source length, d width, k depths, f features, v vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import sentencepiece
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from anydepth.config import ConfigSection, ModelConfig
from anydepth.data import Tokenizer
from anydepth.depth import SubNetwork
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.model.layers import EncoderLayer
from anydepth.model.stack import Stack
from anydepth.tensors import sinusoids

FEATURES = 3

Floats32 = NDArray[np.float32]
SelectorKind = Literal["labels", "values", "likelihood"]
KINDS: tuple[SelectorKind, ...] = ("likelihood", "values", "labels")


class SelectorConfig(ConfigSection):
    """A small network that reads a source sentence and chooses its depth."""

    kind: SelectorKind = Field(
        "likelihood",
        description="labels: which depths give the best chrF (Dabre, Rubino and Fujita 2020, Section 4.2); values: the "
        "chrF to expect of each depth; likelihood: how likely each depth is to find the reference",
    )
    reads: Literal["embeddings", "encoder"] = Field(
        "embeddings",
        description="embeddings: a copy of the model's source embeddings, trained further; "
        "encoder: the states after the model's first encoder layer, as they are, which takes about twice the time",
    )
    layers: int = Field(0, ge=0, le=100, description="self-attention layers; without any, states are pooled")
    heads: int = Field(2, ge=1, le=1024, description="attention heads")
    ffn: int = Field(
        0,
        ge=0,
        le=262_144,
        description="inner size of the feed-forward blocks; without layers, of the read-out; 0 is none, and a choice "
        "takes next to no time",
    )
    features: bool = Field(True, description="read the sentence's length and how rare its subwords are, too")
    dropout: float = Field(0.3, ge=0, lt=1, description="on what it reads and on every branch")
    alpha: float = Field(0.5, ge=0, description="labels: rare ones count more, by (1 - share) to this power (Eq. 3)")
    beta: float = Field(1.0, gt=0, description="labels: how much recall counts beside precision (Eq. 4)")
    mix: float = Field(0.5, ge=0, le=1, description="labels: share of Eq. 3 in the loss; the rest is Eq. 4's (lambda)")
    optimizer: Literal["adam", "nesterov"] = Field("adam", description="AdamW, or Nesterov's momentum as in the paper")
    learning_rate: float = Field(1e-3, gt=0, description="peak learning rate")
    weight_decay: float = Field(0.01, ge=0, description="decoupled under adam; on matrices only")
    steps: int = Field(1000, ge=1, description="updates at most")
    batch_tokens: int = Field(1024, ge=16, description="subwords in a batch, whose sentences are alike in length")
    accumulate: int = Field(2, ge=1, description="batches, each of another length, per update")
    patience: int = Field(5, ge=1, description="stop after so many validations without a better one, of 20 in all")
    seed: int = Field(1, ge=0, lt=2**31, description="decides initial weights, batch order and dropout")

    @model_validator(mode="after")
    def _layers_need_size(self) -> "SelectorConfig":
        if self.layers and not self.ffn:
            raise ValueError("layers need an ffn of 1 or more")
        return self


PAPER = SelectorConfig(  # Dabre, Rubino and Fujita 2020, Section 5.2
    kind="labels",
    reads="embeddings",
    layers=2,
    heads=4,
    ffn=2048,
    features=False,
    dropout=0.1,
    optimizer="nesterov",
    learning_rate=0.05,
    weight_decay=0.0,
)
SMALL = PAPER.model_copy(update={"ffn": 512})  # ours: of the paper's kind, for models that are small themselves
DEFAULTS: dict[SelectorKind, SelectorConfig] = {
    "labels": SMALL,
    "values": SelectorConfig(kind="values"),
    "likelihood": SelectorConfig(kind="likelihood"),
}


@dataclass(frozen=True)
class SelectorInputs:
    """On the device of the model."""

    source_bs: Tensor  # ends in EOS, then PAD
    padding_bs: Tensor | None  # True at padding; None where nothing is padded
    features_bf: Tensor
    states_bsd: Tensor | None  # None where the network has embeddings of its own


class SelectorReader:
    """Turns sentences into inputs, with the frozen model where its encoder is to be read."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer, encoder: bool) -> None:
        self._positions_pd = model.positions_pd
        self._rarity = piece_rarity(tokenizer)
        self._model = model if encoder else None

    @property
    def device(self) -> torch.device:
        return self._positions_pd.device

    def __call__(self, sources: Sequence[Sequence[int]]) -> SelectorInputs:
        """Token ids that end in EOS."""
        source_bs, padding_bs = self._padded(sources)
        states_bsd = None if self._model is None else self._after_first_layer(self._model, source_bs, padding_bs)
        features_bf = torch.tensor([self.features(source) for source in sources], device=source_bs.device)
        return SelectorInputs(source_bs, padding_bs, features_bf, states_bsd)

    def _after_first_layer(self, model: Transformer, source_bs: Tensor, padding_bs: Tensor | None) -> Tensor:
        """What a decoder would read after one encoder layer."""
        return model.memory(model.encode(source_bs, SubNetwork.prefix(1, 1), padding_bs)[0])

    def features(self, source: Sequence[int]) -> tuple[float, float, float]:
        """Log length, mean and largest rarity of the subwords without EOS. Plain Python is faster for one sentence."""
        rarity = [self._rarity[piece] for piece in source]
        return math.log(len(rarity)), sum(rarity) / max(1, len(rarity) - 1), max(rarity)

    def _padded(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        if len(sources) == 1:
            return torch.tensor([list(sources[0])], device=self.device), None
        rows = [torch.tensor(list(source)) for source in sources]
        source_bs = pad_sequence(rows, batch_first=True, padding_value=Tokenizer.PAD).to(self.device)
        padding_bs = source_bs == Tokenizer.PAD
        return source_bs, padding_bs if bool(padding_bs.any()) else None


def piece_rarity(tokenizer: Tokenizer) -> list[float]:
    """Minus the log-probability of each piece under the unigram model; 0 for those that begin or end a sentence.

    Bytes have no probability: they count as rare as the rarest piece.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.to_bytes())
    pieces = range(processor.vocab_size())
    rarity = [-float(processor.get_score(piece)) for piece in pieces]
    rarest = max(rarity)
    spelt = (processor.is_byte(piece) or processor.is_unknown(piece) for piece in pieces)
    return [rarest if is_spelt else value for is_spelt, value in zip(spelt, rarity, strict=True)]


class DepthPredictor(nn.Module):
    """With layers: self-attention with an extra token before the sentence, which a linear layer reads.

    Without: mean and maximum over the sentence, read by a layer of hidden units. Without those either: the mean alone,
    without positions (see `WordScores`). The loss decides what the outputs mean; they are `scale_k` times what the last
    layer gives, plus `offset_k`, constants from the training data.
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
            positions = torch.tensor(sinusoids(model.config.max_length + 1, width))
            self.register_buffer("positions_pd", positions, persistent=False)
        if config.layers:
            size = ModelConfig.model_construct(width=width, heads=config.heads, ffn=config.ffn, dropout=config.dropout)
            self.stack = Stack(EncoderLayer, tuple(range(config.layers)), size)
            self.token_d = nn.Parameter(torch.randn(width))
        self.register_buffer("figures_shift_f", torch.zeros(FEATURES))
        self.register_buffer("figures_scale_f", torch.ones(FEATURES))
        self.register_buffer("offset_k", torch.zeros(depths))
        self.register_buffer("scale_k", torch.ones(depths))
        read = (2 * width if self.has_hidden else width) + (FEATURES if config.features else 0)
        if self.has_hidden:
            self.hidden = nn.Linear(read, config.ffn)
        self.read_out = nn.Linear(config.ffn if self.has_hidden else read, depths)
        nn.init.zeros_(self.read_out.weight)  # at first it gives the offsets, whatever the sentence
        nn.init.zeros_(self.read_out.bias)

    def forward(self, inputs: SelectorInputs) -> Tensor:
        """A number for each sentence and depth, [b, k]."""
        x_bsd = self._embedded(inputs.source_bs) if inputs.states_bsd is None else inputs.states_bsd
        x_bsd = F.dropout(x_bsd, self.config.dropout, self.training) if self.training else x_bsd
        read = [self._attended(x_bsd, inputs.padding_bs)] if self.config.layers else _pooled(x_bsd, inputs.padding_bs)
        read = read if self.has_hidden else read[:1]
        if self.config.features:
            read.append(torch.addcmul(self.figures_shift_f, inputs.features_bf, self.figures_scale_f))
        read_br = torch.cat(read, dim=1) if len(read) > 1 else read[0]
        if self.has_hidden:
            read_br = torch.relu(self.hidden(read_br))
        if self.training:
            read_br = F.dropout(read_br, self.config.dropout)
        return torch.addcmul(self.offset_k, self.read_out(read_br), self.scale_k)

    @property
    def is_of_words(self) -> bool:
        """Whether it is a sum over the subwords, each on its own."""
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


class WordScores:
    """A network without hidden units, folded into a row of numbers for each subword, so that choosing takes almost no
    time: the mean of the rows, plus a share for each feature."""

    @torch.no_grad()
    def __init__(self, network: DepthPredictor) -> None:
        width = network.embedding.weight.shape[1]
        read_kr = network.read_out.weight * network.scale_k[:, None]
        table_vk = network.embedding.weight @ read_kr[:, :width].T * network.root_width
        constant_k = network.offset_k + network.read_out.bias * network.scale_k
        self.features_fk: Floats32 | None = None
        if network.config.features:
            shares_fk = read_kr[:, width:].T
            self.features_fk = (network.figures_scale_f[:, None] * shares_fk).cpu().numpy()
            constant_k = constant_k + network.figures_shift_f @ shares_fk
        self.table_vk: Floats32 = table_vk.cpu().numpy()
        self.constant_k: Floats32 = constant_k.cpu().numpy()

    def __call__(self, source: Sequence[int], features: Sequence[float]) -> Floats32:
        """[k]."""
        rows_sk = self.table_vk[source if isinstance(source, list) else list(source)]
        scores_k: Floats32 = np.add.reduce(rows_sk, axis=0) / len(rows_sk) + self.constant_k
        return scores_k if self.features_fk is None else scores_k + np.asarray(features, np.float32) @ self.features_fk
