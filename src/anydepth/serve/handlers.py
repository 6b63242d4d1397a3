"""What is done with a request: from its fields to an answer, for models that translate and for classifiers.

A handler does everything slow when it is made, and finds then whatever is wrong with the server's settings.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from anydepth.artifact.folder import LanguagePair
from anydepth.artifact.weights import FileWeights
from anydepth.data.tokenizer import encodable
from anydepth.errors import UserError
from anydepth.export.sample import SampleText
from anydepth.export.web import describe_languages, language_name
from anydepth.infer.translator import Translator
from anydepth.selectors.budget import best_within, in_ms
from anydepth.serve.depths import DepthChooser
from anydepth.serve.monitoring import FAILURE, Metrics
from anydepth.serve.queue import JsonLinesResponse, Queue, wait_for_all
from anydepth.serve.schemas import (
    AnswerTimeoutError,
    ApiError,
    ClassifyRequest,
    ServerSettings,
    TranslateRequest,
    parse_request,
)
from anydepth.serve.segments import Segment, split
from anydepth.serve.workers import BatchKey

if TYPE_CHECKING:  # PyTorch, which a server of the native engine does without
    from anydepth.infer.classifier import Classification, Classifier, WordWithDepth

log = logging.getLogger(__name__)

AUTO_SOURCE = "auto"
SHORT = 1_000  # characters: more are split in another thread, as that would hold up other requests


@dataclass
class Sentence:
    """A sentence of a request, the depth it runs at, and the translations to come, best first."""

    segment: Segment
    depth: str = ""  # empty: there is nothing to translate
    result: "asyncio.Future[tuple[list[str], bool]] | None" = None

    def translations(self) -> list[str]:
        return [self.segment.text] if self.result is None else self.result.result()[0]

    @property
    def is_cut(self) -> bool:
        """Its translation did not end within the limit."""
        return self.result is not None and self.result.result()[1]


@dataclass(frozen=True)
class TranslationJob:
    """A request whose sentences are queued."""

    asked: TranslateRequest
    pair: LanguagePair
    texts: list[list[Sentence]]

    @property
    def sentences(self) -> list[Sentence]:
        return [sentence for text in self.texts for sentence in text]

    @property
    def results(self) -> "list[asyncio.Future[tuple[list[str], bool]]]":
        return [sentence.result for sentence in self.sentences if sentence.result is not None]


class TranslationHandler:
    def __init__(self, translator: Translator, settings: ServerSettings, sample: SampleText) -> None:
        self.translator, self.settings, self.sample = translator, settings, sample
        self._depths: dict[LanguagePair, DepthChooser] = {}
        for pair in translator.pairs if translator.must_choose else translator.pairs[:1]:
            one = translator.between(pair.source, pair.target) if len(translator.pairs) > 1 else translator
            self._depths[pair] = DepthChooser(one, pair, settings, sample)

    def attach(self, queue: Queue, metrics: Metrics) -> None:
        self.queue, self.metrics = queue, metrics

    @property
    def engine(self) -> str:
        return self.translator.engine.name

    async def translate(self, request: Request, fields: dict[str, Any], began: float) -> dict[str, Any]:
        job = await self._enqueue(request, fields)
        asked = job.asked
        await wait_for_all(job.results, request, self.settings.limits.seconds, self.metrics)
        answer: dict[str, Any] = {"translatedText": [_join(text, 0) for text in job.texts]}
        if asked.alternatives:
            answer["alternatives"] = [_join_alternatives(text, asked.alternatives) for text in job.texts]
        if asked.source == AUTO_SOURCE:
            answer["detectedLanguage"] = [_undetected(job.pair.source) for _ in job.texts]
        answer["depth"] = [_name_depths(text) for text in job.texts]
        if any(sentence.is_cut for sentence in job.sentences):
            answer["cut"] = [any(sentence.is_cut for sentence in text) for text in job.texts]
        if isinstance(asked.q, str):
            answer = {name: values[0] for name, values in answer.items()}
        return answer | {"milliseconds": _milliseconds_since(began), "engine": self.engine}

    async def stream(self, request: Request, fields: dict[str, Any], began: float) -> Response:
        if isinstance(fields.get("q"), list):
            raise ApiError(400, "Invalid request: a stream is of one text")
        if fields.get("alternatives") not in (None, "", 0, "0"):
            raise ApiError(400, "Invalid request: a stream has no alternatives")
        job = await self._enqueue(request, fields)
        return JsonLinesResponse(self._stream_lines(job, began), job.results, self.metrics)

    async def _stream_lines(self, job: TranslationJob, began: float) -> AsyncIterator[str]:
        """A line per sentence as it becomes ready. The status has been sent by then, so that errors are lines too."""
        try:
            async with asyncio.timeout(self.settings.limits.seconds):
                for sentence in job.sentences:
                    if sentence.result is not None:
                        await sentence.result
                    text = sentence.segment.around(sentence.translations()[0])
                    yield _json_line(text=text, depth=sentence.depth, **({"cut": True} if sentence.is_cut else {}))
            yield _json_line(done=True, milliseconds=_milliseconds_since(began), engine=self.engine)
        except Exception as error:
            for result in job.results:
                result.cancel()
            yield _json_line(error=self._explain(error))

    def _explain(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return AnswerTimeoutError(self.settings.limits.seconds).detail
        if isinstance(error, UserError):
            return f"Invalid request: {error}"
        log.error("failure", exc_info=error)
        return FAILURE

    def _check(self, fields: dict[str, Any]) -> TranslateRequest:
        limits = self.settings.limits
        asked = parse_request(TranslateRequest, fields, limits)
        if asked.format != "text":
            raise ApiError(400, f"{_shorten(asked.format)} format is not supported")
        if asked.alternatives > limits.alternatives:
            excess = f"alternatives ({asked.alternatives}) exceeds limit ({limits.alternatives})"
            raise ApiError(400, f"Invalid request: {excess}")
        return asked

    def _find_pair(self, source: str, target: str) -> LanguagePair:
        """With the source `auto`, only one pair may fit."""
        pairs = self.translator.pairs
        known = {code for pair in pairs for code in (pair.source, pair.target)}
        for code in (source, target):
            if code not in known and code != AUTO_SOURCE:
                raise ApiError(400, f"{_shorten(code)} is not supported")
        fitting = [pair for pair in pairs if pair.target == target and source in (pair.source, AUTO_SOURCE)]
        if not fitting:
            into, of = (f"{language_name(code)} ({code})" for code in (target, source))
            raise ApiError(400, f"{into} is not available as a target language from {of}")
        if len(fitting) > 1 and self.translator.must_choose:
            names = ", ".join(pair.source for pair in fitting)
            raise ApiError(400, f"Invalid request: the source language is not detected, name one of {names}")
        return fitting[0]

    async def _enqueue(self, request: Request, fields: dict[str, Any]) -> TranslationJob:
        """Whatever is wrong with a request is found before any of it is queued."""
        asked = self._check(fields)
        pair = self._find_pair(asked.source, asked.target)
        characters = sum(map(len, asked.texts))
        texts = self._plan(asked, pair) if characters < SHORT else await asyncio.to_thread(self._plan, asked, pair)
        running = [sentence for text in texts for sentence in text if sentence.depth]
        self._add_to_queue(running, asked.alternatives, pair)
        request.state.log |= {
            "texts": len(texts),
            "sentences": len(running),
            "characters": characters,
            "depth": _name_depths(running),
        }
        self.metrics.characters.inc(characters)
        return TranslationJob(asked, pair, texts)

    def _plan(self, asked: TranslateRequest, pair: LanguagePair) -> list[list[Sentence]]:
        """The sentences of each text, with a depth where there is anything to translate."""
        texts = [[Sentence(segment) for segment in self._split(text, pair)] for text in asked.texts]
        running = [sentence for text in texts for sentence in text if sentence.segment.is_for_the_model]
        sources = [sentence.segment.text for sentence in running]
        budget = None if asked.budget_ms is None else asked.budget_ms / 1000
        names = self._depths_for(pair).choose(sources, asked.depth, budget)
        for sentence, name in zip(running, names, strict=True):
            sentence.depth = name
        return texts

    def _add_to_queue(self, sentences: Sequence[Sentence], alternatives: int, pair: LanguagePair) -> None:
        """All of them or, if there is no room for all, none."""
        self.queue.check_room(len(sentences))
        languages = (pair.source, pair.target) if self.translator.must_choose else None
        beam, nbest = max(self.settings.beam, alternatives + 1), alternatives + 1
        by_depth: dict[str, list[Sentence]] = {}
        for sentence in sentences:
            by_depth.setdefault(sentence.depth, []).append(sentence)
        for depth, group in by_depth.items():
            results = self.queue.add(BatchKey(depth, languages, beam, nbest), [one.segment.text for one in group])
            for sentence, result in zip(group, results, strict=True):
                sentence.result = result

    def _depths_for(self, pair: LanguagePair) -> DepthChooser:
        return self._depths.get(pair) or next(iter(self._depths.values()))

    def _split(self, text: str, pair: LanguagePair) -> list[Segment]:
        translator = self._depths_for(pair).translator
        longest = min(translator.longest_source, self.settings.limits.sentence)
        return split(
            encodable(text).replace("\0", " "),
            pair.source,
            lambda part: len(translator.subwords([part])[0]) <= longest,
        )

    def detect(self) -> list[dict[str, Any]]:
        sources = dict.fromkeys(pair.source for pair in self.translator.pairs)
        if len(sources) > 1:
            raise ApiError(400, "Invalid request: this server does not detect languages")
        return [_undetected(next(iter(sources)))]

    def languages(self) -> list[dict[str, Any]]:
        return describe_languages([(pair.source, pair.target) for pair in self.translator.pairs])

    def frontend_settings(self) -> dict[str, Any]:
        pair = self.translator.pairs[0]
        sides = {"source": pair.source, "target": pair.target}
        return {
            "charLimit": self.settings.limits.characters,
            "frontendTimeout": 500,
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "language": {side: {"code": code, "name": language_name(code)} for side, code in sides.items()},
        }

    def describe(self) -> dict[str, Any]:
        examples = self.sample.examples()
        limits = self.settings.limits
        return {
            "kind": "translation",
            "engine": self.engine,
            "languages": self.languages(),
            "pairs": {pair.name: depths.describe(examples) for pair, depths in self._depths.items()},
            "limits": {"characters": limits.characters, "alternatives": limits.alternatives},
        }


class ClassificationHandler:
    def __init__(self, classifier: "Classifier", settings: ServerSettings) -> None:
        from anydepth.infer.classifier_budget import rate_depths, time_depths

        self.classifier, self.settings = classifier, settings
        classifier.check(settings.depth)  # refuses a depth that is not there
        self._costs = time_depths(classifier, batch_size=1)  # and the first run of each depth, which is slow, is over
        self._quality = rate_depths(self._costs, classifier.menu).quality
        if settings.budget is not None:
            self._choose_within(settings.budget, ["."])

    def attach(self, queue: Queue, metrics: Metrics) -> None:
        self.queue, self.metrics = queue, metrics

    async def classify(self, request: Request, fields: dict[str, Any], began: float) -> dict[str, Any]:
        asked = parse_request(ClassifyRequest, fields, self.settings.limits)
        texts, key = asked.texts, self._make_key(asked)
        results = self.queue.add(key, texts)
        characters = sum(map(len, texts))
        self.metrics.characters.inc(characters)
        request.state.log |= {"texts": len(texts), "characters": characters, "depth": key.depth}
        found = await wait_for_all(results, request, self.settings.limits.seconds, self.metrics)
        answers = [self._answer(text, *one) for text, one in zip(texts, found, strict=True)]
        common = {"depth": key.depth, "milliseconds": _milliseconds_since(began)}
        return {**answers[0], **common} if isinstance(asked.q, str) else {"results": answers, **common}

    def _make_key(self, asked: ClassifyRequest) -> BatchKey:
        """How the texts are to be classified. Without a depth, a budget and an exit the server's settings count."""
        depth, exit_rule = asked.depth, asked.exit
        budget = None if asked.budget_ms is None else asked.budget_ms / 1000
        if budget is not None and (depth is not None or exit_rule is not None):
            raise UserError(f"budget_ms and {'exit' if depth is None else 'depth'} both choose the depth: give one")
        if depth is None and budget is None and exit_rule is None:
            depth, budget = self.settings.depth, self.settings.budget
        if budget is not None:
            depth = self._choose_within(budget, asked.texts)
        name = self.classifier.check(depth, asked.scale, asked.lambda_, exit_rule)
        return BatchKey(name, words=asked.words, scale=asked.scale, lambda_=asked.lambda_, exit_rule=exit_rule)

    def _choose_within(self, budget: float, texts: Sequence[str]) -> str:
        """The best depth for all of the texts."""
        lengths = [len(source) for source in self.classifier.read(texts)]
        chosen, seconds = best_within(self._costs, self._quality, budget, lengths)
        if seconds > budget:
            raise UserError(
                f"a budget of {in_ms(budget)} ms is below the fastest depth, which takes about {in_ms(seconds)} ms per "
                "text"
            )
        return chosen

    def _answer(self, text: str, found: "Classification", words: "list[WordWithDepth] | None") -> dict[str, Any]:
        answer: dict[str, Any] = {
            "label": found.label,
            "probability": found.probability,
            "probabilities": dict(zip(self.classifier.labels, found.probabilities, strict=True)),
            "mean_depth": found.depth,
            "cut": len(self.classifier.tokenizer.encode(text)) > self.classifier.longest_source,
        }
        if words is not None:
            answer["words"] = [{"text": word.text, "depth": word.depth} for word in words]
        return answer

    def describe(self) -> dict[str, Any]:
        classifier = self.classifier
        in_file = isinstance(classifier.loaded.weights, FileWeights)
        return {
            "kind": "classification",
            "engine": classifier.engine.name,
            "labels": list(classifier.labels),
            "layers": classifier.loaded.config.encoder_layers,
            "default": self.settings.depth or classifier.menu.default.name,
            "limits": {"characters": self.settings.limits.characters},
            "depths": [
                {
                    "name": entry.name,
                    "by_word": entry.subnetwork.by_word,
                    "accuracy": entry.quality.get("accuracy"),
                    "parameters": None if in_file else classifier.parameters(entry.name),
                }
                for entry in classifier.menu
            ],
        }


def _join(text: list[Sentence], rank: int) -> str:
    """The translation made of each sentence's `rank`-th best, or its last where there are fewer."""
    found = [(sentence, sentence.translations()) for sentence in text]
    return "".join(sentence.segment.around(one[min(rank, len(one) - 1)]) for sentence, one in found)


def _join_alternatives(text: list[Sentence], count: int) -> list[str]:
    ranked = [_join(text, rank) for rank in range(count + 1)]
    return list(dict.fromkeys(one for one in ranked[1:] if one != ranked[0]))


def _name_depths(sentences: Sequence[Sentence]) -> str:
    return ", ".join(dict.fromkeys(sentence.depth for sentence in sentences if sentence.depth))


def _undetected(language: str) -> dict[str, Any]:
    """Nothing is detected: it is the only source language of the model."""
    return {"confidence": 0.0, "language": language}


def _json_line(**content: Any) -> str:
    return json.dumps(content, ensure_ascii=False) + "\n"


def _milliseconds_since(began: float) -> float:
    return round(1000 * (time.perf_counter() - began), 2)


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."
