"""The CTranslate2 engine, and sub-networks in CTranslate2's format, which knows one depth per model.

The engine converts each depth in use once; workers, not threads, use the cores. CTranslate2 keeps the best of a beam by
their probability, and we rank those by the length penalty: the first of an n-best list is the same as with our own
search, the last may not be.

In the format, layer weights and ReZero's are taken into the last matrix of each branch, and layers that share their
parameters become copies. What may never be generated has a bias no other output can beat, so that users of the folder
need no option.
"""

import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import ctranslate2
import numpy as np
import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from numpy.typing import NDArray

from anydepth.artifact.model import LoadedModel
from anydepth.config.model import Activation as ActivationName
from anydepth.data import Tokenizer
from anydepth.depth import SubNetwork
from anydepth.engines.base import Candidate, SearchBatch, SearchOptions, SearchResult, check_exportable, length_penalty
from anydepth.engines.shortlist import VMAP, Shortlist
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.model.stack import Stack
from anydepth.word_depths.table import TokenDepths

NEVER = -1e4  # within the range of float16
ACTIVATIONS: dict[ActivationName, Activation] = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "gelu-tanh": Activation.GELUTanh,
    "swish": Activation.SWISH,
}
COMPUTE_TYPES = tuple(sorted({"int8", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32"}))
# With none at all CTranslate2 stops as soon as the best of the beam has ended; ours is put on afterwards.
NEXT_TO_NO_PENALTY = 1e-9


class _Begun:
    """A batch that one depth has been asked to translate.

    CTranslate2 has one limit for a batch. What ran beyond its own is rare, and translated again.
    """

    def __init__(
        self,
        engine: "CTranslate2Engine",
        translator: ctranslate2.Translator,
        texts: list[list[str]],
        limits: list[int],
        options: SearchOptions,
    ) -> None:
        self._engine, self._translator, self._options = engine, translator, options
        self._texts, self._limits = texts, limits
        self._before = int(options.first is not None)  # what CTranslate2 counts, too
        self._results = self._begin(texts, max(limits))

    def found(self) -> SearchResult:
        results = [one.result() for one in self._results]
        return [
            self._engine.candidates(
                result
                if max(map(len, result.hypotheses)) <= limit + self._before
                else self._begin([text], limit)[0].result(),
                self._options,
            )
            for result, text, limit in zip(results, self._texts, self._limits, strict=True)
        ]

    def _begin(self, texts: list[list[str]], limit: int) -> list[ctranslate2.AsyncTranslationResult]:
        options, before = self._options, self._before
        first = None if options.first is None else [[self._engine.piece(options.first)]] * len(texts)
        begun: list[ctranslate2.AsyncTranslationResult] = self._translator.translate_batch(
            texts,
            asynchronous=True,
            beam_size=options.beam,
            num_hypotheses=options.beam,
            length_penalty=NEXT_TO_NO_PENALTY,
            max_input_length=0,
            target_prefix=first,
            max_decoding_length=limit + before,
            min_decoding_length=options.min_length + before,
            return_scores=options.scores or options.beam > 1,
            return_end_token=True,
            use_vmap=self._engine.shortlist is not None,
        )
        return begun


class CTranslate2Engine:
    """With a shortlist it searches among what the sources of a batch suggest, all together."""

    def __init__(
        self, loaded: LoadedModel, threads: int, compute_type: str = "float32", shortlist: Shortlist | None = None
    ) -> None:
        self.loaded, self.threads, self.compute_type, self.shortlist = loaded, threads, compute_type, shortlist
        self._pieces = token_names(loaded.tokenizer)
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self._converted: dict[SubNetwork, ctranslate2.Translator] = {}
        self._lock = Lock()

    @property
    def search_shortlist(self) -> bool:
        return self.shortlist is not None

    @property
    def name(self) -> str:
        return "ctranslate2" if self.compute_type == "float32" else f"ctranslate2 {self.compute_type}"

    why_no_exits: str | None = "a model of CTranslate2 has one depth"

    def piece(self, token: int) -> str:
        return self._pieces[token]

    def prepare(self, subs: Iterable[SubNetwork]) -> None:
        for sub in subs:
            self._translator(sub)

    def search(
        self,
        subs: Sequence[SubNetwork],
        batches: Iterable[SearchBatch],
        options: SearchOptions,
        token_depths: TokenDepths | None = None,
    ) -> Iterator[list[SearchResult]]:
        """So many batches are under way at once that no worker waits for the next."""
        translators = [self._translator(sub) for sub in subs]
        waiting: deque[list[_Begun]] = deque()
        for batch in batches:
            texts = [[self._pieces[i] for i in source[:-1]] for source in batch.sources]  # EOS it adds itself
            waiting.append([_Begun(self, one, texts, batch.limits, options) for one in translators])
            if len(waiting) > 2 * self.threads:
                yield [begun.found() for begun in waiting.popleft()]
        while waiting:
            yield [begun.found() for begun in waiting.popleft()]

    def candidates(self, result: ctranslate2.TranslationResult, options: SearchOptions) -> list[Candidate]:
        """Scored and ordered as our own search does it."""
        scores = result.scores or [float("nan")] * len(result.hypotheses)
        found = []
        for pieces, score in zip(result.hypotheses, scores, strict=True):
            tokens = [self._ids[piece] for piece in pieces[options.first is not None :]]
            ended = tokens[-1:] == [Tokenizer.EOS]
            kept = tuple(tokens[:-1] if ended else tokens)
            found.append(Candidate(kept, score / length_penalty(len(tokens), options.length_penalty), ended))
        if options.beam > 1:
            found.sort(key=lambda one: -one.score)
        return found[: options.nbest]

    def _translator(self, sub: SubNetwork) -> ctranslate2.Translator:
        with self._lock:
            if sub not in self._converted:
                self._converted[sub] = self._convert(sub)
            return self._converted[sub]

    def _convert(self, sub: SubNetwork) -> ctranslate2.Translator:
        with tempfile.TemporaryDirectory() as folder:
            write(
                convert(self.loaded.model, sub, self._pieces),
                Path(folder),
                self.compute_type,
                self.shortlist,
                self._pieces,
            )
            return self._open(Path(folder), self.compute_type)

    def take(self, sub: SubNetwork, folder: Path) -> None:
        """Run this sub-network from a folder that it was written to, in that folder's type or the nearest there is."""
        self._converted[sub] = self._open(folder, "default")

    def _open(self, folder: Path, compute_type: str) -> ctranslate2.Translator:
        device = next(self.loaded.model.parameters()).device
        try:
            return ctranslate2.Translator(
                str(folder),
                device=device.type,
                device_index=device.index or 0,
                compute_type=compute_type,
                inter_threads=self.threads,
                intra_threads=1,
            )
        except (ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"CTranslate2 cannot run {self.compute_type} here ({reason}): try int8") from error


def token_names(tokenizer: Tokenizer) -> list[str]:
    """The names that CTranslate2 has for our token ids: sentencepiece's own."""
    return tokenizer.pieces(range(tokenizer.vocabulary_size))


def convert(model: Transformer, sub: SubNetwork, names: list[str]) -> TransformerSpec:
    """`names` are those of the token ids, see `token_names`."""
    config = model.config
    check_exportable(config, sub, "CTranslate2")
    after = config.norm == "post"
    spec = TransformerSpec.from_config(
        (len(sub.encoder), len(sub.decoder)),
        config.heads,
        pre_norm=not after,
        activation=ACTIVATIONS[config.activation],
        layernorm_embedding=config.norms_embeddings,
    )
    for side, stack, table, chosen, weights in (
        (spec.encoder, model.encoder, model.source_embedding, sub.encoder, sub.encoder_weights),
        (spec.decoder, model.decoder, model.target_embedding, sub.decoder, sub.decoder_weights),
    ):
        _embeddings(side, model, table, target=side is spec.decoder)
        if not after:
            _norm(side.layer_norm, stack.norm)
        for position, layer in enumerate(chosen):
            weight = _weight(stack, layer, 1.0 if weights is None else weights[position])
            _layer(side.layer[position], stack.layers[layer], weight)
    spec.decoder.projection.weight = _array(model.output.weight)
    bias = np.zeros(model.vocabulary, np.float32)
    if config.output_bias:
        bias += _array(model.output.bias)
    bias[: Tokenizer.EOS] = NEVER
    spec.decoder.projection.bias = bias
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = names[Tokenizer.UNK : Tokenizer.EOS + 1]
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    return spec


def write(
    spec: TransformerSpec,
    folder: Path,
    compute_type: str | None = None,
    shortlist: Shortlist | None = None,
    names: list[str] | None = None,
) -> None:
    """`folder` is there and empty. A shortlist goes with the model as `vmap.txt`, of these names of the token ids."""
    spec.optimize(quantization=None if compute_type == "float32" else compute_type)
    spec.save(str(folder))
    if shortlist is not None and names is not None:
        (folder / VMAP).write_text(shortlist.vmap(names), "utf-8")


def available() -> frozenset[str]:
    """The types that this CPU computes in; a folder in another is changed into one of these when it is loaded."""
    return frozenset(ctranslate2.get_supported_compute_types("cpu"))


def _embeddings(side: Any, model: Transformer, table: torch.nn.Embedding, *, target: bool) -> None:
    embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
    embeddings.weight = _array(table.weight)
    side.scale_embeddings = model.config.scales_embeddings
    own = target and model.target_positions is not None
    learned, norm = model.positions, model.embedding_norm
    if own:
        learned, norm = model.target_positions, model.target_embedding_norm
    positions = model.positions_pd if learned is None else learned.weight
    if model.types is not None:
        positions = positions + model.types.weight[0]
    side.position_encodings.encodings = _array(positions)
    if norm is not None:
        _norm(side.layernorm_embedding, norm)


def _weight(stack: Stack, layer: int, own: float) -> float:
    return own if stack.scales is None else own * float(stack.scales[layer].detach())


def _layer(target: Any, layer: Any, weight: float) -> None:
    _norm(target.self_attention.layer_norm, layer.attention_norm)
    _linear(target.self_attention.linear[0], layer.attention_qkv)
    _linear(target.self_attention.linear[1], layer.attention_out, weight)
    if hasattr(layer, "cross_norm"):
        _norm(target.attention.layer_norm, layer.cross_norm)
        _linear(target.attention.linear[0], layer.cross_query)
        _linear(target.attention.linear[1], layer.cross_key_value)
        _linear(target.attention.linear[2], layer.cross_out, weight)
    _norm(target.ffn.layer_norm, layer.ffn_norm)
    _linear(target.ffn.linear_0, layer.ffn_up)
    _linear(target.ffn.linear_1, layer.ffn_down, weight)


def _norm(target: Any, norm: Any) -> None:
    target.gamma, target.beta = _array(norm.weight), _array(norm.bias)


def _linear(target: Any, linear: torch.nn.Linear, weight: float = 1.0) -> None:
    target.weight, target.bias = _array(linear.weight * weight), _array(linear.bias * weight)


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = tensor.detach().float().cpu().contiguous().numpy().copy()
    return found
