"""Requests to translate: from fields to an answer."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from babel import Locale
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from anydepth.deploy.sample import Sample
from anydepth.deploy.server.depths import Depths, time_depths
from anydepth.deploy.server.errors import ApiError
from anydepth.deploy.server.metrics import Metrics
from anydepth.deploy.server.queue import Queue
from anydepth.deploy.server.requests import alternatives_of, number_field, text_field, texts_of
from anydepth.deploy.server.segments import Segment, split
from anydepth.deploy.server.settings import Settings
from anydepth.deploy.server.waiting import all_of
from anydepth.deploy.server.workers import Task
from anydepth.errors import UserError
from anydepth.infer.translator import Translator
from anydepth.text.tokenizer import encodable

TEXT, AUTO_SOURCE = "text", "auto"
SHORT = 2_000  # characters
LANGUAGE_NAMES = Locale("en").languages


@dataclass
class Piece:
    """A sentence of a request, where it runs, and the translations that came of it, the best first."""

    segment: Segment
    depth: str = ""
    result: "asyncio.Future[list[str]] | None" = None

    def translations(self) -> list[str]:
        return [self.segment.text] if self.result is None else self.result.result()


@dataclass(frozen=True)
class Job:
    """A request that has begun: its texts as pieces."""

    texts: list[list[Piece]]
    as_list: bool
    alternatives: int
    detected: str | None  # the source language, if the client left it to us

    @property
    def pieces(self) -> list[Piece]:
        return [piece for text in self.texts for piece in text]

    @property
    def results(self) -> "list[asyncio.Future[list[str]]]":
        return [piece.result for piece in self.pieces if piece.result is not None]


class Translating:
    def __init__(self, translator: Translator, settings: Settings, sample: Sample) -> None:
        self.translator, self.settings, self.sample = translator, settings, sample
        chosen = translator.pairs if translator.must_choose else translator.pairs[:1]
        several = len(translator.pairs) > 1
        self._of_pair = {
            pair.name: translator.between(pair.source, pair.target) if several else translator for pair in chosen
        }
        self._depths: dict[str, Depths] = {}

    def attach(self, queue: Queue, metrics: Metrics) -> None:
        self.queue, self.metrics = queue, metrics

    def warm_up(self) -> None:
        """Each depth runs before anyone waits for it, and is timed on the way."""
        for name, translator in self._of_pair.items():
            timing = time_depths(translator, self.sample, self.settings.beam)
            self._depths[name] = Depths(translator, self.settings, timing)

    async def translate(self, request: Request, fields: dict[str, Any], began: float) -> dict[str, Any]:
        job = await self._begin(request, fields)
        await all_of(job.results, request, self.settings.limits.seconds, self.metrics)
        answer: dict[str, Any] = {"translatedText": [_joined(text, 0) for text in job.texts]}
        if job.alternatives:
            answer["alternatives"] = [_alternatives(text, job.alternatives) for text in job.texts]
        if job.detected:
            answer["detectedLanguage"] = [_detected(job.detected) for _ in job.texts]
        answer["depth"] = [_depths_of(text) for text in job.texts]
        if not job.as_list:
            answer = {name: values[0] for name, values in answer.items()}
        return answer | {"milliseconds": round(1000 * (time.perf_counter() - began), 2), "engine": self.engine}

    async def stream(self, request: Request, fields: dict[str, Any], began: float) -> Response:
        if isinstance(fields.get("q"), list):
            raise ApiError(400, "Invalid request: a stream is of one text")
        job = await self._begin(request, fields)
        return StreamingResponse(self._lines(job, began), media_type="application/x-ndjson")

    async def _lines(self, job: Job, began: float) -> AsyncIterator[str]:
        try:
            async with asyncio.timeout(self.settings.limits.seconds):
                for piece in job.pieces:
                    if piece.result is not None:
                        await piece.result
                    text = piece.segment.around(piece.translations()[0])
                    yield json.dumps({"text": text, "depth": piece.depth}, ensure_ascii=False) + "\n"
            taken = round(1000 * (time.perf_counter() - began), 2)
            yield json.dumps({"done": True, "milliseconds": taken, "engine": self.engine}) + "\n"
        except TimeoutError:
            yield json.dumps({"error": "not ready in time"}) + "\n"
        finally:
            for result in job.results:
                result.cancel()

    @property
    def engine(self) -> str:
        return self.translator.engine.name

    async def _begin(self, request: Request, fields: dict[str, Any]) -> Job:
        """Everything that can be wrong is found before anything waits in the queue."""
        limits = self.settings.limits
        texts, as_list = texts_of(fields, limits)
        source, target = text_field(fields, "source", required=True), text_field(fields, "target", required=True)
        wanted = text_field(fields, "format") or TEXT
        if wanted != TEXT:
            raise ApiError(400, f"{_shown(wanted)} format is not supported")
        alternatives = alternatives_of(fields, limits)
        depth, budget_ms = text_field(fields, "depth"), number_field(fields, "budget_ms", positive=True)
        pair = self._pair(str(source), str(target))
        chosen = self._depths[pair]
        pieces = await self._pieces(texts, pair)
        running = [piece for text in pieces for piece in text if piece.segment.is_for_the_model]
        budget = None if budget_ms is None else budget_ms / 1000
        depths = chosen.choose([piece.segment.text for piece in running], depth, budget)
        beam = max(self.settings.beam, alternatives + 1)
        for piece, name in zip(running, depths, strict=True):
            piece.depth = name
        self._add(running, pair, beam, alternatives + 1)
        request.state.log |= {
            "texts": len(texts),
            "sentences": len(running),
            "characters": sum(map(len, texts)),
            "depth": ", ".join(dict.fromkeys(depths)),
        }
        self.metrics.characters.inc(sum(map(len, texts)))
        return Job(pieces, as_list, alternatives, pair.partition("-")[0] if source == AUTO_SOURCE else None)

    def _add(self, pieces: Sequence[Piece], pair: str, beam: int, nbest: int) -> None:
        """All of them, or, if the queue is too full for all, none."""
        of_depth: dict[str, list[Piece]] = {}
        for piece in pieces:
            of_depth.setdefault(piece.depth, []).append(piece)
        added: list[asyncio.Future[Any]] = []
        try:
            for depth, group in of_depth.items():
                task = Task(depth, pair if self.translator.must_choose else None, beam, nbest)
                results = self.queue.add(task, [piece.segment.text for piece in group])
                added += results
                for piece, result in zip(group, results, strict=True):
                    piece.result = result
                self.metrics.texts.labels(depth).inc(len(group))
        except ApiError:
            for result in added:
                result.cancel()
            raise

    def _pair(self, source: str, target: str) -> str:
        """The name of the language pair; where the source is left to us, there must be one only."""
        names = [(pair.source, pair.target, pair.name) for pair in self.translator.pairs]
        if target not in {of for _, of, _ in names}:
            raise ApiError(400, f"{_shown(target)} is not supported")
        fitting = [one for one in names if one[1] == target and source in (one[0], AUTO_SOURCE)]
        if not fitting:
            raise ApiError(400, f"{_shown(source)} is not supported")
        if len(fitting) > 1 and self.translator.must_choose:
            known = ", ".join(one[0] for one in fitting)
            raise ApiError(400, f"Invalid request: the source language is not detected, name one of {known}")
        return fitting[0][2] if fitting[0][2] in self._of_pair else next(iter(self._of_pair))

    async def _pieces(self, texts: Sequence[str], pair: str) -> list[list[Piece]]:
        """To split much text takes so long that others would notice."""

        def made() -> list[list[Piece]]:
            return [[Piece(segment) for segment in self._split(text, pair)] for text in texts]

        return made() if sum(map(len, texts)) < SHORT else await asyncio.to_thread(made)

    def _split(self, text: str, pair: str) -> list[Segment]:
        translator = self._of_pair[pair]
        longest = min(translator.longest_source, self.settings.limits.sentence)

        def fits(piece: str) -> bool:
            return len(piece) <= longest // 4 or len(translator.tokenizer.encode(piece)) <= longest

        return split(encodable(text).replace("\0", " "), pair.partition("-")[0], fits)

    def languages(self) -> list[dict[str, Any]]:
        pairs = self.translator.pairs
        codes = dict.fromkeys(code for pair in pairs for code in (pair.source, pair.target))
        return [
            {
                "code": code,
                "name": LANGUAGE_NAMES.get(code, code),
                "targets": [pair.target for pair in pairs if pair.source == code],
            }
            for code in codes
        ]

    def detected(self) -> list[dict[str, Any]]:
        sources = dict.fromkeys(pair.source for pair in self.translator.pairs)
        if len(sources) > 1:
            raise ApiError(400, "Invalid request: this server does not detect languages")
        return [_detected(next(iter(sources)))]

    def frontend_settings(self) -> dict[str, Any]:
        pair = self.translator.pairs[0]
        sides = {"source": pair.source, "target": pair.target}
        return {
            "charLimit": self.settings.limits.characters,
            "frontendTimeout": 500,
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "language": {side: {"code": code, "name": LANGUAGE_NAMES.get(code, code)} for side, code in sides.items()},
        }

    def about(self) -> dict[str, Any]:
        pairs = {name: self._about_pair(depths) for name, depths in self._depths.items()}
        return {
            "kind": "translation",
            "engine": self.engine,
            "languages": self.languages(),
            "pairs": pairs,
            "limits": {
                "characters": self.settings.limits.characters,
                "alternatives": self.settings.limits.alternatives,
            },
        }

    def _about_pair(self, depths: Depths) -> dict[str, Any]:
        translator, timing = depths.translator, depths.timing
        on = translator.menu.measured_on
        return {
            "source": translator.languages[0],
            "target": translator.languages[1],
            "default": self.settings.depth or translator.menu.default.name,
            "has_selector": _has_selector(translator),
            "has_budget": depths.why_no_budget is None,
            "times_from": timing.origin,
            "measured_on": on.get("test_set", on.get("reference", "")),
            "examples": self.sample.sources[:5] if self.sample.references else [],
            "depths": [
                {
                    "name": entry.name,
                    "encoder": len(entry.subnetwork.encoder),
                    "decoder": len(entry.subnetwork.decoder),
                    "bleu": entry.quality.get("bleu"),
                    "chrf": entry.quality.get("chrf"),
                    "ms": timing.milliseconds(entry.name),
                    "parameters": translator.parameters(entry.name),
                }
                for entry in translator.menu
            ],
        }


def _joined(text: list[Piece], rank: int) -> str:
    """The translation made of each piece's `rank`-th best, or its last where there are fewer."""
    return "".join(
        piece.segment.around(found[min(rank, len(found) - 1)]) for piece in text for found in [piece.translations()]
    )


def _alternatives(text: list[Piece], count: int) -> list[str]:
    ranked = [_joined(text, rank) for rank in range(count + 1)]
    return list(dict.fromkeys(one for one in ranked[1:] if one != ranked[0]))


def _depths_of(text: list[Piece]) -> str:
    return ", ".join(dict.fromkeys(piece.depth for piece in text if piece.depth))


def _detected(language: str) -> dict[str, Any]:
    """Nothing was detected: it is the only one that the model knows."""
    return {"confidence": 0.0, "language": language}


def _has_selector(translator: Translator) -> bool:
    try:
        return translator.selector is not None
    except UserError:  # one that is damaged: depths can still be named
        return False


def _shown(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."
