"""The core as WebAssembly under Node against the same core on AVX2: one thread, the bundled model, single sentences.

python benchmarks/wasm.py [--rounds 5] [--sentences 100] [--source FILE]

CPU time, ratios of interleaved rounds; above 1: WebAssembly is slower. Translations that differ are listed, each with
its margin: the nearest tie of logits on AVX2 that may have decided. WebAssembly has no fused multiply-add, so that a
quantized number may differ by one, which decides near ties.
"""

import argparse
import gzip
import json
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from anydepth.artifact import bundled_model
from anydepth.data import Tokenizer
from anydepth.engines.core import NativeModel
from anydepth.export.runtime import build_runtime_file
from anydepth.export.sample import find_sample
from anydepth.infer.translator import Translator

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "src" / "anydepth" / "export" / "page"
BAR = 5.0
BEAM = 50  # subwords that are looked at, for ties
LARGEST = 400_000  # bytes of the program, compressed
NEAR = 0.15  # logits: near ties, as rounding of int8 activations moves them about as much
WARM_UP = 2  # rounds that are not counted: Node compiles better code meanwhile


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--source", type=Path, help="sentences other than the sample of the model")
    arguments = parser.parse_args()
    program = (PAGE / "anydepth.wasm").read_bytes()
    print(f"program: {len(program):,} bytes, {len(gzip.compress(program)):,} compressed (bar {LARGEST:,})")
    translator = Translator.load(engine="torch", device="cpu", threads=1)
    texts = find_sample(translator, bundled_model()).sources
    if arguments.source is not None:
        texts = arguments.source.read_text("utf-8").splitlines()
    texts = texts[: arguments.sentences]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.anydepth"
        path.write_bytes(build_runtime_file(translator))
        compare(path, translator, texts, arguments.rounds)


def compare(path: Path, translator: Translator, texts: list[str], rounds: int) -> None:
    native, depths = NativeModel(path, "avx2"), translator.menu.names
    first = run_node(path, texts, depths, 1, pieces=50_000)
    ready = first["arrivals"][0]
    print(f"first depth {ready['ready'][0]} after {ready['bytes'] / first['size']:.0%} of the file")
    same, margins = 0, []
    for depth in depths:
        expected = native.translate(texts, depth, None)
        found = first["outputs"][depth]
        same += sum(one == other for one, other in zip(expected, found, strict=True))
        for text, one, other in zip(texts, expected, found, strict=True):
            if one != other:
                margins.append(margin(native, translator, depth, text, one, other))
                print(f"differs at {depth} by {margins[-1]:.4f}: {text!r}: {one!r}, in WebAssembly {other!r}")
    print(f"same translations: {same:,} of {len(texts) * len(depths):,} at {len(depths)} depths")
    near = sum(value < NEAR for value in margins)
    known = [value for value in margins if value == value] or [0.0]
    print(f"{near} of {len(margins)} that differ were within {NEAR} logits; median {median(known):.4f}")
    for depth in (depths[0], depths[len(depths) // 2], depths[-1]):
        ratios = []
        for _ in range(rounds):
            wasm = min(run_node(path, texts, [depth], WARM_UP + 1)["seconds"][depth][WARM_UP:])
            began = time.process_time()
            for text in texts:
                native.translate([text], depth, None)
            ratios.append(wasm / (time.process_time() - began))
        worst = f"rounds {min(ratios):.2f} to {max(ratios):.2f}"
        print(f"CPU time at {depth}: {median(ratios):.2f}x of AVX2 (bar {BAR}x), {worst}", flush=True)


def margin(native: NativeModel, translator: Translator, depth: str, text: str, one: str, other: str) -> float:
    """The nearest tie that may have decided: along the translation, as long as it is a prefix of the other, the least
    that its subword is better than another with which it would still be one."""
    tokenizer, sub = translator.tokenizer, translator.menu[depth].subnetwork
    source = translator.as_read(translator.subwords([text])[0])
    chosen: list[int] = []
    least = float("nan")
    while True:
        target = [tokenizer.BOS, *chosen]
        logits = native.logits(sub, source, target, translator.model.vocabulary, len(target))[-1]
        best, *others = map(int, logits.argsort()[::-1][:BEAM])
        gaps = [float(logits[best] - logits[token]) for token in others if _continues(tokenizer, chosen, token, other)]
        least = min([*gaps[:1], least], key=lambda gap: (gap != gap, gap))
        if best == tokenizer.EOS or not _continues(tokenizer, chosen, best, other):
            return least
        chosen.append(best)


def _continues(tokenizer: Tokenizer, chosen: list[int], token: int, text: str) -> bool:
    if token == tokenizer.EOS:
        return tokenizer.decode(chosen) == text
    longer = tokenizer.decode([*chosen, token])
    return text.startswith(longer) and len(longer) > len(tokenizer.decode(chosen))


def run_node(path: Path, texts: list[str], depths: list[str], rounds: int, pieces: int | None = None) -> dict[str, Any]:
    script = ROOT / "tests" / "export" / "translate.mjs"
    job = {"texts": texts, "depths": depths, "rounds": rounds, "pieces": pieces}
    command = ["node", *map(str, (script, PAGE / "core.js", PAGE / "anydepth.wasm", path))]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
