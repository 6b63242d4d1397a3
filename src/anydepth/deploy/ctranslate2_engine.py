"""CTranslate2 behind the Translator: each depth in use is converted once; workers, not threads, use the cores."""

import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock

import ctranslate2

from anydepth.deploy.ctranslate2_format import convert, vocabulary_of, write
from anydepth.depth import SubNetwork
from anydepth.errors import UserError
from anydepth.infer.decoding import Candidate, SearchOptions, length_penalty
from anydepth.infer.engine import SearchBatch
from anydepth.infer.loaded import LoadedModel
from anydepth.infer.search import Found
from anydepth.select.token_depths import TokenDepths
from anydepth.text import Tokenizer

# With none at all CTranslate2 stops as soon as the best of the beam has ended; ours is put on afterwards.
NEXT_TO_NO_PENALTY = 1e-9


class CTranslate2Engine:
    def __init__(self, loaded: LoadedModel, threads: int, quantization: str = "float32") -> None:
        self.loaded, self.threads, self.quantization = loaded, threads, quantization
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
        waiting: deque[tuple[SearchBatch, list[list[ctranslate2.AsyncTranslationResult]]]] = deque()
        for batch in batches:
            texts = [[self._pieces[i] for i in source[:-1]] for source in batch.sources]  # EOS it adds itself
            begun = [self._begin(translator, texts, max(batch.limits), options) for translator in translators]
            waiting.append((batch, begun))
            if len(waiting) > 2 * self.threads:
                yield self._finished(*waiting.popleft(), options)
        while waiting:
            yield self._finished(*waiting.popleft(), options)

    def _begin(
        self, translator: ctranslate2.Translator, texts: list[list[str]], limit: int, options: SearchOptions
    ) -> list[ctranslate2.AsyncTranslationResult]:
        begun: list[ctranslate2.AsyncTranslationResult] = translator.translate_batch(
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
        )
        return begun

    def _finished(
        self, batch: SearchBatch, begun: list[list[ctranslate2.AsyncTranslationResult]], options: SearchOptions
    ) -> list[Found]:
        return [
            [self._candidates(one.result(), limit, options) for one, limit in zip(found, batch.limits, strict=True)]
            for found in begun
        ]

    def _candidates(self, result: ctranslate2.TranslationResult, limit: int, options: SearchOptions) -> list[Candidate]:
        """Scored, ordered and cut to their limit as our own search does it: a limit here is that of the batch."""
        scores = result.scores or [float("nan")] * len(result.hypotheses)
        found = []
        for pieces, score in zip(result.hypotheses, scores, strict=True):
            tokens = [self._ids[piece] for piece in pieces]
            length = min(len(tokens), limit)
            ended = tokens[length - 1 : length] == [Tokenizer.EOS]
            kept = tuple(tokens[: length - 1] if ended else tokens[:length])
            found.append(Candidate(kept, score / length_penalty(length, options.length_penalty), ended))
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
            write(convert(self.loaded.model, sub, self.loaded.tokenizer), Path(folder), self.quantization)
            return self._open(Path(folder))

    def take(self, sub: SubNetwork, folder: Path) -> None:
        """Run this sub-network from a folder that it was written to."""
        self._converted[sub] = self._open(folder)

    def _open(self, folder: Path) -> ctranslate2.Translator:
        device = next(self.loaded.model.parameters()).device
        try:
            return ctranslate2.Translator(
                str(folder),
                device=device.type,
                device_index=device.index or 0,
                compute_type=self.quantization,
                inter_threads=self.threads,
                intra_threads=1,
            )
        except (ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"CTranslate2 cannot run {self.quantization} here ({reason}): try int8") from error
