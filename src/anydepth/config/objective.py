"""Ways of training, a section each."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from anydepth.config.section import ConfigSection, Special, Unseen

Positive = Annotated[float, Field(gt=0)]
LayerCount = Annotated[int, Field(ge=1)]
ExitWeights = Literal["uniform", "linear", "deepest"]


class VanillaConfig(ConfigSection):
    """The loss of the deepest exit alone."""

    name: Literal["vanilla"] = "vanilla"


class TiedMultiConfig(ConfigSection):
    """The losses of all N x M exits (Dabre, Rubino and Fujita 2020, Algorithm 1)."""

    name: Literal["tied-multi"]
    mode: Literal["sampled", "sampled-encoder", "exact"] = Field(
        "sampled",
        description="exact: all N x M losses every step; sampled-encoder: each sentence samples its encoder exit and "
        "trains all decoder exits; sampled: each token samples its decoder exit, too. The latter two are unbiased "
        "estimates of the exact loss at little more than vanilla's cost",
    )
    encoder_exits: Literal["one", "two", "sandwich"] = Field(
        "one",
        description="encoder exits that each sentence trains in the sampled modes: one sampled; two sampled; or "
        "sandwich, the deepest and one of the others. Two run the decoder twice, and give the encoder less noise",
    )
    weights: ExitWeights = Field(
        "uniform",
        description="what each exit (n, m) counts: the same; in proportion to n x m; or `deepest_share` for the "
        "deepest, `shallowest_share` for 1-1 and the same for the others",
    )
    deepest_share: float = Field(0.5, gt=0, lt=1, description="weight of the deepest exit under `weights: deepest`")
    shallowest_share: float | None = Field(
        None, gt=0, lt=1, description="weight of 1-1 under `weights: deepest`; empty: that of the others"
    )

    @model_validator(mode="after")
    def _shares_are_used(self) -> "TiedMultiConfig":
        if self.shallowest_share is not None and self.weights != "deepest":
            raise ValueError(f"shallowest_share has no effect where weights is {self.weights}: leave it out")
        if self.shallowest_share is not None and self.shallowest_share + self.deepest_share >= 1:
            raise ValueError("deepest_share and shallowest_share leave nothing for the other exits: lower one of them")
        return self


class FlexibleConfig(ConfigSection):
    """Every depth that divides a stack's is a task with layers of its own (Wang, Xiao and Zhu 2021, Algorithm 1)."""

    name: Literal["flexible"]
    strategy: Literal["head", "seq", "left", "middle-left", "optimal"] = Field(
        "optimal", description="which layers make up each depth; `anydepth depths 12 --strategy all` draws them"
    )
    sides: Literal["both", "encoder", "decoder"] = Field(
        "both", description="which stack becomes flexible; the other one always runs whole"
    )
    encoder_depths: tuple[LayerCount, ...] = Field(
        (), description="depths of the encoder to train, such as [1, 3, 6]; empty: all that divide its number of layers"
    )
    decoder_depths: tuple[LayerCount, ...] = Field((), description="the same for the decoder")
    task_weights: dict[str, Positive] = Field(
        {}, description="what tasks count in the loss, such as {12-6: 2, 1-1: 0.5}; those not named count 1"
    )
    encoder_tasks: int | None = Field(
        None, ge=1, description="encoder depths sampled for each update; empty: all of them"
    )
    decoder_tasks: int | None = Field(
        None, ge=1, description="the same for the decoder; to save time, sample fewer of these first"
    )

    @model_validator(mode="after")
    def _depths_are_flexible(self) -> "FlexibleConfig":
        for side, depths in (("encoder", self.encoder_depths), ("decoder", self.decoder_depths)):
            if depths and self.sides not in ("both", side):
                raise ValueError(f"{side}_depths has no effect where sides is {self.sides}: leave it out")
            if len(set(depths)) < len(depths):
                raise ValueError(f"{side}_depths names a depth twice: name it once")
        return self


class LayerDropConfig(ConfigSection):
    """Every batch leaves out layers at random (Fan, Grave and Joulin 2020); `train.accumulate`: batches per update."""

    name: Literal["layerdrop"]
    encoder_p: float = Field(0.2, ge=0, lt=1, description="chance of each encoder layer to be left out of a batch")
    decoder_p: float = Field(0.2, ge=0, lt=1, description="the same for the decoder")


def _prior(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    try:
        return check(value)
    except ValidationError:
        raise ValueError(f"it is `aggregated` or two positive numbers such as [1, 1], not {value!r}") from None


class LatentConfig(ConfigSection):
    """Gates on layers learn which to use, for each language pair (Li, Stickland, Tang and Kong 2020)."""

    name: Literal["latent"]
    sides: Literal["both", "encoder", "decoder"] = Field("both", description="whose layers have gates")
    gates: Literal["per-pair", "shared"] = Field(
        "per-pair", description="per-pair: gates for each language pair; shared: one set"
    )
    tau: float = Field(
        5.0,
        gt=0,
        description="temperature of the gates sampled for each batch: high, near 1/2; low, near 0 or 1, so that a gate "
        "that has not decided is noise",
    )
    tau_end: float | None = Field(
        None, gt=0, description="the temperature at last; empty: it stays at tau, as in the authors' code"
    )
    tau_steps: int = Field(
        5000, ge=1, description="updates from tau to tau_end, fewer than train.steps; lower it once the gates decide"
    )
    fixed: float | None = Field(
        None,
        gt=0,
        le=1,
        description="a control without anything to learn: every gate is this number, such as 0.5, all along",
    )
    samples: Literal["soft", "straight-through"] = Field(
        "soft", description="soft; or straight-through: 0 or 1 on the way up, soft on the way back"
    )
    prior: Annotated[Literal["aggregated"] | tuple[Positive, Positive], WrapValidator(_prior)] = Field(
        (1.0, 1.0),
        description="the prior of the gates: [a, b], a probability of a / (a + b) that a layer is used (the mean of "
        "Beta(a, b)); or aggregated: the mean of all pairs' probabilities",
    )
    beta: float = Field(
        1.0,
        ge=0,
        description="weight of the KL from the gates to the prior, added to the mean loss per token; the KL is summed "
        "over layers (Eq. 4); 1 as in the paper holds gates near the prior, 0.004 lets those of 24 layers decide",
    )
    encoder_target: int | None = Field(None, ge=1, description="K, the layers that the encoder should come to use")
    decoder_target: int | None = Field(None, ge=1, description="the same for the decoder")
    lambda_: float = Field(0.1, alias="lambda", ge=0, description="what the distance from K counts, if there is one")
    anneal_from: int = Field(0, ge=0, description="updates before beta and lambda begin to rise from 0")
    anneal_steps: int = Field(5000, ge=1, description="updates of their rise, in a line")
    inner_steps: int = Field(2, ge=1, description="updates of the weights for each update of the gates")
    gate_learning_rate: float = Field(0.02, gt=0, description="peak learning rate of the gates' own Adam")
    finish: Literal["both", "hard", "soft"] = Field(
        "both",
        description="what the finished model offers: hard, the chosen layers as they are, such as 12-12; soft, all "
        "layers, each weighted with its mean gate, such as 12-24-soft",
    )

    @model_validator(mode="after")
    def _fixed_gates_learn_nothing(self) -> "LatentConfig":
        given = self.model_fields_set - {"name", "sides", "fixed", "finish"}
        learning = [key for key in given if getattr(self, key) != type(self).model_fields[key].default]
        if self.fixed is not None and learning:
            names = ", ".join(sorted(key.rstrip("_") for key in learning))
            raise ValueError(f"gates that are fixed do not learn: leave out {names}, or fixed")
        if self.fixed is not None and self.finish == "hard":
            raise ValueError("gates that are fixed choose no layers: leave out finish, or fixed")
        return self

    @model_validator(mode="after")
    def _targets_have_gates(self) -> "LatentConfig":
        for side, target in (("encoder", self.encoder_target), ("decoder", self.decoder_target)):
            if target is not None and self.sides not in ("both", side):
                raise ValueError(f"{side}_target has no effect where sides is {self.sides}: leave it out")
        return self


class WordDepthsConfig(ConfigSection):
    """Every word has its own depth, known beforehand (Liu, Meng, Zhou, Chen and Xu 2021); the decoder runs whole."""

    name: Literal["word-depths"]
    depths: Literal["mi"] | Path = Field(
        "mi",
        description="mi: by mutual information with the labels, found in the training text of this run; or a file made "
        "by `anydepth word-depths`",
    )
    scale: float = Field(1.0, gt=0, le=100, description="every depth times this, at least 1 and at most all layers")
    scales: tuple[Positive, ...] = Field(
        (),
        description="one of these is sampled for each batch instead of `scale`, such as [0.5, 0.75, 1, 1.5]; then the "
        "finished model is good at all of them",
    )
    lambda_: float | None = Field(
        None, alias="lambda", ge=0, description="of a reconstruction file; empty: the one it was made with"
    )
    special: Special = Field(
        "deepest",
        description="the depth of what is no word, such as the end of a text: that of its deepest word, the mean over "
        "its words, or 1",
    )
    unseen: Unseen = Field(
        "frequency",
        description="the depth of a word that is not in the table: that of the deepest words; frequency: the mean over "
        "words that occur once in the table's text; subword: the mean over known words that share its subwords",
    )

    @model_validator(mode="after")
    def _lambda_is_of_a_file(self) -> "WordDepthsConfig":
        if self.depths == "mi" and self.lambda_ is not None:
            raise ValueError("depths by mutual information have no lambda: leave it out, or change scale")
        return self


class HaltingConfig(ConfigSection):
    """A unit after the first layer says how deep each token goes (Elbayad et al. 2020), for classification.

    The model learns to classify after every layer, and the unit which is the first layer whose answer is right.
    """

    name: Literal["halting"]
    unit: float = Field(
        1.0, ge=0, description="weight of the loss of the halting unit, added to the mean loss of all exits"
    )
    confidence: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="a token goes as deep as the first layer that suffices with this probability; 0: the layer that "
        "most probably is the first to suffice, as in the paper",
    )


ObjectiveConfig = Annotated[
    VanillaConfig
    | TiedMultiConfig
    | FlexibleConfig
    | LayerDropConfig
    | LatentConfig
    | WordDepthsConfig
    | HaltingConfig,
    Field(discriminator="name"),
]
