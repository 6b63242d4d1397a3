"""Ways of training, a section each."""

from typing import Annotated, Literal

from pydantic import Field

from anydepth.config.section import Section

ExitWeights = Literal["uniform", "linear", "deepest"]


class VanillaConfig(Section):
    """The loss of the deepest exit alone."""

    name: Literal["vanilla"] = "vanilla"


class TiedMultiConfig(Section):
    """The losses of all N x M exits (Dabre, Rubino and Fujita 2020, Algorithm 1)."""

    name: Literal["tied-multi"]
    mode: Literal["sampled", "exact"] = Field(
        "sampled",
        description="exact: all N x M losses every step; sampled: each sentence draws its encoder exit, each token "
        "its decoder exit, an unbiased estimate of the same loss at about vanilla's cost",
    )
    weights: ExitWeights = Field(
        "uniform",
        description="what each exit (n, m) counts: the same; in proportion to n x m; or `deepest_share` for the "
        "deepest and the same for the others",
    )
    deepest_share: float = Field(0.5, gt=0, lt=1, description="weight of the deepest exit under `weights: deepest`")


class FlexibleConfig(Section):
    """Every depth that divides a stack's is a task with layers of its own (Wang, Xiao and Zhu 2021, Algorithm 1)."""

    name: Literal["flexible"]
    strategy: Literal["head", "seq", "left", "middle-left", "optimal"] = Field(
        "optimal", description="which layers make up each depth; `anydepth depths 12 --strategy all` draws them"
    )
    sides: Literal["both", "encoder", "decoder"] = Field(
        "both", description="which stack becomes flexible; the other one always runs whole"
    )
    encoder_tasks: int | None = Field(
        None, ge=1, description="encoder depths drawn for each update; empty: all of them"
    )
    decoder_tasks: int | None = Field(
        None, ge=1, description="the same for the decoder; to save time, draw fewer of these first"
    )


class LayerDropConfig(Section):
    """Every batch leaves out layers at random (Fan, Grave and Joulin 2020); `train.accumulate`: batches per update."""

    name: Literal["layerdrop"]
    encoder_p: float = Field(0.2, ge=0, lt=1, description="chance of each encoder layer to be left out of a batch")
    decoder_p: float = Field(0.2, ge=0, lt=1, description="the same for the decoder")


ObjectiveConfig = Annotated[
    VanillaConfig | TiedMultiConfig | FlexibleConfig | LayerDropConfig, Field(discriminator="name")
]
