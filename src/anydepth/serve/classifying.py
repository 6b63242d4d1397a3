"""Requests to classify: from fields to an answer."""

import time
from typing import Any

from starlette.requests import Request

from anydepth.errors import UserError
from anydepth.infer.classifier import Classification, Classifier, ExplainedWord
from anydepth.serve.errors import ApiError
from anydepth.serve.metrics import Metrics
from anydepth.serve.queue import Queue
from anydepth.serve.schemas import flag_field, number_field, text_field, texts_of
from anydepth.serve.settings import Settings
from anydepth.serve.waiting import all_of
from anydepth.serve.workers import Task


class Classifying:
    def __init__(self, classifier: Classifier, settings: Settings) -> None:
        self.classifier, self.settings = classifier, settings
        classifier.menu[settings.depth]
        if settings.budget is not None:
            raise UserError("a budget is for models that translate; this one classifies: leave it out")
        for name in classifier.menu.names:
            classifier.classify(["."], depth=name)  # the first time takes longest

    def attach(self, queue: Queue, metrics: Metrics) -> None:
        self.queue, self.metrics = queue, metrics

    async def classify(self, request: Request, fields: dict[str, Any], began: float) -> dict[str, Any]:
        texts, as_list = texts_of(fields, self.settings.limits)
        depth = text_field(fields, "depth") or self.settings.depth
        scale = number_field(fields, "scale", positive=True)
        try:
            entry = self.classifier.menu[depth]
            self.classifier.check_scale(entry.name, scale)
        except UserError as error:
            raise ApiError(400, f"Invalid request: {error}") from error
        self.queue.check_room(len(texts))
        results = self.queue.add(Task(entry.name, words=flag_field(fields, "words"), scale=scale), texts)
        self.metrics.characters.inc(sum(map(len, texts)))
        request.state.log |= {"texts": len(texts), "characters": sum(map(len, texts)), "depth": entry.name}
        found = await all_of(results, request, self.settings.limits.seconds, self.metrics)
        answers = [self._answer(text, *one) for text, one in zip(texts, found, strict=True)]
        taken = {"depth": entry.name, "milliseconds": round(1000 * (time.perf_counter() - began), 2)}
        return {"results": answers, **taken} if as_list else {**answers[0], **taken}

    def _answer(self, text: str, found: Classification, words: list[ExplainedWord] | None) -> dict[str, Any]:
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

    def about(self) -> dict[str, Any]:
        classifier = self.classifier
        return {
            "kind": "classification",
            "engine": "torch",
            "labels": list(classifier.labels),
            "layers": classifier.model.config.encoder_layers,
            "default": self.settings.depth or classifier.menu.default.name,
            "limits": {"characters": self.settings.limits.characters},
            "depths": [
                {
                    "name": entry.name,
                    "by_word": entry.subnetwork.by_word,
                    "accuracy": entry.quality.get("accuracy"),
                    "parameters": classifier.parameters(entry.name),
                }
                for entry in classifier.menu
            ],
        }
