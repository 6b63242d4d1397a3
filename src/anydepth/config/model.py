"""The size of the Transformer, what its layers are like, and which of them share weights."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from anydepth.config.section import ConfigSection

Sharing = Literal["none", "all"] | tuple[Annotated[int, Field(ge=1)], ...]
Residual = Literal["plain", "rezero", "dlcl"]
Activation = Literal["relu", "gelu", "gelu-tanh", "swish"]


class ModelConfig(ConfigSection):
    """A Transformer: encoder and decoder, or encoder-only."""

    width: int = Field(256, ge=8, le=65_536, description="size of a state")
    heads: int = Field(4, ge=1, le=1024, description="attention heads")
    ffn: int = Field(1024, ge=8, le=262_144, description="inner size of the feed-forward block")
    encoder_layers: int = Field(6, ge=1, le=1000, description="layers of the full encoder")
    decoder_layers: int = Field(
        6,
        ge=0,
        le=1000,
        description="layers of the full decoder; 0: encoder-only, for classification or masked language modelling",
    )
    encoder_shared: Sharing = Field(
        "none",
        description="which encoder layers have the same weights (recurrent stacking): none; all; or whose weights each "
        "layer has, such as [1, 1, 2, 2, 3, 3]",
    )
    decoder_shared: Sharing = Field("none", description="the same for the decoder")
    norm: Literal["layer", "post", "none"] = Field(
        "layer",
        description="layer: before every branch; post: after it, and after the embeddings, as in BERT; none: layers "
        "without LayerNorm (each stack's final norm stays)",
    )
    norm_epsilon: float = Field(1e-5, gt=0, lt=1, description="what LayerNorm adds to the variance")
    activation: Activation = Field("relu", description="of the feed-forward block")
    residual: Residual = Field(
        "plain",
        description="how a layer joins those before it: plain, x + branch; rezero, x + r * branch with an r for each "
        "layer, learned, from 0 (with norm: none as in the original); dlcl, a learned sum of all layers before it",
    )
    init: Literal["xavier", "depth-scaled"] = Field(
        "xavier", description="of the matrices; depth-scaled: those of layer l times 1 / sqrt(l)"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="on embeddings and on every branch")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="on the probabilities of self-attention")
    positions: Literal["sinusoidal", "fairseq", "learned"] = Field(
        "sinusoidal",
        description="how positions are encoded: by sines and cosines; by those of fairseq, with other frequencies and "
        "from position 2, as in M2M100 and NLLB; or by a learned table of max_length",
    )
    scale_embeddings: bool | None = Field(
        None, description="embeddings times the square root of the width; by default unless positions are learned"
    )
    embedding_norm: bool | None = Field(
        None, description="a LayerNorm after the embeddings; by default with norm post, as in BERT"
    )
    target_positions: bool = Field(
        False, description="the target has its own learned positions and embedding norm, as in mBART"
    )
    output_bias: bool = Field(False, description="a bias for each subword in the output layer, as in Marian")
    token_types: int = Field(
        0, ge=0, le=1000, description="rows of a table of kinds of text, as BERT has two; text is of the first kind"
    )
    head: Literal["plain", "transform"] = Field(
        "plain",
        description="what an encoder-only model predicts masked subwords from: its states, or as in BERT from one more "
        "dense layer with a norm",
    )
    halting: bool = Field(
        False, description="a unit that says after the first encoder layer how deep each token goes (objective halting)"
    )
    halting_confidence: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="how sure the unit is to be: a token goes as deep as the first layer that suffices with this "
        "probability; 0: the one that most probably is the first",
    )
    share_embeddings: Literal["all", "target", "none"] = Field(
        "all", description="one matrix for source, target and output; or for target and output; or three"
    )
    max_length: int = Field(512, ge=4, le=100_000, description="longest source or output, in subwords")

    @field_validator("positions", mode="before")
    @classmethod
    def _as_it_was_spelled(cls, value: Any) -> Any:
        """Recipes and models of earlier versions say learnt."""
        return "learned" if value == "learnt" else value

    @model_validator(mode="after")
    def _heads_divide(self) -> "ModelConfig":
        if self.positions != "learned" and self.width % (2 * self.heads):
            raise ValueError("width must be a multiple of 2 x heads")
        if self.width % self.heads:
            raise ValueError("width must be a multiple of heads")
        return self

    @model_validator(mode="after")
    def _options_fit(self) -> "ModelConfig":
        if self.norm == "post" and self.residual != "plain":
            raise ValueError(f"residual {self.residual} is for norms before the branches: leave norm at layer or none")
        if self.decoder_layers and self.head != "plain":
            raise ValueError("head is for encoder-only models: leave it at plain")
        if not self.decoder_layers and (self.target_positions or self.output_bias):
            raise ValueError("target_positions and output_bias are for models that translate: leave them out")
        if self.target_positions and self.positions != "learned":
            raise ValueError("target_positions is for learned positions: leave it out")
        return self

    @model_validator(mode="after")
    def _one_table_for_an_encoder_alone(self) -> "ModelConfig":
        if not self.decoder_layers and self.share_embeddings != "all":
            raise ValueError("an encoder-only model reads and writes the same subwords: leave share_embeddings at all")
        return self

    @model_validator(mode="after")
    def _patterns_fit(self) -> "ModelConfig":
        for side, shared, layers in (
            ("encoder", self.encoder_shared, self.encoder_layers),
            ("decoder", self.decoder_shared, self.decoder_layers),
        ):
            if isinstance(shared, str):
                continue
            if len(shared) != layers:
                raise ValueError(f"{side}_shared must name weights for each of {layers} layers, not {len(shared)}")
            if list(dict.fromkeys(shared)) != list(range(1, max(shared) + 1)):
                raise ValueError(f"{side}_shared counts weights from 1 in the order in which they first occur")
        return self

    @property
    def scales_embeddings(self) -> bool:
        return self.positions != "learned" if self.scale_embeddings is None else self.scale_embeddings

    @property
    def norms_embeddings(self) -> bool:
        return self.norm == "post" if self.embedding_norm is None else self.embedding_norm

    @property
    def encoder_pattern(self) -> tuple[int, ...]:
        """For each encoder layer the index, from 0, of the weights that it has."""
        return _pattern(self.encoder_shared, self.encoder_layers)

    @property
    def decoder_pattern(self) -> tuple[int, ...]:
        return _pattern(self.decoder_shared, self.decoder_layers)


def _pattern(shared: Sharing, layers: int) -> tuple[int, ...]:
    if isinstance(shared, str):
        return (0,) * layers if shared == "all" else tuple(range(layers))
    return tuple(number - 1 for number in shared)
