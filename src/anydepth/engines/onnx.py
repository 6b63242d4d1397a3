"""The ONNX engine: our own search over graphs run by onnxruntime; and a sub-network as two ONNX graphs, the encoder
with all that is projected once, and one cached step of the decoder; or as one, if it classifies.

encoder.onnx   source_ids [b, s], source_mask [b, s] -> memory [2m, b, h, s, e]: keys and values of all decoder layers
decoder.onnx   token_ids [b], memory, source_mask, past [2m, b, h, t, e] -> logits [b, v], present [2m, b, h, t + 1, e]

model.onnx     input_ids [b, s], attention_mask [b, s], 0 at padding -> logits [b, c]: of each class

Shapes: b sentences (or beams), s source length, t positions so far, m decoder layers, h heads, e width of a head.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anydepth.data import Tokenizer, stacked
from anydepth.data.tokenizer import PretrainedTokenizer
from anydepth.depth import SubNetwork
from anydepth.engines.base import (
    Classified,
    ClassifierDepths,
    SearchBatch,
    SearchOptions,
    SearchResult,
    check_exportable,
)
from anydepth.engines.search import never, run_search
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.model.attention import project_memory
from anydepth.model.layers import DecoderWeights
from anydepth.word_depths.table import TokenDepths

ENCODER, DECODER, CLASSIFIER = "encoder.onnx", "decoder.onnx", "model.onnx"
QUIET = 3


class OnnxEngine:
    """Runs the one sub-network that was written to `folder`."""

    name, compute_type = "onnx", "float32"
    search_shortlist = False

    def __init__(self, sub: SubNetwork, folder: Path, threads: int) -> None:
        self.sub, self.threads = sub, threads
        self.encoder, self.decoder = (_session(folder / name, threads) for name in (ENCODER, DECODER))

    why_no_exits: str | None = "an ONNX graph has one depth"

    def prepare(self, subs: Iterable[SubNetwork]) -> None:
        _refuse_others(subs, self.sub)

    def search(
        self,
        subs: Sequence[SubNetwork],
        batches: Iterable[SearchBatch],
        options: SearchOptions,
        token_depths: TokenDepths | None = None,
    ) -> Iterator[list[SearchResult]]:
        self.prepare(subs)
        for sources, limits in batches:
            yield [run_search(_GraphSteps(self, sources), limits, options) for _ in subs]


class _GraphSteps:
    """`Steps` of search: see search.py."""

    device = torch.device("cpu")

    def __init__(self, engine: OnnxEngine, sources: list[list[int]]) -> None:
        self._decoder = engine.decoder
        source_bs = stacked(sources).numpy()
        self._mask_bs = source_bs != Tokenizer.PAD
        (self._memory,) = engine.encoder.run(None, {"source_ids": source_bs, "source_mask": self._mask_bs})
        layers, _, heads, _, width = self._memory.shape
        self._past: NDArray[np.float32] = np.zeros((layers, len(sources), heads, 0, width), np.float32)
        self.ran: list[int] = []

    def step(self, tokens_r: Tensor) -> Tensor:
        beams = len(tokens_r) // len(self._mask_bs)
        inputs = {
            "token_ids": tokens_r.numpy(),
            "memory": self._memory.repeat(beams, 1),
            "source_mask": self._mask_bs.repeat(beams, 0),
            "past": self._past,
        }
        logits_rv, self._past = self._decoder.run(None, inputs)
        self.ran = [len(self._memory)] * len(tokens_r)
        return torch.from_numpy(logits_rv)

    def keep_rows(self, rows: Tensor) -> None:
        self._past = self._past[:, rows.numpy()]

    def keep_sentences(self, sentences: Tensor) -> None:
        self._memory, self._mask_bs = self._memory[:, sentences.numpy()], self._mask_bs[sentences.numpy()]


class OnnxClassifier:
    """A `ClassifierEngine` of the one sub-network that was written to `path`, for this tokenizer."""

    name = "onnx"

    def __init__(
        self, sub: SubNetwork, path: Path, threads: int, tokenizer: Tokenizer, compute_type: str = "float32"
    ) -> None:
        self.sub, self.threads, self.compute_type = sub, threads, compute_type
        self._order = onnx_ids(tokenizer)
        self._session = _session(path, threads)

    def prepare(self, subs: Iterable[SubNetwork]) -> None:
        _refuse_others(subs, self.sub)

    def classify(self, sub: SubNetwork, sources: list[list[int]], depths: ClassifierDepths) -> list[Classified]:
        self.prepare([sub])
        if depths.exit_rule is not None:
            raise UserError("an ONNX graph runs all its layers: leave out the exit")
        source_bs = stacked(sources).numpy()
        mask_bs = (source_bs != Tokenizer.PAD).astype(np.int64)
        ids_bs = source_bs if self._order is None else self._order[source_bs]
        (logits_bc,) = self._session.run(None, {"input_ids": ids_bs, "attention_mask": mask_bs})
        shares_bc = np.exp(logits_bc - logits_bc.max(axis=1, keepdims=True))
        shares_bc /= shares_bc.sum(axis=1, keepdims=True)
        layers = len(sub.encoder)
        return [
            Classified(row, np.full(len(one), layers)) for row, one in zip(shares_bc.tolist(), sources, strict=True)
        ]


def onnx_ids(tokenizer: Tokenizer) -> NDArray[np.int64] | None:
    """A graph takes the ids of a tokenizer.json as they are there: for each of ours the one there. None: the same."""
    return np.array(tokenizer.order, np.int64) if isinstance(tokenizer, PretrainedTokenizer) else None


def write_onnx_classifier(model: Transformer, sub: SubNetwork, path: Path, tokenizer: Tokenizer) -> None:
    """One graph in float32, in one file with its weights."""
    check_exportable(model.config, sub, "ONNX", classifies=True)
    batch, source = torch.export.Dim("b", min=1), torch.export.Dim("s", min=1, max=model.config.max_length)
    shape = {0: batch, 1: source}
    _write(
        _Classifier(model, sub, onnx_ids(tokenizer)),
        path,
        {"input_ids": torch.full((2, 5), 5), "attention_mask": torch.ones(2, 5, dtype=torch.int64)},
        ["logits"],
        {"input_ids": shape, "attention_mask": shape},
    )


class _Classifier(nn.Module):
    own_v: Tensor  # our ids by those of the tokenizer.json

    def __init__(self, model: Transformer, sub: SubNetwork, order: NDArray[np.int64] | None) -> None:
        super().__init__()
        self.model, self.sub, self.renumbers = model, sub, order is not None
        if order is not None:
            self.register_buffer("own_v", torch.from_numpy(np.argsort(order)))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        ids_bs = self.own_v[input_ids] if self.renumbers else input_ids
        padding_bs = attention_mask == 0
        state_bsd = self.model.encode(ids_bs, self.sub, padding_bs)[-1]
        logits_bc: Tensor = self.model.output(self.model.read_out(state_bsd, padding_bs))
        return logits_bc


def _session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, QUIET
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _refuse_others(subs: Iterable[SubNetwork], there: SubNetwork) -> None:
    if set(subs) - {there}:
        raise UserError(f"this export has one depth, {there.name}: name that, or export another")


def write_onnx(model: Transformer, sub: SubNetwork, folder: Path) -> None:
    """Both graphs, in float32, each one file with its weights."""
    config = model.config
    check_exportable(config, sub, "ONNX")
    heads, width = config.heads, config.width // config.heads
    batch, source = torch.export.Dim("b", min=1), torch.export.Dim("s", min=1, max=config.max_length)
    past = torch.export.Dim("t", min=0, max=config.max_length - 1)
    ids, mask = torch.full((2, 5), 5), torch.ones(2, 5, dtype=torch.bool)
    memory = torch.zeros(2 * len(sub.decoder), 2, heads, 5, width)
    earlier = torch.zeros(2 * len(sub.decoder), 2, heads, 3, width)
    _write(
        _EncoderGraph(model, sub),
        folder / ENCODER,
        {"source_ids": ids, "source_mask": mask},
        ["memory"],
        {"source_ids": {0: batch, 1: source}, "source_mask": {0: batch, 1: source}},
    )
    _write(
        _DecoderGraph(model, sub),
        folder / DECODER,
        {"token_ids": ids[:, 0], "memory": memory, "source_mask": mask, "past": earlier},
        ["logits", "present"],
        {
            "token_ids": {0: batch},
            "memory": {1: batch, 3: source},
            "source_mask": {0: batch, 1: source},
            "past": {1: batch, 3: past},
        },
    )


def _weights(model: Transformer, sub: SubNetwork) -> list[DecoderWeights]:
    return [model.decoder.layers[index].weights() for index in sub.decoder]  # type: ignore[operator]


class _EncoderGraph(nn.Module):
    def __init__(self, model: Transformer, sub: SubNetwork) -> None:
        super().__init__()
        self.model, self.sub = model, sub

    def forward(self, source_ids: Tensor, source_mask: Tensor) -> Tensor:
        memory_bsd = self.model.memory(self.model.encode(source_ids, self.sub, ~source_mask)[-1])
        heads = self.model.config.heads
        projected = [project_memory(memory_bsd, w.cross, heads) for w in _weights(self.model, self.sub)]
        return torch.stack([each for pair in projected for each in pair])


class _DecoderGraph(nn.Module):
    """What may never be generated is ruled out in the graph: the largest logit is a token to go on with."""

    never_v: Tensor

    def __init__(self, model: Transformer, sub: SubNetwork) -> None:
        super().__init__()
        self.model, self.sub = model, sub
        self.register_buffer("never_v", never(torch.zeros(1, model.vocabulary))[0])

    def forward(self, token_ids: Tensor, memory: Tensor, source_mask: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        cache = _GraphCache(_weights(self.model, self.sub), memory, past)
        nothing = memory.new_zeros(0)  # the encoder's exit is not read any more: its projections are there
        states = self.model.decode(token_ids[:, None], nothing, self.sub, ~source_mask, cache)  # type: ignore[arg-type]
        logits_bv = self.model.output(self.model.features(states[-1][:, -1])) + self.never_v
        return logits_bv, torch.stack([each for layer in cache.layers for each in layer.present])


class _GraphCache:
    """A `DecoderCache` that writes nothing in place, as a graph wants it."""

    def __init__(self, weights: list[DecoderWeights], memory: Tensor, past: Tensor) -> None:
        self.length = past.shape[3]
        self.layers = [
            _GraphLayerCache(*of_layer) for of_layer in zip(weights, _pairs(memory), _pairs(past), strict=True)
        ]

    def advance(self, positions: int, exits_r1d: None = None) -> None:
        self.length += positions


class _GraphLayerCache:
    def __init__(self, weights: DecoderWeights, memory: tuple[Tensor, Tensor], past: tuple[Tensor, Tensor]) -> None:
        self.weights, self.memory, self.present = weights, memory, past

    def left_behind(self) -> None:
        """No token leaves early."""

    def append(self, key_value_2rhte: Tensor) -> tuple[Tensor, Tensor]:
        key, value = key_value_2rhte.unbind(0)
        self.present = torch.cat([self.present[0], key], dim=2), torch.cat([self.present[1], value], dim=2)
        return self.present


def _pairs(stacked: Tensor) -> list[tuple[Tensor, Tensor]]:
    each = stacked.unbind(0)
    return list(zip(each[::2], each[1::2], strict=True))


def _write(
    module: nn.Module, path: Path, inputs: dict[str, Tensor], outputs: list[str], shapes: dict[str, object]
) -> None:
    with torch.inference_mode(), _quietly():
        program = torch.onnx.export(
            module.eval(),
            kwargs=inputs,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes=shapes,
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        graph = program.model_proto
        # The exporter leaves shapes of matrices as they were before it turned them, which quantizers refuse.
        del graph.graph.value_info[:]
        path.write_bytes(graph.SerializeToString())


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """The exporter logs and warns a great deal."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
