"""How training goes: optimizer, schedule, validation, checkpoints."""

from typing import Annotated, Literal

from pydantic import Field

from anydepth.config.section import ConfigSection

Moment = Annotated[float, Field(ge=0, lt=1)]


class TrainConfig(ConfigSection):
    steps: int = Field(20_000, ge=1, description="updates in all; may be changed when a run is resumed")
    batch_tokens: int = Field(
        4096,
        ge=16,
        le=10_000_000,
        description="subwords in a batch, of all processes together, padding included, on its longer side",
    )
    accumulate: int = Field(1, ge=1, description="batches per update")
    learning_rate: float = Field(1e-3, gt=0, description="peak learning rate")
    warmup: int = Field(1000, ge=0, description="updates until the peak")
    schedule: Literal["inverse-sqrt", "linear", "wsd"] = Field(
        "inverse-sqrt",
        description="after the warm-up; linear: down to 0; wsd (warmup, stable, decay): at the peak until the last "
        "`decay` of the updates, so that `steps` may be changed until then",
    )
    decay: float = Field(0.25, gt=0, le=1, description="share of the updates in which `wsd` goes down to 0")
    optimizer: Literal["adam", "muon", "nesterov"] = Field(
        "adam",
        description="AdamW; Muon for the matrices inside layers and AdamW for the rest; or gradient descent with "
        "Nesterov momentum",
    )
    muon_factor: float = Field(
        2.0, gt=0, description="learning rate of Muon's matrices, as a multiple of that of the rest"
    )
    muon_momentum: float = Field(0.95, ge=0, lt=1, description="Muon's momentum")
    momentum: float = Field(0.9, gt=0, lt=1, description="of Nesterov's")
    betas: tuple[Moment, Moment] = Field((0.9, 0.98), description="Adam's moments")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay, on matrices only")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="mass spread over the vocabulary")
    sampled_softmax: int = Field(
        0,
        ge=0,
        description="subwords in the softmax of an update, half of them the most frequent and half sampled, to train "
        "faster; 0: all of them. For references alone, with label_smoothing: 0",
    )
    clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    precision: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="auto: bfloat16 on a GPU that has it, else float32, with Muon's orthogonalisation in bfloat16 on a "
        "CPU that has it",
    )
    device: str = Field("auto", description="auto: cuda where there is one, else cpu")
    shard: bool = Field(
        False,
        description="under torchrun, divide weights, gradients and moments among the processes (FSDP): for models that "
        "do not fit otherwise",
    )
    activation_checkpointing: bool = Field(
        False, description="compute the inside of each layer again for its gradient: less memory, about a third slower"
    )
    compile: bool = Field(
        False, description="compile the layers (torch.compile): pays on GPUs, after minutes of compiling"
    )
    quantize: Literal["none", "int4"] = Field(
        "none",
        description="int4: run with feed-forward weights rounded as `export --quantize int4` rounds them, so that the "
        "export loses less; the model that is written is not rounded",
    )
    threads: int | None = Field(
        None, ge=1, le=1024, description="CPU threads; part of what makes a run repeatable to the bit"
    )
    seed: int = Field(1, ge=0, lt=2**31, description="decides initial weights, batch order, dropout and exits")
    log_every: int = Field(50, ge=1, description="updates between two log lines")
    valid_every: int = Field(1000, ge=1, description="updates between two validations")
    valid_depths: list[str] = Field(
        [], description="depths to validate, such as [6-6, 2-1]; empty: deepest and shallowest"
    )
    valid_sentences: int = Field(500, ge=1, description="sentences translated per validation")
    patience: int | None = Field(None, ge=1, description="stop after so many validations without a better BLEU")
    checkpoint_every: int = Field(500, ge=1, description="updates between two checkpoints")
    average: int = Field(5, ge=1, description="checkpoints averaged into the finished model")
