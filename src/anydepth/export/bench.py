"""The engines side by side on this machine: what a sentence takes at each depth, alone and in a batch."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median

from anydepth.engines.auto import why_not_native
from anydepth.engines.native import NativeEngine
from anydepth.errors import UserError
from anydepth.infer.translator import Translator, on_engine


@dataclass(frozen=True)
class Timed:
    """Milliseconds per sentence of each way at one depth and batch size: medians of rounds that took turns."""

    depth: str
    batch_size: int
    milliseconds: dict[str, float]


def ways_to_run(translator: Translator, threads: int) -> tuple[dict[str, Translator], list[str]]:
    """Every engine that is here, in its fastest numbers; and of the others why they are not."""
    ways, missing = {"torch": on_engine(translator, "torch")}, []
    if find_spec("ctranslate2") is None:
        missing.append("ctranslate2: pip install 'anydepth[ctranslate2]'")
    else:
        ways["ctranslate2 int8"] = on_engine(translator, "ctranslate2", threads, "int8")
    try:
        native = on_engine(translator, "native", threads)
        ways["native"] = native
        engine = native.engine
        assert isinstance(engine, NativeEngine)
        if any(engine.draft_layers(entry.subnetwork) for entry in translator.menu):
            ways["native, drafts"] = on_engine(translator, "native", threads, speculate=True)
    except UserError as error:
        missing.append(f"native: {error}")
    slow = why_not_native(translator.loaded)
    if slow is not None and "native" in ways:
        missing.append(f"auto does not take native: {slow}")
    return ways, missing


def bench(
    ways: dict[str, Translator],
    depths: Sequence[str],
    texts: Sequence[str],
    batch_sizes: Sequence[int],
    rounds: int,
    done: Callable[[], None] = lambda: None,
) -> Iterator[Timed]:
    """Ways that cannot run a depth are left out of it. Drafts are for sentences alone."""
    for depth in depths:
        for size in batch_sizes:
            able = {
                name: way for name, way in ways.items() if _runs(way, depth) and (size == 1 or "drafts" not in name)
            }
            seconds: dict[str, list[float]] = {name: [] for name in able}
            for way in able.values():
                _run(way, texts[: max(4, size)], depth, size)  # warms up
            for _ in range(rounds):
                for name, way in able.items():
                    began = time.perf_counter()
                    _run(way, texts, depth, size)
                    seconds[name].append(time.perf_counter() - began)
                done()
            yield Timed(depth, size, {name: 1000 * median(each) / len(texts) for name, each in seconds.items()})


def _run(way: Translator, texts: Sequence[str], depth: str, batch_size: int) -> None:
    """Sentences one by one come as they do from a user: each in a call of its own."""
    for part in [texts] if batch_size > 1 else [[text] for text in texts]:
        way.translate(part, depth=depth, batch_size=batch_size)


def _runs(way: Translator, depth: str) -> bool:
    try:
        way.engine.prepare([way.menu[depth].subnetwork])
    except UserError:
        return False
    return True
