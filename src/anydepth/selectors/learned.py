"""The learned selector: a depth for each sentence, by a small network that reads it before it is translated.

selector/config.json            in a model folder: format, kind and sizes of the network, depths, threshold, the
                                measured trade-off, costs of the depths, checksums of its weights and of the model's
selector/selector.safetensors   its weights and constants
"""

import copy
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from anydepth.config.section import Finite
from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu
from anydepth.depth.subnetwork import parse_depth
from anydepth.errors import UserError
from anydepth.files import atomic_folder, file_sha256
from anydepth.model import Transformer
from anydepth.selectors.calibration import LengthCost
from anydepth.selectors.network import DepthPredictor, SelectorConfig, SelectorKind, SelectorReader, WordScores
from anydepth.tensors import write_tensors

BATCH = 64
DEFAULT_THRESHOLDS: dict[SelectorKind, float] = {"labels": 0.5, "values": 1.0, "likelihood": 1.0}

Scores = NDArray[np.floating[Any]]
SourceLengths = Sequence[int] | NDArray[np.integer[Any]]
FORMAT = 1
FOLDER, CONFIG, WEIGHTS = "selector", "config.json", "selector.safetensors"
WEIGHTS_OF_MODEL = "model.safetensors"


@dataclass(frozen=True)
class TradeoffPoint:
    """What a threshold gave on held-out sentences. The cost is the mean time, the deepest depth's being 1."""

    threshold: float
    cost: float
    bleu: float
    chrf: float


class LearnedSelector:
    """Implements `Selector`. Its depths are ordered fastest first.

    kind "labels": the threshold is the probability that the likeliest depth must reach; otherwise it is the deepest.
    kinds "values" and "likelihood": the threshold is what time is worth, so many points of quality for all of the time
    that the deepest depth takes. At 4, a depth that saves a quarter of the time is taken if it is expected to lose
    less than 1 point. At 0 time is worth nothing; the larger, the faster. A sentence counts by its length to the power
    of `length_power`: 1 weights all words alike, 0 all sentences.
    """

    def __init__(
        self,
        network: DepthPredictor,
        read: SelectorReader,
        depths: Sequence[str],
        relative_cost_k: Sequence[LengthCost],
        mean_length: float,
        threshold: float | None = None,
    ) -> None:
        self.network, self.read = network.eval(), read
        self._words = WordScores(network) if network.is_of_words else None
        self.depths = tuple(depths)
        self.relative_cost_k = tuple(relative_cost_k)
        self.mean_length = mean_length  # of the sentences it was trained on
        self.threshold = DEFAULT_THRESHOLDS[self.kind] if threshold is None else threshold
        self.points: tuple[TradeoffPoint, ...] = ()
        self.length_power = 1.0
        self.deepest = deepest_index(depths)
        self._base_k = np.array([cost.base for cost in relative_cost_k])
        self._per_token_k = np.array([cost.per_token for cost in relative_cost_k])

    @property
    def config(self) -> SelectorConfig:
        return self.network.config

    @property
    def kind(self) -> SelectorKind:
        return self.config.kind

    def with_threshold(self, threshold: float) -> "LearnedSelector":
        """The same network with another threshold."""
        other = copy.copy(self)
        other.threshold = threshold
        return other

    def with_points(self, points: Sequence[TradeoffPoint]) -> "LearnedSelector":
        other = copy.copy(self)
        other.points = tuple(points)
        return other

    def with_length_power(self, length_power: float) -> "LearnedSelector":
        other = copy.copy(self)
        other.length_power = length_power
        return other

    def rescaled(self, mean_k: Scores, quality_k: Scores, slope: float) -> "LearnedSelector":
        """Expect `quality_k` of the depths on average; the network says how much a sentence differs from that.

        `mean_k` is the mean of its scores. A difference to the deepest counts `slope` times.
        """
        other = copy.copy(self)
        other.network = copy.deepcopy(self.network)
        k, network = self.deepest, other.network
        differences = torch.from_numpy(np.asarray(mean_k - mean_k[k])).to(network.offset_k)
        network.scale_k.mul_(slope)
        network.offset_k.sub_(differences).mul_(slope)
        network.offset_k.add_(torch.from_numpy(np.asarray(quality_k - quality_k[k])).to(network.offset_k))
        network.scale_k[k], network.offset_k[k] = 0.0, float(quality_k[k])
        other._words = WordScores(network) if network.is_of_words else None
        return other

    def choose(self, sources: Sequence[Sequence[int]]) -> list[str]:
        lengths = [len(source) for source in sources]
        return [self.depths[k] for k in self.pick(self.scores(sources), lengths, self.threshold)]

    def scores(self, sources: Sequence[Sequence[int]]) -> Scores:
        """The network's scores, [n, k]: the probability that a depth is a best one, or the quality to expect of it."""
        if self._words is not None and sources:
            return self._joined(np.stack([self._words(source, self.read.features(source)) for source in sources]))
        if len(sources) == 1:
            return self._scores(sources)
        scores_nk = np.zeros((len(sources), len(self.depths)), np.float32)
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            scores_nk[batch] = self._scores([sources[i] for i in batch])
        return scores_nk

    @torch.inference_mode()
    def _scores(self, sources: Sequence[Sequence[int]]) -> Scores:
        return self._joined(self.network(self.read(sources)).cpu().numpy())

    def _joined(self, output_nk: NDArray[np.float32]) -> Scores:
        """What the outputs of the network mean."""
        if self.kind == "labels":
            probability_nk: Scores = (1 + np.tanh(output_nk / 2)) / 2  # the sigmoid, which never overflows
            return probability_nk
        return join_level(output_nk, self.deepest)

    def pick(self, scores_nk: Scores, lengths_n: SourceLengths, threshold: float) -> NDArray[np.intp]:
        """The indices of the depths to take, [n]; of equals, the fastest."""
        if self.kind == "labels":
            best_n: NDArray[np.intp] = np.argmax(scores_nk, axis=1)
            return np.where(scores_nk.max(axis=1) >= threshold, best_n, self.deepest)
        length_n1 = np.asarray(lengths_n, dtype=np.float64)[:, None]
        time_nk = self._base_k + self._per_token_k * length_n1
        weight_n1 = (length_n1 / self.mean_length) ** self.length_power
        chosen_n: NDArray[np.intp] = np.argmax(scores_nk * weight_n1 - threshold * time_nk, axis=1)
        return chosen_n


def deepest_index(depths: Sequence[str]) -> int:
    """The index of the depth with the most layers."""
    return max(range(len(depths)), key=lambda k: sum(parse_depth(depths[k])))


def split_level(quality_bk: Tensor, deepest: int) -> Tensor:
    """The difference of each depth to the deepest; in the column of the deepest, how good that one is."""
    level_b1 = quality_bk[:, deepest : deepest + 1]
    split_bk = quality_bk - level_b1
    split_bk[:, deepest] = level_b1[:, 0]
    return split_bk


def join_level(split_nk: NDArray[np.float32], deepest: int) -> NDArray[np.float32]:
    """The quality of each depth: undoes `split_level`."""
    level_n1 = split_nk[:, deepest : deepest + 1]
    quality_nk = split_nk + level_n1
    quality_nk[:, deepest] = level_n1[:, 0]
    return quality_nk


class _SelectorRecord(BaseModel):
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
    points: tuple[TradeoffPoint, ...]


def save_selector(folder: Path, selector: LearnedSelector) -> None:
    """Save it in the model folder `folder`, replacing one that may be there, in one step."""
    with atomic_folder(folder / FOLDER) as temporary:
        write_tensors(temporary / WEIGHTS, selector.network.state_dict())
        record = {
            "format": FORMAT,
            "model": file_sha256(folder / WEIGHTS_OF_MODEL),
            "weights": file_sha256(temporary / WEIGHTS),
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
) -> LearnedSelector | None:
    """The selector of the model folder `folder`, if it has one. `weights` is the model's checksum, where known."""
    there = folder / FOLDER
    if not there.is_dir():
        return None
    try:
        record = _read_record(there)
        if record.model != (weights or file_sha256(folder / WEIGHTS_OF_MODEL)):
            raise UserError(f"the selector in {there} was trained for another model: {_advice(folder)}")
        return _load(there, record, model, tokenizer, menu)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the selector in {there} is damaged ({reason}): {_advice(folder)}") from error


def _advice(folder: Path) -> str:
    return f"train it again (`anydepth select {folder}`), or delete that folder"


def _read_record(there: Path) -> _SelectorRecord:
    content = json.loads((there / CONFIG).read_text("utf-8"))
    if isinstance(content, dict) and isinstance(content.get("format"), int) and content["format"] > FORMAT:
        raise UserError(
            f"the selector in {there} was written by a newer anydepth: upgrade anydepth, or {_advice(there.parent)}"
        )
    try:
        return _SelectorRecord.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        raise ValueError(f"{CONFIG}, {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error


def _load(
    there: Path, record: _SelectorRecord, model: Transformer, tokenizer: Tokenizer, menu: DepthMenu
) -> LearnedSelector:
    if file_sha256(there / WEIGHTS) != record.weights:
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
    selector = LearnedSelector(
        network.to(model.positions_pd.device),
        SelectorReader(model, tokenizer, record.config.reads == "encoder"),
        record.depths,
        record.relative_costs,
        record.mean_length,
        record.threshold,
    )
    return selector.with_points(record.points).with_length_power(record.length_power)


def _check_shapes(record: _SelectorRecord, model: Transformer, tensors: dict[str, Tensor]) -> None:
    """Before any memory is taken for the network that config.json describes."""
    try:
        with torch.device("meta"):
            expected = DepthPredictor(record.config, model, len(record.depths)).state_dict()
    except UserError as error:
        raise ValueError(str(error)) from error
    if {name: value.shape for name, value in expected.items()} != {name: t.shape for name, t in tensors.items()}:
        raise ValueError(f"{WEIGHTS} does not fit {CONFIG}")
