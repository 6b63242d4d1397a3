"""The weights of a model folder or file, read when an engine asks for them."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from anydepth.artifact.folder import WEIGHTS, FolderConfig, check_files, check_shapes, make_model
from anydepth.artifact.model_file import ModelFile
from anydepth.config import ModelConfig
from anydepth.depth import SubNetwork
from anydepth.device import apply_torch_threads, choose_device
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.artifact.arrays import Floats32, ModelArrays
    from anydepth.model import Transformer

OF_LAYER = re.compile(r"(encoder|decoder)\.(?:layers|dense\.rows|dense\.norms)\.\d+\b")


class StoredWeights:
    """The weights of a model folder, read when they are first asked for.

    Only `model` needs PyTorch. An engine that has the model in a form of its own never asks.
    """

    def __init__(self, folder: Path, config: FolderConfig, device: str) -> None:
        self.folder, self.folder_config, self.device = folder, config, device
        self.config = config.model
        self.fingerprints: dict[str, str] = {}  # those that are known, of models with these weights, by `text_parts`

    @cached_property
    def model(self) -> "Transformer":
        from safetensors.torch import load_file

        with damaged(self.folder):
            check_files(self.folder, self.folder_config, (WEIGHTS,))
            model = make_model(self.folder_config, load_file(self.folder / WEIGHTS))
        apply_torch_threads()
        arrange_for_decoding(model.to(choose_device(self.device)).eval())
        return model

    @property
    def is_in_memory(self) -> bool:
        """Whether PyTorch's model was asked for."""
        return "model" in vars(self)

    @cached_property
    def arrays(self) -> "ModelArrays":
        """In NumPy, as they are in the file."""
        from anydepth.artifact.arrays import ModelArrays, StoredArrays  # NumPy, which many starts do without

        config = self.folder_config
        with damaged(self.folder):
            check_files(self.folder, config, (WEIGHTS,))
            stored = StoredArrays(self.folder / WEIGHTS)
            check_shapes(config, stored.shapes)

        def read(name: str) -> "Floats32":
            with damaged(self.folder):
                return stored.read(name)

        return ModelArrays(config.model, config.vocabulary, len(config.labels), read)

    def parameters(self, sub: SubNetwork) -> int:
        """How many a sub-network uses, by the names and shapes in the file: each tensor is there once."""
        used = {
            "encoder": _used_names("encoder", sub.encoder, self.config.encoder_pattern),
            "decoder": _used_names("decoder", sub.decoder, self.config.decoder_pattern),
        }
        total = 0
        with damaged(self.folder), safe_open(self.folder / WEIGHTS, "numpy") as file:
            for name in file.keys():  # noqa: SIM118 - it is no dictionary
                of_layer = OF_LAYER.match(name)
                if of_layer is None or of_layer[0] in used[of_layer[1]]:
                    total += math.prod(file.get_slice(name).get_shape())
        return total


def _used_names(stack: str, chosen: Sequence[int], pattern: Sequence[int]) -> set[str]:
    """How the names of what belongs to these layers begin. Layers that share weights have those of the first one."""
    layers = {pattern.index(pattern[layer]) for layer in chosen}
    sums = {0, *(layer + 1 for layer in chosen)}  # of dense connections
    dense = {f"{stack}.dense.{part}.{number}" for part in ("rows", "norms") for number in sums}
    return {f"{stack}.layers.{layer}" for layer in layers} | dense


class FileWeights:
    """Those of a model file, which only the native engine reads."""

    device = "cpu"

    def __init__(self, file: ModelFile, config: ModelConfig) -> None:
        self.file, self.config = file, config

    @property
    def model(self) -> "Transformer":
        raise UserError(
            f'{self.file.path} has the weights of the native engine only: use engine="native", or the model folder '
            "that it was exported from"
        )


@contextmanager
def damaged(where: Path, kind: str = "folder") -> Iterator[None]:
    """Whatever goes wrong with what is in a model folder or file, in one line."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if isinstance(error, OSError) and error.filename is not None:
            reason = f"{Path(error.filename).name}: {error.strerror}"
        raise UserError(f"the model {kind} {where} is damaged ({reason}): copy it again") from error


def arrange_for_decoding(model: "Transformer") -> None:
    """Store every matrix column by column: same values and shape, and products with few rows run faster on a CPU.

    Decoding one sentence is bound by reading weights; in this order the product of one row streams through them.
    """
    import torch
    from torch import nn

    if next(model.parameters()).device.type != "cpu":
        return
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.data = module.weight.data.t().contiguous().t()
