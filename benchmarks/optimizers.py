"""What Muon, all decoder exits and a sampled softmax bring to the quick start at equal CPU time, in test BLEU.

python benchmarks/optimizers.py WORK [--seeds 1 2 3] [--updates 1700]

Each arm gets the CPU time that Adam needs for its updates, by times of short interleaved runs. One thread. Everything
goes on where it stopped. The interval is over seeds and sentences.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

from common import print_versions

import anydepth
from anydepth.evaluate.metrics import score
from anydepth.evaluate.significance import paired_bootstrap

ONE, ALL = "objective.mode=sampled", "objective.mode=sampled-encoder"  # decoder exits of a token
WHOLE, SAMPLED = "train.sampled_softmax=0", "train.sampled_softmax=1000"  # of 4,000 subwords
ADAM, MUON = "train.optimizer=adam", "train.optimizer=muon"
ARMS = {
    "Adam, one exit per token": [ADAM, ONE, WHOLE],
    "Muon, one exit per token": [MUON, ONE, WHOLE],
    "Muon, all decoder exits": [MUON, ALL, WHOLE],
    "Adam, one exit per token, sampled softmax": [ADAM, ONE, SAMPLED],
    "Muon, all decoder exits, sampled softmax": [MUON, ALL, SAMPLED],
}
DEPTHS = ("3-3", "2-2", "1-1")
SHORT, REPEATS = 40, 3  # updates of a short run, and how many of them


def train(work: Path, run: Path, changes: list[str]) -> float:
    """CPU seconds."""
    data = work / "data"
    changes = [
        *changes,
        f"data.train={{source: {data / 'train.fr'}, target: {data / 'train.en'}}}",
        f"data.valid={{source: {data / 'valid.fr'}, target: {data / 'valid.en'}}}",
        "train.threads=1",
    ]
    command = [sys.executable, "-m", "anydepth", "train", "recipes/quickstart.yaml", "--out", str(run)]
    process = subprocess.Popen(
        [*command, *(word for change in changes for word in ("--set", change))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{run} failed: give its command by hand to see why")
    return used.ru_utime + used.ru_stime


def seconds_per_update(work: Path, arms: Sequence[str]) -> dict[str, float]:
    """By the difference of runs of two lengths, so that the start does not count."""
    kept = work / "seconds.json"
    seconds: dict[str, float] = json.loads(kept.read_text()) if kept.exists() else {}
    missing = [name for name in arms if name not in seconds]
    if not missing:
        return seconds
    measured = [arms[0], *(name for name in missing if name != arms[0])]  # again beside the first, which runs anyway
    found: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(REPEATS):
        for name in measured:
            changes = ARMS[name]
            quiet = ["train.valid_every=9999", "train.valid_sentences=1", "train.checkpoint_every=9999"]
            times = []
            for steps in (SHORT // 4, SHORT + SHORT // 4):
                with tempfile.TemporaryDirectory(dir=work) as run:
                    times.append(train(work, Path(run) / "run", [*changes, *quiet, f"train.steps={steps}"]))
            found[name].append((times[1] - times[0]) / SHORT)
    measured_now = {name: median(times) for name, times in found.items()}
    scale = seconds.get(arms[0], measured_now[arms[0]]) / measured_now[arms[0]]
    seconds |= {name: measured_now[name] * scale for name in missing}
    kept.write_text(json.dumps(seconds))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--updates", type=int, default=1700)
    parser.add_argument("--arms", type=int, nargs="+", help="some of them, numbered from 0; the first always runs")
    arguments = parser.parse_args()
    work = arguments.work
    print_versions()
    if not (work / "data").exists():
        subprocess.run([sys.executable, "-m", "anydepth", "data", "tatoeba-en-fr", str(work / "data")], check=True)
    first = next(iter(ARMS))
    arms = [name for i, name in enumerate(ARMS) if not (arguments.arms and i) or i in arguments.arms]
    seconds = seconds_per_update(work, arms)
    outputs: dict[str, dict[str, list[list[str]]]] = {name: {depth: [] for depth in DEPTHS} for name in arms}
    sources, references = ((work / "data" / f"test.{side}").read_text("utf-8").splitlines() for side in ("fr", "en"))
    for seed in arguments.seeds:
        for name in arms:
            number, changes = list(ARMS).index(name), ARMS[name]
            steps = round(arguments.updates * seconds[first] / seconds[name])
            run = work / f"arm-{number}-seed-{seed}"
            train(work, run, [*changes, f"train.steps={steps}", f"train.seed={seed}"])
            translator = anydepth.load(run, engine="torch")
            for depth in DEPTHS:
                outputs[name][depth].append(translator.translate(sources, depth=depth))  # type: ignore[union-attr]
            bleu = {depth: score(outputs[name][depth][-1], references).bleu for depth in DEPTHS}
            print(f"seed {seed}  {name}: {steps:,} updates, {seconds[name]:.3f} CPU s each, {bleu}", flush=True)
    for name in arms:
        for depth in DEPTHS:
            bleu_of_seeds = [score(one, references).bleu for one in outputs[name][depth]]
            line = f"{name} {depth}: {mean(bleu_of_seeds):.1f} BLEU"
            if name != first:
                systems = [outputs[first][depth], outputs[name][depth]]
                (difference,) = paired_bootstrap(systems, references, over_seeds=True)
                line += f", {difference.bleu:+.1f} ({difference.low:+.1f} to {difference.high:+.1f})"
            print(line)


if __name__ == "__main__":
    main()
