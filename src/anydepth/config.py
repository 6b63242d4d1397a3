"""Every key a recipe may have, with its meaning and its default. Unknown keys are refused.

Run `python -m anydepth.config` to print this as the table in docs/recipe-keys.md.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, serialize_by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_numbers(cls, values: Any) -> Any:
        """YAML reads `yes` and `on` as true, which Python would count as 1."""
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        for name, value in values.items() if isinstance(values, dict) else ():
            field = fields.get(name)
            if isinstance(value, bool) and field is not None and field.annotation is not bool:
                raise ValueError(f"{name} cannot be true or false")
        return values


class CorpusConfig(Section):
    """Where sentence pairs come from: `source` and `target`, or `tsv`, or `huggingface`. Files may be gzipped."""

    source: Path | None = Field(None, description="a text file, one source sentence per line")
    target: Path | None = Field(None, description="its translations, line by line")
    tsv: Path | None = Field(None, description="one file with a pair per line, split by tabs")
    source_column: int | str = Field(
        1,
        description="where the source is: a column number of the TSV, or a column or language of the data set",
    )
    target_column: int | str = Field(2, description="the same for the target")
    huggingface: str | None = Field(None, description="name of a Hugging Face data set (extra: anydepth[huggingface])")
    subset: str | None = Field(None, description="configuration of that data set, where it has several")
    split: str = Field("train", description="which of its splits to read")

    @model_validator(mode="after")
    def _one_kind(self) -> "CorpusConfig":
        two_files = self.source is not None and self.target is not None
        if (self.source is None) != (self.target is None):
            raise ValueError("give both source and target")
        if sum([two_files, self.tsv is not None, self.huggingface is not None]) != 1:
            raise ValueError("give exactly one of source with target, tsv, or huggingface")
        if self.tsv is not None:
            for column in (self.source_column, self.target_column):
                if not isinstance(column, int) or column < 1:
                    raise ValueError("the columns of a tsv are numbers, counted from 1")
        return self


class DataConfig(Section):
    source_language: str = Field("source", description="language code of the source, for the model card")
    target_language: str = Field("target", description="language code of the target")
    licence: str | None = Field(None, description="licence and origin of the corpus, for the model card")
    train: CorpusConfig = Field(description="the training corpus")
    valid: CorpusConfig | None = Field(None, description="the validation corpus; without it `hold_out` pairs of train")
    hold_out: int = Field(
        1000,
        ge=1,
        description="pairs held out of train for validation, no source shared, if `valid` is not given",
    )
    vocabulary: int = Field(8000, ge=100, le=250_000, description="size of the joint sentencepiece vocabulary")
    tokenizer: Path | None = Field(
        None, description="a model, a run or a tokenizer.model whose sub-words to use; `vocabulary` is then not used"
    )
    vocabulary_sample: int = Field(2_000_000, ge=100, description="lines at most that sentencepiece trains on")
    byte_fallback: bool = Field(True, description="spell characters outside the vocabulary as bytes")
    max_tokens: int = Field(250, ge=2, description="pairs with a longer side, in sub-words, are left out")
    max_ratio: float = Field(
        3.0, gt=1, description="longest allowed side in times of the other, in characters (10 added to both)"
    )
    deduplicate: bool = Field(True, description="leave out pairs that have occurred before")


Sharing = Literal["none", "all"] | tuple[Annotated[int, Field(ge=1)], ...]


class ModelConfig(Section):
    """A pre-norm encoder-decoder Transformer."""

    width: int = Field(256, ge=8, le=65_536, description="size of a state")
    heads: int = Field(4, ge=1, le=1024, description="attention heads")
    ffn: int = Field(1024, ge=8, le=262_144, description="inner size of the feed-forward block")
    encoder_layers: int = Field(6, ge=1, le=1000, description="layers of the full encoder")
    decoder_layers: int = Field(6, ge=1, le=1000, description="layers of the full decoder")
    encoder_shared: Sharing = Field(
        "none",
        description="which encoder layers have the same weights (recurrent stacking): none; all; or whose weights each "
        "layer has, such as [1, 1, 2, 2, 3, 3]",
    )
    decoder_shared: Sharing = Field("none", description="the same for the decoder")
    dropout: float = Field(0.1, ge=0, lt=1, description="on embeddings and on every branch")
    share_embeddings: Literal["all", "target", "none"] = Field(
        "all", description="one matrix for source, target and output; or for target and output; or three"
    )
    max_length: int = Field(512, ge=4, le=100_000, description="longest source or output, in sub-words, at translation")

    @model_validator(mode="after")
    def _heads_divide(self) -> "ModelConfig":
        if self.width % (2 * self.heads):
            raise ValueError("width must be a multiple of 2 x heads")
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


MapName = Literal["last", "regular", "overlap", "skip", "cross", "interleave"]
Layer = Annotated[int, Field(ge=1)]


class TeacherConfig(Section):
    """A deeper model, or the model's own deepest exit, teaches (Wu et al. 2020). Any objective may have a teacher.

    The loss is (1 - eta - lambda) x the objective's + eta x that with the teacher's outputs + lambda x that of layers.
    """

    model: Literal["self"] | Path = Field(
        description="a finished model or run with the same vocabulary, whose tokenizer is then used; or self: the "
        "deepest exit of the model in training teaches its shallower ones, under an objective with several depths"
    )
    depth: str | None = Field(None, description="the teacher's depth, such as 6-6; empty: its deepest")
    method: Literal["rkd", "pkd", "ckd"] = Field(
        "ckd",
        description="rkd: outputs only; pkd: also one layer of the teacher for each layer of the student; ckd: also "
        "several, combined",
    )
    map: MapName | dict[Layer, tuple[Layer, ...]] | None = Field(
        None,
        description="which layers of the teacher each layer of the student learns from: a name (`anydepth maps 6 2` "
        "draws them all), or such as {1: [1, 3], 2: [4, 6]}; empty: regular, for pkd last",
    )
    fusion: Literal["concat", "mean", "attention"] = Field(
        "concat",
        description="how ckd combines them: side by side, then projected; their mean; or a learnt mean of all layers",
    )
    project: Literal["teacher", "student"] = Field(
        "student",
        description="what is brought to the other's width where they differ or layers stand side by side: the "
        "student's layer (the authors' code), or the teacher's (the paper)",
    )
    distance: Literal["direction", "square"] = Field(
        "direction",
        description="how layers are compared: scaled to length 1 (the authors' code), or as they are (the paper); "
        "square with project: teacher can be minimised by shrinking both",
    )
    attention: bool = Field(False, description="pkd and ckd: match the encoder's self-attention too")
    sides: Literal["encoder", "decoder", "both"] = Field(
        "encoder", description="whose layers to match; in the paper the decoder's only do harm"
    )
    begin: int = Field(
        0,
        ge=0,
        description="updates without the teacher at first; one that is the student itself, and teaches by layers, "
        "has to know something before it does",
    )
    temperature: float = Field(1.0, gt=0, description="softens both output distributions")
    eta: float = Field(0.1, ge=0, le=1, description="what the teacher's outputs count")
    lambda_: float = Field(0.7, alias="lambda", ge=0, le=1, description="what its layers count (pkd and ckd)")

    @field_validator("model", mode="before")
    @classmethod
    def _model_is_a_path(cls, value: Any) -> Any:
        if not isinstance(value, str | Path) or not str(value).strip():
            raise ValueError("give a finished model or run, or self")
        return value

    @field_validator("map", mode="before")
    @classmethod
    def _map_is_a_name_or_layers(cls, value: Any) -> Any:
        """One layer need not stand in a list."""
        if isinstance(value, dict):
            value = {own: layers if isinstance(layers, list | tuple) else [layers] for own, layers in value.items()}
            if _all_layers([number for own, layers in value.items() for number in (own, *layers)]):
                return value
        elif value is None or value in get_args(MapName):
            return value
        raise ValueError(f"choose from {', '.join(get_args(MapName))}, or give layers such as {{1: [1, 3], 2: [4, 6]}}")

    @property
    def matches_layers(self) -> bool:
        return self.method != "rkd" and self.lambda_ > 0

    @model_validator(mode="after")
    def _weights_leave_room(self) -> "TeacherConfig":
        of_layers = 0 if self.method == "rkd" else self.lambda_
        if self.eta + of_layers > 1:
            raise ValueError("eta and lambda are shares of the loss: together they cannot be more than 1")
        if of_layers == 1:
            raise ValueError("with a lambda of 1 nothing trains the outputs: leave something for them")
        return self

    @model_validator(mode="after")
    def _one_layer_for_pkd(self) -> "TeacherConfig":
        one_each = isinstance(self.map, dict) and all(len(layers) == 1 for layers in self.map.values())
        if self.method == "pkd" and not (one_each or self.map in (None, "last")):
            raise ValueError(
                "pkd takes one layer of the teacher for each of the student: set map to last or to single layers, or "
                "use method: ckd"
            )
        if self.method == "pkd" and self.fusion != "concat":
            raise ValueError("pkd has nothing to combine: for fusion use method: ckd")
        return self

    def idle_keys(self) -> list[str]:
        """What was given and has no effect."""
        keys: list[str] = []
        if not self.matches_layers:
            keys += ["map", "fusion", "project", "distance", "attention", "sides"]
        if self.method == "rkd":
            keys.append("lambda_")
        if self.fusion == "attention":
            keys.append("map")
        if self.sides == "decoder" and self.attention:
            keys.append("attention")
        if self.model == "self":
            keys.append("depth")
        return [key.rstrip("_") for key in dict.fromkeys(keys) if key in self.model_fields_set]


def _all_layers(numbers: list[Any]) -> bool:
    """Also as text, which is what JSON makes of the keys of a mapping."""
    return all(str(number).isdecimal() and int(number) >= 1 for number in numbers)


Moment = Annotated[float, Field(ge=0, lt=1)]


class TrainConfig(Section):
    steps: int = Field(20_000, ge=1, description="updates in all; the only key that may change when a run goes on")
    batch_tokens: int = Field(
        4096, ge=16, le=10_000_000, description="sub-words in a batch, padding included, on its longer side"
    )
    accumulate: int = Field(1, ge=1, description="batches per update")
    rate: float = Field(1e-3, gt=0, description="peak learning rate")
    warmup: int = Field(1000, ge=0, description="updates until the peak")
    schedule: Literal["inverse-sqrt", "linear"] = Field(
        "inverse-sqrt", description="decay after the peak; linear ends at 0"
    )
    optimiser: Literal["adam", "nesterov"] = Field(
        "adam", description="AdamW, or gradient descent with Nesterov momentum"
    )
    momentum: float = Field(0.9, gt=0, lt=1, description="of Nesterov's")
    betas: tuple[Moment, Moment] = Field((0.9, 0.98), description="Adam's moments")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay, on matrices only")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="mass spread over the vocabulary")
    clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    precision: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="auto: bfloat16 on a GPU that has it, else float32"
    )
    device: str = Field("auto", description="auto: cuda where there is one, else cpu")
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


class Recipe(Section):
    init_from: Path | None = Field(
        None,
        description="a finished model or run to start from, with its tokenizer; `model` may then be left out, "
        "and only dropout and max_length may differ",
    )
    data: DataConfig
    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = VanillaConfig()
    teacher: TeacherConfig | None = Field(None, description="who teaches, if anyone does")
    train: TrainConfig = TrainConfig()


def _rows(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    """Every key below `section` as (dotted key, default, description)."""
    for name, field in section.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        below = [kind for kind in kinds if issubclass(kind, BaseModel)]
        if name == "objective":
            for kind in below:
                yield key, f"`name: {get_args(kind.model_fields['name'].annotation)[0]}`", kind.__doc__ or ""
                yield from (row for row in _rows(kind, f"{key}.") if row[0] != "objective.name")
        elif below and name == "valid":
            yield key, "", f"{field.description} (keys as for data.train)"
        elif below:
            yield from _rows(below[0], f"{key}.")
        else:
            default: Any = "required" if field.is_required() else field.default
            yield key, f"`{default}`", field.description or ""


def keys_as_markdown() -> str:
    lines = [
        "# Recipe keys",
        "",
        "Made by `python -m anydepth.config`.",
        "",
        "| key | default | meaning |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{key}` | {default} | {meaning} |" for key, default, meaning in _rows(Recipe, "")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(keys_as_markdown(), end="")
