"""The learnt selector inside a model folder.

selector/config.json            format, kind and sizes of the network, depths, threshold, the measured trade-off, costs
                                of the depths, checksums of its weights and of the model's that it was trained for
selector/selector.safetensors   its weights and constants
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.files import atomic_folder, sha256_of
from anydepth.model import Transformer
from anydepth.selectors.config import SelectorConfig
from anydepth.selectors.cost import LengthCost
from anydepth.selectors.learnt import LearntSelector, Point
from anydepth.selectors.network import DepthPredictor
from anydepth.selectors.reading import Reader
from anydepth.tensors import write_tensors

FORMAT = 1
FOLDER, CONFIG, WEIGHTS = "selector", "config.json", "selector.safetensors"
WEIGHTS_OF_MODEL = "model.safetensors"
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Record(BaseModel):
    """What config.json holds."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    format: int = Field(ge=1)
    model: str
    weights: str
    config: SelectorConfig
    depths: tuple[str, ...] = Field(min_length=1)
    threshold: Finite
    mean_length: float = Field(gt=0)
    length_power: Finite = 1.0
    relative_costs: tuple[LengthCost, ...]
    points: tuple[Point, ...]


def save_selector(folder: Path, selector: LearntSelector) -> None:
    """Put it into the model folder `folder`, in the place of one that may be there, in one step."""
    with atomic_folder(folder / FOLDER) as temporary:
        write_tensors(temporary / WEIGHTS, selector.network.state_dict())
        record = {
            "format": FORMAT,
            "model": sha256_of(folder / WEIGHTS_OF_MODEL),
            "weights": sha256_of(temporary / WEIGHTS),
            "config": selector.config.model_dump(),
            "depths": selector.depths,
            "threshold": selector.threshold,
            "mean_length": selector.mean_length,
            "length_power": selector.length_power,
            "relative_costs": [asdict(cost) for cost in selector.relative_cost_k],
            "points": [asdict(point) for point in selector.points],
        }
        (temporary / CONFIG).write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def load_selector(
    folder: Path, model: Transformer, tokenizer: Tokenizer, menu: DepthMenu, weights: str | None = None
) -> LearntSelector | None:
    """The selector of the model folder `folder`, if it has one. `weights` is the model's checksum, where known."""
    there = folder / FOLDER
    if not there.is_dir():
        return None
    try:
        record = _read_record(there)
        if record.model != (weights or sha256_of(folder / WEIGHTS_OF_MODEL)):
            raise UserError(f"the selector in {there} was trained for another model: {_advice(folder)}")
        return _load(there, record, model, tokenizer, menu)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the selector in {there} is damaged ({reason}): {_advice(folder)}") from error


def _advice(folder: Path) -> str:
    return f"train it again (`anydepth select {folder}`), or delete that folder"


def _read_record(there: Path) -> _Record:
    content = json.loads((there / CONFIG).read_text("utf-8"))
    if isinstance(content, dict) and isinstance(content.get("format"), int) and content["format"] > FORMAT:
        raise UserError(
            f"the selector in {there} was written by a newer anydepth: upgrade anydepth, or {_advice(there.parent)}"
        )
    try:
        return _Record.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        raise ValueError(f"{CONFIG}, {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error


def _load(there: Path, record: _Record, model: Transformer, tokenizer: Tokenizer, menu: DepthMenu) -> LearntSelector:
    if sha256_of(there / WEIGHTS) != record.weights:
        raise ValueError(f"{WEIGHTS} is not what was saved")
    unknown = [name for name in record.depths if name not in menu.names]
    if unknown or len(record.relative_costs) != len(record.depths):
        raise ValueError(f"{CONFIG}: the depths do not fit the model")
    tensors: dict[str, Tensor] = load_file(there / WEIGHTS)
    _check_shapes(record, model, tensors)
    if not all(bool(torch.isfinite(value).all()) for value in tensors.values()):
        raise ValueError(f"{WEIGHTS} has values that are not finite numbers")
    network = DepthPredictor(record.config, model, len(record.depths))
    network.load_state_dict(tensors)
    return LearntSelector(
        network.to(model.positions_pd.device),
        Reader(model, tokenizer, record.config.reads == "encoder"),
        record.depths,
        record.relative_costs,
        record.mean_length,
        record.threshold,
        record.points,
        record.length_power,
    )


def _check_shapes(record: _Record, model: Transformer, tensors: dict[str, Tensor]) -> None:
    """Before any memory is taken for the network that config.json describes."""
    try:
        with torch.device("meta"):
            expected = DepthPredictor(record.config, model, len(record.depths)).state_dict()
    except UserError as error:
        raise ValueError(str(error)) from error
    if {name: value.shape for name, value in expected.items()} != {name: t.shape for name, t in tensors.items()}:
        raise ValueError(f"{WEIGHTS} does not fit {CONFIG}")
