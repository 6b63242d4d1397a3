"""Our own search over ONNX graphs run by onnxruntime: how an export is checked, and how it can be used."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor

from anydepth.data import Tokenizer, stacked
from anydepth.depth import SubNetwork
from anydepth.engines.onnx_format import DECODER, ENCODER
from anydepth.errors import UserError
from anydepth.infer.decoding import SearchOptions
from anydepth.infer.engine import SearchBatch
from anydepth.infer.search import Found, run
from anydepth.word_depths.table import TokenDepths

QUIET = 3


class OnnxEngine:
    """Runs the one sub-network that was written to `folder`."""

    name = "onnx"

    def __init__(self, sub: SubNetwork, folder: Path, threads: int) -> None:
        self.sub, self.threads = sub, threads
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, QUIET
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
            for name in (ENCODER, DECODER)
        )

    def prepare(self, subs: Iterable[SubNetwork]) -> None:
        if set(subs) - {self.sub}:
            raise UserError(f"this export has one depth, {self.sub.name}: name that, or export another")

    def search(
        self,
        subs: Sequence[SubNetwork],
        batches: Iterable[SearchBatch],
        options: SearchOptions,
        token_depths: TokenDepths | None = None,
    ) -> Iterator[list[Found]]:
        self.prepare(subs)
        for sources, limits in batches:
            yield [run(_Steps(self, sources), limits, options) for _ in subs]


class _Steps:
    """`Steps` of search: see infer/decoding.py."""

    device = torch.device("cpu")

    def __init__(self, engine: OnnxEngine, sources: list[list[int]]) -> None:
        self._decoder = engine.decoder
        source_bs = stacked(sources).numpy()
        self._mask_bs = source_bs != Tokenizer.PAD
        (self._memory,) = engine.encoder.run(None, {"source_ids": source_bs, "source_mask": self._mask_bs})
        layers, _, heads, _, width = self._memory.shape
        self._past: NDArray[np.float32] = np.zeros((layers, len(sources), heads, 0, width), np.float32)

    def step(self, tokens_r: Tensor) -> Tensor:
        beams = len(tokens_r) // len(self._mask_bs)
        inputs = {
            "token_ids": tokens_r.numpy(),
            "memory": self._memory.repeat(beams, 1),
            "source_mask": self._mask_bs.repeat(beams, 0),
            "past": self._past,
        }
        logits_rv, self._past = self._decoder.run(None, inputs)
        return torch.from_numpy(logits_rv)

    def keep_rows(self, rows: Tensor) -> None:
        self._past = self._past[:, rows.numpy()]

    def keep_sentences(self, sentences: Tensor) -> None:
        self._memory, self._mask_bs = self._memory[:, sentences.numpy()], self._mask_bs[sentences.numpy()]
