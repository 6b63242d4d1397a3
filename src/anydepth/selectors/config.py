"""Every setting of the learnt selector and its training, with its meaning and its default."""

from typing import Literal

from pydantic import Field, model_validator

from anydepth.config import Section

Kind = Literal["labels", "values", "likelihood"]
KINDS: tuple[Kind, ...] = ("likelihood", "values", "labels")


class SelectorConfig(Section):
    """A small network that reads a source sentence and says which depth to translate it at."""

    kind: Kind = Field(
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
    features: bool = Field(True, description="read the sentence's length and how rare its sub-words are, too")
    dropout: float = Field(0.3, ge=0, lt=1, description="on what it reads and on every branch")
    alpha: float = Field(0.5, ge=0, description="labels: rare ones count more, by (1 - share) to this power (Eq. 3)")
    beta: float = Field(1.0, gt=0, description="labels: how much recall counts beside precision (Eq. 4)")
    mix: float = Field(0.5, ge=0, le=1, description="labels: share of Eq. 3 in the loss; the rest is Eq. 4's (lambda)")
    optimiser: Literal["adam", "nesterov"] = Field("adam", description="AdamW, or Nesterov's momentum as in the paper")
    rate: float = Field(1e-3, gt=0, description="peak learning rate")
    weight_decay: float = Field(0.01, ge=0, description="decoupled under adam; on matrices only")
    steps: int = Field(1000, ge=1, description="updates at most")
    batch_tokens: int = Field(1024, ge=16, description="sub-words in a batch, whose sentences are alike in length")
    accumulate: int = Field(2, ge=1, description="batches, each of another length, per update")
    patience: int = Field(5, ge=1, description="stop after so many validations without a better one, of 20 in all")
    seed: int = Field(1, ge=0, lt=2**31, description="decides initial weights, batch order and dropout")

    @model_validator(mode="after")
    def _layers_need_size(self) -> "SelectorConfig":
        if self.layers and not self.ffn:
            raise ValueError("layers need an ffn of 1 or more")
        return self


PAPER = SelectorConfig(
    kind="labels",
    reads="embeddings",
    layers=2,
    heads=4,
    ffn=512,
    features=False,
    dropout=0.1,
    optimiser="nesterov",
    rate=0.05,
    weight_decay=0.0,
)
DEFAULTS: dict[Kind, SelectorConfig] = {
    "labels": PAPER,
    "values": SelectorConfig(kind="values"),
    "likelihood": SelectorConfig(kind="likelihood"),
}
