"""Estimates what training and translating cost at scale, and compares the estimates with measurements on this machine.

python benchmarks/scale.py                # the tables of docs/scale.md, in seconds
python benchmarks/scale.py --check        # the estimates against measurements on this machine, in minutes

Training: operations and memory of a model and an objective by the sizes of its matrices; gradients travel while the
backward pass goes on, as far as it is long enough. Translating: pieces on workers that now and then die, event by
event, with the times per sentence that a sweep has left in a model's menu.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scale_checks import check
from scale_model import BILLION, GIGA, Cluster, Size, Training, Translating

from anydepth.artifact import bundled_model
from anydepth.infer.translator import Translator

WORKERS = (1, 2, 4, 8, 16, 32, 64)
GPUS = Cluster(flops=100e12, memory=80e9, inside=200e9, between=12.5e9, in_a_machine=8)
BASE = Size(6, 6, 512, 2048, 32_000)
BIG = Size(6, 6, 1024, 4096, 32_000)
HUGE = Size(24, 24, 2048, 8192, 64_000)
TOKENS = 10e9  # of target text: WMT's English-French, 36 million pairs, about ten times
UPDATES = {"base": (BASE, 2**16), "big": (BIG, 2**16), "big, larger updates": (BIG, 2**19)}
AT_A_TIME = 2**16  # tokens of all workers that are in memory together
OBJECTIVES = {"one depth, or sampled exits": False, "every exit exactly": True}
MIXES = {
    "all 6-3": {"6-3": 1.0},
    "all 4-1": {"4-1": 1.0},
    "all 1-1": {"1-1": 1.0},
    "70 % 1-1, 20 % 4-1, 10 % 6-3": {"1-1": 0.7, "4-1": 0.2, "6-3": 0.1},
}
BYTES = 2 * 130  # of a sentence and its translation, as in news


def table(head: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(head) + " |\n| " + " | ".join("---" for _ in head) + " |")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def hours(value: float) -> str:
    return f"{value:,.1f} h" if value < 100 else f"{value / 24:,.0f} days"


def training_tables() -> None:
    for name, (size, update) in UPDATES.items():
        print(f"Training, {name} ({size}), {TOKENS / BILLION:.0f} billion target tokens, {update:,} an update:\n")
        rows = []
        for workers in WORKERS:
            row = [str(workers)]
            for exact in OBJECTIVES.values():
                one = Training(size, exact, update)
                seconds, waiting = one.seconds(GPUS, workers)
                share = f", {waiting / seconds:.0%} waiting" if waiting > 0.005 * seconds else ""
                row.append(hours(seconds * TOKENS / update / 3600) + share)
            rows.append(row)
        table(["GPUs", *OBJECTIVES], rows)
    print("Memory and network of each GPU, 8 of them, 8,192 tokens at a time each:\n")
    rows = []
    for name, size in {"base": BASE, "big": BIG, "huge": HUGE}.items():
        for title, exact in OBJECTIVES.items():
            one = Training(size, exact, AT_A_TIME)
            found = [one.memory(8, sharded, again) for sharded, again in ((False, False), (True, False), (True, True))]
            sent = [one.sent(8, sharded) for sharded in (False, True)]
            rows.append(
                [f"{name}, {size.parameters / 1e6:,.0f} M", title]
                + [f"{value / GIGA:,.1f} GB" for value in found]
                + [" / ".join(f"{value / GIGA:,.1f}" for value in sent) + " GB"]
            )
    table(["model", "objective", "whole", "sharded", "and recomputed", "sent per update, whole / sharded"], rows)


def translation_tables(model: Path) -> None:
    translator = Translator.load(model, engine="torch", device="cpu")
    seconds = {entry.name: entry.cost["seconds_per_sentence"] for entry in translator.menu}
    layers = {name: translator.menu[name].subnetwork for name in seconds}
    per_token = {entry.name: 1 / entry.cost["tokens_per_second"] for entry in translator.menu}
    for title, of_each in (("Milliseconds per sentence", seconds), ("Milliseconds per subword generated", per_token)):
        _print_grid(title, {(len(sub.encoder), len(sub.decoder)): of_each[name] for name, sub in layers.items()})
    a_nk = np.array([[1, len(sub.encoder), len(sub.decoder)] for sub in layers.values()], float)
    measured_n = np.array(list(seconds.values()))
    fit, *_ = np.linalg.lstsq(a_nk, measured_n, rcond=None)
    errors = np.abs(a_nk @ fit / measured_n - 1)
    print(
        f"A sentence at one of {len(seconds)} depths: {1e3 * fit[0]:.2f} ms, {1e3 * fit[1]:.2f} ms for each encoder "
        f"layer and {1e3 * fit[2]:.2f} ms for each decoder layer; off by {errors.mean():.0%} in the mean, "
        f"{errors.max():.0%} at most\n"
    )
    rows = []
    for workers in WORKERS:
        row = [str(workers)]
        for mix in MIXES.values():
            of_mix = sum(share * seconds[name] for name, share in mix.items())
            row.append(hours(Translating(BILLION, of_mix).hours(workers)))
        rows.append(row)
    table(["workers like this machine", *MIXES], rows)
    model_bytes = sum(path.stat().st_size for path in model.iterdir() if path.is_file())
    print(
        f"Sent: {BILLION * BYTES / GIGA:,.0f} GB of text in all, and {model_bytes / 1e6:.0f} MB of model to each worker"
    )


def _print_grid(title: str, seconds: dict[tuple[int, int], float]) -> None:
    encoders, decoders = (sorted(set(places)) for places in zip(*seconds, strict=True))
    print(f"{title}, encoder layers down, decoder layers across:\n")
    rows = [[str(n), *(f"{1e3 * seconds[n, m]:.2f}" if (n, m) in seconds else "" for m in decoders)] for n in encoders]
    table(["", *map(str, decoders)], rows)


def draw(model: Path, path: Path) -> None:
    """Both kinds of table as lines, on logarithmic scales: straight down is perfect."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
    for name, (size, update) in UPDATES.items():
        for title, exact in OBJECTIVES.items():
            one = Training(size, exact, update)
            taken = [one.seconds(GPUS, workers)[0] * TOKENS / update / 3600 for workers in WORKERS]
            tokens = f"{update // 1024}k tokens an update"
            label = f"{name.split(',')[0]}, {tokens}, {title}"
            left.plot(WORKERS, taken, marker="o", markersize=3, linestyle="-" if exact else "--", label=label)
    left.set(title="training on 10 billion tokens", xlabel="GPUs")
    seconds = {
        entry.name: entry.cost["seconds_per_sentence"]
        for entry in Translator.load(model, engine="torch", device="cpu").menu
    }
    for name, mix in MIXES.items():
        of_mix = sum(share * seconds[depth] for depth, share in mix.items())
        taken = [Translating(BILLION, of_mix).hours(workers) for workers in WORKERS]
        right.plot(WORKERS, taken, marker="o", markersize=3, label=name)
    right.set(title="translating a billion sentences", xlabel="workers of two cores")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(WORKERS, [str(workers) for workers in WORKERS])
        axes.set_ylabel("hours")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15))
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plot", type=Path, help="draw both kinds of table here")
    parser.add_argument("--model", type=Path, default=bundled_model())
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        check()
    else:
        training_tables()
        translation_tables(arguments.model)
    if arguments.plot:
        draw(arguments.model, arguments.plot)


if __name__ == "__main__":
    main()
