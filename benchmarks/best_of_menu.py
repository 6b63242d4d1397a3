"""The claim of tied-multi models, with engines: how soon a distilled menu with greedy search is as good as a plain 6-6.

python benchmarks/best_of_menu.py PLAIN MENU --source test.de --reference test.en [--rounds 3]

PLAIN is a model of one depth, run by CTranslate2 int8 with beam 4; MENU a distilled one of many depths, run by the
native engine with greedy search. Sentences go one at a time on one core. The best depth is the fastest one whose BLEU
is not below PLAIN's.
"""

import argparse
import time
from pathlib import Path
from statistics import median

import torch
from common import print_versions

from anydepth.artifact.model import resolve
from anydepth.evaluate.metrics import score
from anydepth.infer.translator import Translator, on_engine


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("plain", type=Path)
    parser.add_argument("menu", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timed", type=int, default=100, help="sentences that are timed one by one")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print_versions("ctranslate2")
    sources, references = (path.read_text("utf-8").splitlines() for path in (arguments.source, arguments.reference))
    plain = on_engine(Translator.load(resolve(arguments.plain), engine="torch", device="cpu"), "ctranslate2", 1, "int8")
    menu = on_engine(
        Translator.load(resolve(arguments.menu), engine="torch", device="cpu"), "native", 1, shortlist=False
    )
    if len(plain.menu) != 1:
        raise SystemExit(f"{arguments.plain} has {len(plain.menu)} depths: give a plain model, of one")
    wanted = score(plain.translate(sources, beam=4), references).bleu
    print(f"plain {plain.menu.deepest.name}, CTranslate2 int8, beam 4: {wanted:.2f} BLEU")
    scores = {name: score(menu.translate(sources, depth=name), references).bleu for name in menu.menu.names}
    good = [name for name, score in scores.items() if score >= wanted]
    print("native, greedy: " + ", ".join(f"{name} {score:.2f}" for name, score in scores.items()))
    if not good:
        best = max(scores, key=lambda name: scores[name])
        print(f"no depth is as good; the best is {best} with {scores[best]:.2f}")
        return
    texts = sources[:: max(1, len(sources) // arguments.timed)]
    seconds: dict[str, list[float]] = {name: [] for name in ("plain", *good)}
    for _ in range(arguments.rounds):
        seconds["plain"].append(timed(plain, texts, None, 4))
        for name in good:
            seconds[name].append(timed(menu, texts, name, 1))
    times = {name: median(each) for name, each in seconds.items()}
    best = min(good, key=lambda name: times[name])
    print(f"the fastest that is as good: {best}, {scores[best]:.2f} BLEU")
    print(f"its time: 1/{times['plain'] / times[best]:.1f} of the plain model's (bar 1/6)")


def timed(translator: Translator, texts: list[str], depth: str | None, beam: int) -> float:
    began = time.perf_counter()
    for text in texts:
        translator.translate([text], depth=depth, beam=beam, batch_size=1)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
