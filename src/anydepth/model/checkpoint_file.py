"""The tensors of a Hugging Face folder, read one by one: safetensors, or pytorch_model.bin without running its code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from anydepth.data.imported_tokenizer import read_object
from anydepth.errors import UserError

SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
KINDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


class CheckpointFile:
    """Where each tensor is; files are mapped into memory, not read as a whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places: dict[str, Callable[[str], Tensor]] = {}
        for file in self._files():
            (self._open_safe if file.suffix == ".safetensors" else self._open_pickled)(file)

    @property
    def names(self) -> list[str]:
        return list(self._places)

    @property
    def kind(self) -> str:
        """The type of its numbers, as safetensors calls it; of several the first one's."""
        name = next((one for one in self._places if one.endswith("weight")), None)
        dtype = torch.float32 if name is None else self.read(name).dtype
        if dtype not in KINDS:
            raise UserError(f"the weights of {self.folder} are {dtype}: take the model in float32, float16 or bfloat16")
        return KINDS[dtype]

    def read(self, name: str) -> Tensor:
        if name not in self._places:
            raise UserError(f"the weights of {self.folder} lack {name}: copy the whole model")
        return self._places[name](name)

    def _files(self) -> list[Path]:
        for name in (SAFE, PICKLED):
            if (self.folder / name).is_file():
                return [self.folder / name]
            if (index := self.folder / f"{name}.index.json").is_file():
                files = sorted(set(read_object(index).get("weight_map", {}).values()))
                return [self.folder / Path(str(file)).name for file in files]
        raise UserError(f"there are no weights in {self.folder}, neither {SAFE} nor {PICKLED}: copy the whole model")

    def _open_safe(self, path: Path) -> None:
        try:
            file: Any = safe_open(path, "pt")  # type: ignore[no-untyped-call]
            names = list(file.keys())
        except (OSError, SafetensorError) as error:
            raise self._damaged(path) from error

        def read(name: str) -> Tensor:
            try:
                tensor: Tensor = file.get_tensor(name)
            except SafetensorError as error:
                raise self._damaged(path) from error
            return tensor

        self._places |= dict.fromkeys(names, read)

    def _open_pickled(self, path: Path) -> None:
        """Only tensors are unpickled; anything else is refused."""
        try:
            tensors: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # torch has no type of its own for what it does not load
            raise UserError(
                f"{path} is damaged, or holds more than tensors, which anydepth does not run: save the model as {SAFE}"
            ) from error
        if not isinstance(tensors, dict) or not all(isinstance(one, Tensor) for one in tensors.values()):
            raise self._damaged(path)
        self._places |= dict.fromkeys(tensors, tensors.__getitem__)

    def _damaged(self, path: Path) -> UserError:
        return UserError(f"{path} is damaged or cut off: copy the model again")
