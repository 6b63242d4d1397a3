"""Distillation: the teacher, and what the student learns from it."""

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from anydepth.config.section import ConfigSection, did_you_mean

MapName = Literal["last", "regular", "overlap", "skip", "cross", "interleave"]
LayerNumber = Annotated[int, Field(ge=1)]


class TeacherConfig(ConfigSection):
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
        description="rkd: outputs only, as it is for self unless another is given; pkd: also one layer of the teacher "
        "for each layer of the student; ckd: also several, combined",
    )
    map: MapName | dict[LayerNumber, tuple[LayerNumber, ...]] | None = Field(
        None,
        description="which layers of the teacher each layer of the student learns from: a name (`anydepth maps 6 2` "
        "draws them all), or such as {1: [1, 3], 2: [4, 6]}; empty: regular, for pkd last",
    )
    fusion: Literal["concat", "mean", "attention"] = Field(
        "concat",
        description="how ckd combines them: side by side, then projected; their mean; or a learned mean of all layers",
    )
    project: Literal["teacher", "student"] = Field(
        "student",
        description="what is brought to the other's width where they differ or layers stand side by side: the "
        "student's layer (the authors' code), or the teacher's (the paper)",
    )
    always_project: bool = Field(
        False,
        description="project also where widths agree and one layer is matched with one: pkd with the projection that "
        "ckd has, as its control",
    )
    distance: Literal["direction", "square"] = Field(
        "direction",
        description="how layers are compared: scaled to length 1 (the authors' code), or as they are (the paper); "
        "square with project: teacher can be minimised by shrinking both",
    )
    attention: bool = Field(
        False,
        description="pkd and ckd: match the encoder's self-attention too (KL to the mean of the mapped layers; of the "
        "means over heads, if their numbers differ); it counts lambda, as layers do",
    )
    sides: Literal["encoder", "decoder", "both"] = Field(
        "encoder", description="whose layers to match; in the paper the decoder's only do harm"
    )
    start_step: int = Field(
        0,
        ge=0,
        description="updates without the teacher at first; one that is the student itself, and teaches by layers, "
        "has to know something before it does",
    )
    temperature: float = Field(
        1.0, gt=0, description="softens both output distributions; their loss counts temperature^2 times, as is usual"
    )
    eta: float = Field(0.1, ge=0, le=1, description="what the teacher's outputs count")
    lambda_: float = Field(0.7, alias="lambda", ge=0, le=1, description="what its layers count (pkd and ckd)")

    @model_validator(mode="before")
    @classmethod
    def _self_teaches_by_outputs(cls, values: Any) -> Any:
        """By its layers a model that teaches itself may forget everything else (docs/lab-notes.md): only if asked."""
        if isinstance(values, dict) and values.get("model") == "self":
            return {"method": "rkd", **values}
        return values

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
        choices = f"choose from {', '.join(get_args(MapName))}, or give layers such as {{1: [1, 3], 2: [4, 6]}}"
        raise ValueError(choices + did_you_mean(value, get_args(MapName)))

    @property
    def matches_layers(self) -> bool:
        return self.method != "rkd" and self.lambda_ > 0

    @model_validator(mode="after")
    def _weights_leave_room(self) -> "TeacherConfig":
        of_layers = 0 if self.method == "rkd" else self.lambda_
        if self.eta + of_layers > 1:
            raise ValueError(
                f"eta and lambda are shares of the loss: together they cannot be more than 1, and {self.eta:g} + "
                f"{of_layers:g} is: set both"
            )
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

    @property
    def teaches_nothing(self) -> bool:
        return self.eta == 0 and not self.matches_layers

    @property
    def leaves_nothing(self) -> bool:
        """For the references."""
        return self.eta + (self.lambda_ if self.matches_layers else 0) == 1

    def idle_keys(self) -> list[str]:
        """What was given and has no effect."""
        keys: list[str] = []
        if not self.matches_layers:
            keys += ["map", "fusion", "project", "always_project", "distance", "attention", "sides"]
        if self.method == "rkd":
            keys.append("lambda_")
        if self.eta == 0:
            keys.append("temperature")
        if self.fusion == "attention" and isinstance(self.map, str):  # others say which layers of the student learn
            keys.append("map")
        if self.sides == "decoder" and self.attention:
            keys.append("attention")
        if self.model == "self":
            keys.append("depth")
        return [key.rstrip("_") for key in dict.fromkeys(keys) if key in self.model_fields_set]


def _all_layers(numbers: list[Any]) -> bool:
    """Also as text, which is what JSON makes of the keys of a mapping."""
    return all(str(number).isdecimal() and int(number) >= 1 for number in numbers)
