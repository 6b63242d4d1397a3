"""How training computes: in which precision, and whether compiled."""

import os
import shutil
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from anydepth.config import TrainConfig
from anydepth.errors import UserError

COMPILERS = (os.environ.get("CXX", "c++"), "g++", "clang++", "cl")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_dtype(config: TrainConfig, device: torch.device) -> torch.dtype:
    """`auto` takes bfloat16 where the device computes in it; CPUs mostly emulate it, many times slower."""
    if config.precision != "auto":
        return DTYPES[config.precision]
    has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if has_bfloat16 else torch.float32


def check_computing(config: TrainConfig) -> None:
    """Refuse what cannot work, before anything is done."""
    if config.compile and not any(map(shutil.which, COMPILERS)):
        raise UserError("train.compile needs a C++ compiler: install one, such as g++, or leave out train.compile")
    if config.shard and config.precision == "float16":
        raise UserError(
            "train.shard goes with float32 or bfloat16, not with the loss scaling of float16: set train.precision"
        )


class Precision:
    """Mixed precision as the trainer needs it: a context for the forward pass and a scaler that may do nothing."""

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        self.device = device
        self.dtype = choose_dtype(config, device)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype == torch.float16)

    def context(self) -> AbstractContextManager[Any]:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)
