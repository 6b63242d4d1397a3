"""What int8 costs, and what every depth costs in memory, with the native engine and a trained model.

python benchmarks/native_bundled.py [--model models/pt-en] [--source test.pt --reference test.en]

BLEU of each depth beside PyTorch's in float32 on 1,000 sentences, also with a shortlist where the model has one; and
the resident memory of a server that has answered at every depth against one that has answered at the deepest alone.
"""

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import httpx
import psutil
import torch
import typer
from common import print_versions

from anydepth.artifact import bundled_model
from anydepth.artifact.model import resolve
from anydepth.engines.shortlist import Shortlist
from anydepth.evaluate.metrics import score
from anydepth.export.sample import find_sample
from anydepth.infer.translator import Translator, on_engine

SENTENCES = 1000


def main(
    model: Path | None = None,
    source: Path | None = None,
    reference: Path | None = None,
    only: Literal["quality", "memory"] | None = None,
) -> None:
    print_versions()
    model = model or bundled_model()
    sample = find_sample(Translator.load(model), model, source, reference, SENTENCES)
    sources, references = sample.sources, sample.references or []
    if only != "memory":
        quality(resolve(model), sources, references)
    if only != "quality":
        memory(model, sources)


def quality(folder: Path, sources: list[str], references: list[str]) -> None:
    model = Translator.load(folder, engine="torch", device="cpu")
    ways = {"torch": model, "native": on_engine(model, "native", shortlist=False)}
    if Shortlist.find(model.loaded) is not None:
        ways["native, shortlist"] = on_engine(model, "native", shortlist=True)
    found = {name: way.every_depth(sources, scores=False) for name, way in ways.items()}
    worst = dict.fromkeys(list(ways)[1:], 0.0)
    for depth in model.menu.names:
        scores = {name: score([best.text for best, *_ in each[depth]], references).bleu for name, each in found.items()}
        off = {name: scores[name] - scores["torch"] for name in worst}
        worst = {name: min(worst[name], off[name]) for name in worst}
        print(f"{depth}: {scores['torch']:.2f} BLEU in float32; " + ", ".join(f"{n} {x:+.2f}" for n, x in off.items()))
    print("the most that is lost at a depth: " + ", ".join(f"{n} {x:+.2f}" for n, x in worst.items()) + " (bar -0.2)")


def memory(model: Path, sources: list[str]) -> None:
    """Of the process that serves, after as many sentences either way."""
    names = Translator.load(resolve(model), engine="torch", device="cpu").menu.names
    deepest, every = (_resident(model, depths, sources[:200]) for depths in ([names[-1]], names))
    print(f"a server that has run {len(names)} depths: {every:.0f} MiB, the deepest alone {deepest:.0f} MiB")
    print(f"resident memory: {every / deepest:.2f}x (bar 1.1x)")


def _resident(model: Path, depths: list[str], texts: list[str]) -> float:
    command = [sys.executable, "-m", "anydepth", "serve", str(model), "--engine", "native", "--port", "0"]
    with subprocess.Popen([*command, "--log-level", "error"], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            address = ""
            while not address:
                found = re.search(r"http://\S+", server.stderr.readline())
                address = found[0] if found else ""
            for _ in range(100):
                try:
                    httpx.get(address + "health", timeout=5)
                    break
                except httpx.TransportError:
                    time.sleep(0.2)
            for number, text in enumerate(texts):
                body = {"q": text, "source": "auto", "target": "en", "depth": depths[number % len(depths)]}
                httpx.post(address + "translate", json=body, timeout=60).raise_for_status()
            return float(psutil.Process(server.pid).memory_info().rss) / 2**20
        finally:
            server.terminate()


if __name__ == "__main__":
    torch.set_num_threads(2)
    typer.run(main)
