"""CTranslate2 behind the Translator: each depth in use is converted once; workers, not threads, use the cores.

It keeps the best of a beam by their probability, and we rank those by the length penalty: the first of an n-best list
is the same as with our own search, the last may not be.
"""

import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock

import ctranslate2

from anydepth.data import Tokenizer
from anydepth.depth import SubNetwork
from anydepth.engines.ctranslate2_format import convert, vocabulary_of, write
from anydepth.engines.shortlist import Shortlist
from anydepth.errors import UserError
from anydepth.infer.decoding import Candidate, SearchOptions, length_penalty
from anydepth.infer.engine import SearchBatch
from anydepth.infer.loaded import LoadedModel
from anydepth.infer.search import Found
from anydepth.word_depths.table import TokenDepths

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
        self._results = self._begin(texts, max(limits))

    def found(self) -> Found:
        results = [one.result() for one in self._results]
        return [
            self._engine.candidates(
                result if max(map(len, result.hypotheses)) <= limit else self._begin([text], limit)[0].result(),
                self._options,
            )
            for result, text, limit in zip(results, self._texts, self._limits, strict=True)
        ]

    def _begin(self, texts: list[list[str]], limit: int) -> list[ctranslate2.AsyncTranslationResult]:
        options = self._options
        begun: list[ctranslate2.AsyncTranslationResult] = self._translator.translate_batch(
            texts,
            asynchronous=True,
            beam_size=options.beam,
            num_hypotheses=options.beam,
            length_penalty=NEXT_TO_NO_PENALTY,
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=options.min_length,
            return_scores=options.scores or options.beam > 1,
            return_end_token=True,
            use_vmap=self._engine.shortlist is not None,
        )
        return begun


class CTranslate2Engine:
    """With a shortlist it searches among what the sources of a batch suggest, all together."""

    def __init__(
        self, loaded: LoadedModel, threads: int, quantization: str = "float32", shortlist: Shortlist | None = None
    ) -> None:
        self.loaded, self.threads, self.quantization, self.shortlist = loaded, threads, quantization, shortlist
        self._pieces = vocabulary_of(loaded.tokenizer)
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self._converted: dict[SubNetwork, ctranslate2.Translator] = {}
        self._lock = Lock()

    @property
    def name(self) -> str:
        return "ctranslate2" if self.quantization == "float32" else f"ctranslate2 {self.quantization}"

    def prepare(self, subs: Iterable[SubNetwork]) -> None:
        for sub in subs:
            self._translator(sub)

    def search(
        self,
        subs: Sequence[SubNetwork],
        batches: Iterable[SearchBatch],
        options: SearchOptions,
        token_depths: TokenDepths | None = None,
    ) -> Iterator[list[Found]]:
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
            tokens = [self._ids[piece] for piece in pieces]
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
                self.quantization,
                self.shortlist,
                self._pieces,
            )
            return self._open(Path(folder), self.quantization)

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
            raise UserError(f"CTranslate2 cannot run {self.quantization} here ({reason}): try int8") from error
