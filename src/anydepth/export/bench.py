"""Times the engines side by side on this machine: milliseconds per text at each depth, alone and in a batch."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median

from anydepth.engines.auto import make_classifier_engine, why_not_native
from anydepth.engines.native import NativeEngine
from anydepth.errors import UserError
from anydepth.infer.classifier import Classifier
from anydepth.infer.translator import Translator, on_engine


@dataclass(frozen=True)
class BenchRow:
    """Milliseconds per text of each engine at one depth and batch size: medians over interleaved rounds."""

    depth: str
    batch_size: int
    milliseconds: dict[str, float]


def load_engines(translator: Translator, threads: int) -> tuple[dict[str, Translator], list[str]]:
    """The model on every engine that is installed, in its fastest compute type; and why others are missing.

    They compute the whole vocabulary, so that engines compare; the shortlist of a model is a column of its own.
    """
    engines, missing = {"torch": on_engine(translator, "torch")}, []
    if find_spec("ctranslate2") is None:
        missing.append("ctranslate2: pip install 'anydepth[ctranslate2]'")
    else:
        engines["ctranslate2 int8"] = on_engine(translator, "ctranslate2", threads, "int8")
    try:
        native = on_engine(translator, "native", threads, shortlist=False)
        engines["native"] = native
        engine = native.engine
        assert isinstance(engine, NativeEngine)
        if any(engine.draft_layers(entry.subnetwork) for entry in translator.menu):
            engines["native, drafts"] = on_engine(translator, "native", threads, speculate=True, shortlist=False)
        if engine.native.has_shortlist:
            engines["native, shortlist"] = on_engine(translator, "native", threads, shortlist=True)
    except UserError as error:
        missing.append(f"native: {error}")
    slow = why_not_native(translator.loaded)
    if slow is not None and "native" in engines:
        missing.append(f"auto does not choose native: {slow}")
    return engines, missing


def load_classifier_engines(classifier: Classifier, threads: int) -> tuple[dict[str, Classifier], list[str]]:
    """The same for a model that classifies."""
    engines, missing = {"torch": classifier}, []
    try:
        native = make_classifier_engine(classifier.loaded, "native", threads)
        engines["native"] = Classifier(classifier.loaded, native)
    except UserError as error:
        missing.append(f"native: {error}")
    slow = why_not_native(classifier.loaded)
    if slow is not None and "native" in engines:
        missing.append(f"auto does not choose native: {slow}")
    return engines, missing


def _able(engines: Mapping[str, Translator | Classifier], depth: str, size: int) -> dict[str, Translator | Classifier]:
    """Engines that cannot run a depth are left out of it. Drafts are for single sentences."""
    fit = {name: one for name, one in engines.items() if size == 1 or "drafts" not in name}
    return {name: one for name, one in fit.items() if _runs(one, depth)}


def count_passes(
    engines: Mapping[str, Translator | Classifier], depths: Sequence[str], batch_sizes: Sequence[int], repeats: int
) -> int:
    """How often `bench` goes over the texts, to warm up and to time."""
    return (1 + repeats) * sum(len(_able(engines, depth, size)) for depth in depths for size in batch_sizes)


def bench(
    engines: Mapping[str, Translator | Classifier],
    depths: Sequence[str],
    texts: Sequence[str],
    batch_sizes: Sequence[int],
    repeats: int,
    done: Callable[[int], None] = lambda passes: None,
) -> Iterator[BenchRow]:
    """Engines take turns in each round. `done` is called after each pass over the texts."""
    for depth in depths:
        for size in batch_sizes:
            able = _able(engines, depth, size)
            seconds: dict[str, list[float]] = {name: [] for name in able}
            for engine in able.values():
                _run(engine, texts[: max(4, size)], depth, size)  # warms up
                done(1)
            for _ in range(repeats):
                for name, engine in able.items():
                    began = time.perf_counter()
                    _run(engine, texts, depth, size)
                    seconds[name].append(time.perf_counter() - began)
                    done(1)
            yield BenchRow(depth, size, {name: 1000 * median(each) / len(texts) for name, each in seconds.items()})


def _run(engine: Translator | Classifier, texts: Sequence[str], depth: str, batch_size: int) -> None:
    """With batch size 1, each text is a call of its own, as from a user."""
    for part in [texts] if batch_size > 1 else [[text] for text in texts]:
        if isinstance(engine, Translator):
            engine.translate(part, depth=depth, batch_size=batch_size)
        else:
            engine.classify(part, depth=depth, batch_size=batch_size)


def _runs(engine: Translator | Classifier, depth: str) -> bool:
    try:
        if isinstance(engine, Translator):
            engine.engine.prepare([engine.menu[depth].subnetwork])
        else:
            engine.engine.prepare([engine.subnetwork(depth)])
    except UserError:
        return False
    return True
