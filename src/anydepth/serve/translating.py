"""Requests to translate: from fields to an answer."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from anydepth.artifact.folder import LanguagePair
from anydepth.data.tokenizer import encodable
from anydepth.errors import UserError
from anydepth.export.sample import Sample
from anydepth.infer.translator import Translator
from anydepth.serve.about import EXAMPLES, depths_of, frontend_settings, language_name, languages
from anydepth.serve.depths import Depths
from anydepth.serve.errors import ApiError, SlowError
from anydepth.serve.logs import LOG
from anydepth.serve.metrics import Metrics
from anydepth.serve.queue import Queue
from anydepth.serve.requests import alternatives_of, number_field, text_field, texts_of
from anydepth.serve.segments import Segment, split
from anydepth.serve.settings import Settings
from anydepth.serve.waiting import Lines, all_of
from anydepth.serve.workers import Task

TEXT, AUTO_SOURCE = "text", "auto"
SHORT = 1_000  # characters


@dataclass
class Piece:
    """A sentence of a request, where it runs, and the translations that come of it, the best first."""

    segment: Segment
    depth: str = ""
    result: "asyncio.Future[tuple[list[str], bool]] | None" = None

    def translations(self) -> list[str]:
        return [self.segment.text] if self.result is None else self.result.result()[0]

    @property
    def is_cut(self) -> bool:
        """Its translation did not end within the limit."""
        return self.result is not None and self.result.result()[1]


@dataclass(frozen=True)
class Asked:
    """What a request asks for, checked."""

    texts: list[str]
    as_list: bool
    pair: LanguagePair
    detected: bool  # the source language was left to us
    alternatives: int
    depth: str | None
    budget: float | None  # seconds


@dataclass(frozen=True)
class Job:
    """A request that has begun: its texts as pieces."""

    asked: Asked
    texts: list[list[Piece]]

    @property
    def pieces(self) -> list[Piece]:
        return [piece for text in self.texts for piece in text]

    @property
    def results(self) -> "list[asyncio.Future[tuple[list[str], bool]]]":
        return [piece.result for piece in self.pieces if piece.result is not None]


class Translating:
    """Everything that takes long is done when it is made, and whatever is wrong with the set-up is found then."""

    def __init__(self, translator: Translator, settings: Settings, sample: Sample) -> None:
        self.translator, self.settings, self.sample = translator, settings, sample
        self._depths: dict[LanguagePair, Depths] = {}
        for pair in translator.pairs if translator.must_choose else translator.pairs[:1]:
            one = translator.between(pair.source, pair.target) if len(translator.pairs) > 1 else translator
            self._depths[pair] = Depths(one, pair, settings, sample)

    def attach(self, queue: Queue, metrics: Metrics) -> None:
        self.queue, self.metrics = queue, metrics

    async def translate(self, request: Request, fields: dict[str, Any], began: float) -> dict[str, Any]:
        asked = self._asked(fields)
        job = await self._begin(request, asked)
        await all_of(job.results, request, self.settings.limits.seconds, self.metrics)
        answer: dict[str, Any] = {"translatedText": [_joined(text, 0) for text in job.texts]}
        if asked.alternatives:
            answer["alternatives"] = [_alternatives(text, asked.alternatives) for text in job.texts]
        if asked.detected:
            answer["detectedLanguage"] = [_detected(asked.pair.source) for _ in job.texts]
        answer["depth"] = [_depths_of(text) for text in job.texts]
        if any(piece.is_cut for piece in job.pieces):
            answer["cut"] = [any(piece.is_cut for piece in text) for text in job.texts]
        if not asked.as_list:
            answer = {name: values[0] for name, values in answer.items()}
        return answer | {"milliseconds": _since(began), "engine": self.engine}

    async def stream(self, request: Request, fields: dict[str, Any], began: float) -> Response:
        if isinstance(fields.get("q"), list):
            raise ApiError(400, "Invalid request: a stream is of one text")
        asked = self._asked(fields)
        if asked.alternatives:
            raise ApiError(400, "Invalid request: a stream has no alternatives")
        job = await self._begin(request, asked)
        return Lines(self._lines(job, began), job.results, self.metrics)

    async def _lines(self, job: Job, began: float) -> AsyncIterator[str]:
        """A line for each piece as it becomes ready; the status has been sent, so that errors are lines too."""
        try:
            async with asyncio.timeout(self.settings.limits.seconds):
                for piece in job.pieces:
                    if piece.result is not None:
                        await piece.result
                    text = piece.segment.around(piece.translations()[0])
                    yield _line(text=text, depth=piece.depth, **({"cut": True} if piece.is_cut else {}))
            yield _line(done=True, milliseconds=_since(began), engine=self.engine)
        except Exception as error:
            for result in job.results:
                result.cancel()
            yield _line(error=self._said(error))

    def _said(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return SlowError(self.settings.limits.seconds).message
        if isinstance(error, UserError):
            return f"Invalid request: {error}"
        LOG.error("failure", exc_info=error)
        return "Cannot translate text: the server's log says why"

    @property
    def engine(self) -> str:
        return self.translator.engine.name

    def _asked(self, fields: dict[str, Any]) -> Asked:
        texts, as_list = texts_of(fields, self.settings.limits)
        source, target = text_field(fields, "source", required=True), text_field(fields, "target", required=True)
        wanted = text_field(fields, "format") or TEXT
        if wanted != TEXT:
            raise ApiError(400, f"{_shown(wanted)} format is not supported")
        alternatives = alternatives_of(fields, self.settings.limits)
        depth, budget = text_field(fields, "depth"), number_field(fields, "budget_ms", positive=True)
        pair = self._pair(str(source), str(target))
        seconds = None if budget is None else budget / 1000
        return Asked(texts, as_list, pair, source == AUTO_SOURCE, alternatives, depth, seconds)

    async def _begin(self, request: Request, asked: Asked) -> Job:
        """Everything that can be wrong is found before anything waits in the queue."""
        characters = sum(map(len, asked.texts))
        # to split much text takes so long that others would notice
        texts = self._planned(asked) if characters < SHORT else await asyncio.to_thread(self._planned, asked)
        running = [piece for text in texts for piece in text if piece.depth]
        self._add(running, asked)
        request.state.log |= {
            "texts": len(texts),
            "sentences": len(running),
            "characters": characters,
            "depth": ", ".join(dict.fromkeys(piece.depth for piece in running)),
        }
        self.metrics.characters.inc(characters)
        return Job(asked, texts)

    def _planned(self, asked: Asked) -> list[list[Piece]]:
        """The texts in pieces, each with its depth if there is anything to translate in it."""
        texts = [[Piece(segment) for segment in self._split(text, asked.pair)] for text in asked.texts]
        running = [piece for text in texts for piece in text if piece.segment.is_for_the_model]
        sentences = [piece.segment.text for piece in running]
        names = self._of(asked.pair).choose(sentences, asked.depth, asked.budget)
        for piece, name in zip(running, names, strict=True):
            piece.depth = name
        return texts

    def _add(self, pieces: Sequence[Piece], asked: Asked) -> None:
        """All of them, or, if the queue is too full for all, none."""
        self.queue.check_room(len(pieces))
        pair = (asked.pair.source, asked.pair.target) if self.translator.must_choose else None
        beam, nbest = max(self.settings.beam, asked.alternatives + 1), asked.alternatives + 1
        of_depth: dict[str, list[Piece]] = {}
        for piece in pieces:
            of_depth.setdefault(piece.depth, []).append(piece)
        for depth, group in of_depth.items():
            results = self.queue.add(Task(depth, pair, beam, nbest), [piece.segment.text for piece in group])
            for piece, result in zip(group, results, strict=True):
                piece.result = result

    def _of(self, pair: LanguagePair) -> Depths:
        return self._depths.get(pair) or next(iter(self._depths.values()))

    def _pair(self, source: str, target: str) -> LanguagePair:
        """Where the source is left to us, there must be one only."""
        pairs = self.translator.pairs
        known = {code for pair in pairs for code in (pair.source, pair.target)}
        for code in (source, target):
            if code not in known and code != AUTO_SOURCE:
                raise ApiError(400, f"{_shown(code)} is not supported")
        fitting = [pair for pair in pairs if pair.target == target and source in (pair.source, AUTO_SOURCE)]
        if not fitting:
            into, of = (f"{language_name(code)} ({code})" for code in (target, source))
            raise ApiError(400, f"{into} is not available as a target language from {of}")
        if len(fitting) > 1 and self.translator.must_choose:
            names = ", ".join(pair.source for pair in fitting)
            raise ApiError(400, f"Invalid request: the source language is not detected, name one of {names}")
        return fitting[0]

    def _split(self, text: str, pair: LanguagePair) -> list[Segment]:
        translator = self._of(pair).translator
        longest = min(translator.longest_source, self.settings.limits.sentence)
        return split(
            encodable(text).replace("\0", " "),
            pair.source,
            lambda piece: len(translator.tokenizer.encode(piece)) <= longest,
        )

    def detected(self) -> list[dict[str, Any]]:
        sources = dict.fromkeys(pair.source for pair in self.translator.pairs)
        if len(sources) > 1:
            raise ApiError(400, "Invalid request: this server does not detect languages")
        return [_detected(next(iter(sources)))]

    def languages(self) -> list[dict[str, Any]]:
        return languages(self.translator.pairs)

    def frontend_settings(self) -> dict[str, Any]:
        return frontend_settings(self.translator.pairs[0], self.settings.limits.characters)

    def about(self) -> dict[str, Any]:
        examples = self.sample.sources[:EXAMPLES] if self.sample.in_model else []
        limits = self.settings.limits
        return {
            "kind": "translation",
            "engine": self.engine,
            "languages": self.languages(),
            "pairs": {pair.name: depths_of(depths, examples) for pair, depths in self._depths.items()},
            "limits": {"characters": limits.characters, "alternatives": limits.alternatives},
        }


def _joined(text: list[Piece], rank: int) -> str:
    """The translation made of each piece's `rank`-th best, or its last where there are fewer."""
    found = [(piece, piece.translations()) for piece in text]
    return "".join(piece.segment.around(one[min(rank, len(one) - 1)]) for piece, one in found)


def _alternatives(text: list[Piece], count: int) -> list[str]:
    ranked = [_joined(text, rank) for rank in range(count + 1)]
    return list(dict.fromkeys(one for one in ranked[1:] if one != ranked[0]))


def _depths_of(text: list[Piece]) -> str:
    return ", ".join(dict.fromkeys(piece.depth for piece in text if piece.depth))


def _detected(language: str) -> dict[str, Any]:
    """Nothing was detected: it is the only one that the model knows."""
    return {"confidence": 0.0, "language": language}


def _line(**content: Any) -> str:
    return json.dumps(content, ensure_ascii=False) + "\n"


def _since(began: float) -> float:
    return round(1000 * (time.perf_counter() - began), 2)


def _shown(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."
