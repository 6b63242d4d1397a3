"""Is `--budget` kept? Calibrates on one set, translates another within several budgets, and holds the mean time per
sentence against what was promised. Ratio above 1: slower than promised.

A machine whose speed wanders cannot keep a promise that it made minutes ago, whatever the fit. Every round therefore
calibrates anew and measures at once; the median over the rounds counts.

python benchmarks/budget.py [MODEL SOURCE REFERENCE HELD-OUT] [--rounds 5]         by default what `make demo` leaves
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
from common import print_versions

from anydepth.artifact import model as artifact
from anydepth.data.corpus import read_lines
from anydepth.evaluate.calibrate import calibrate
from anydepth.evaluate.experiment import RunOptions
from anydepth.infer.translator import Translator
from anydepth.selectors.budget import in_ms, within_budget
from anydepth.selectors.calibration import Calibration, save

DATA = Path("demo/data")
BAR = 0.1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", type=Path, default=Path("demo/run"))
    parser.add_argument("source", nargs="?", type=Path, default=DATA / "valid.fr")
    parser.add_argument("reference", nargs="?", type=Path, default=DATA / "valid.en")
    parser.add_argument("held_out", nargs="?", type=Path, default=DATA / "test.fr")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budgets", type=int, default=4, help="between the fastest and the slowest depth")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--sentences", type=int, default=100, help="of the held-out set at batch 1")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print_versions()
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:  # the model keeps the calibration it has
        shutil.copytree(artifact.resolve(arguments.model), Path(folder) / "model")
        translator = Translator.load(Path(folder) / "model", engine="torch", device="cpu")
        sources, references = (list(read_lines(path)) for path in (arguments.source, arguments.reference))
        held_out = [line for line in read_lines(arguments.held_out) if line.strip()]
        few = held_out[:: max(1, len(held_out) // arguments.sentences)]
        for _ in range(arguments.rounds):
            options = RunOptions(batch_size=arguments.batch_size, repeats=1)
            calibration = calibrate(translator, sources, references, options, timing_sentences=len(few))
            save(calibration, translator.folder, translator.fingerprint)
            for batch_size, lines in ((1, few), (arguments.batch_size, held_out)):
                found = budgets(calibration, translator, lines, batch_size, arguments.budgets)
                for place, budget in enumerate(found, 1):
                    name = f"batch {batch_size}, {len(lines)} sentences, budget {place} of {len(found)}"
                    ratios.setdefault(name, []).append(kept(translator, lines, budget, batch_size))
    report(ratios)


def kept(translator: Translator, lines: Sequence[str], budget: str, batch_size: int) -> float:
    """The time per sentence over what was promised."""
    selector = within_budget(translator, budget, batch_size=batch_size)
    began = time.perf_counter()
    translator.translate(lines, depth=selector, batch_size=batch_size)
    return (time.perf_counter() - began) / len(lines) / selector.expected


def budgets(
    calibration: Calibration, translator: Translator, lines: Sequence[str], batch_size: int, count: int
) -> list[str]:
    """At even distances from just above the fastest depth to just above the slowest."""
    lengths = [len(ids) + 1 for ids in translator.tokenizer.encode_many(lines)]
    expected = sorted(cost.seconds(lengths) for cost in calibration.costs(batch_size).values())
    steps = [expected[0] + (expected[-1] - expected[0]) * i / max(1, count - 1) for i in range(count)]
    return [f"{in_ms(1.01 * step, round_up=True)}ms" for step in steps]


def report(ratios: dict[str, list[float]]) -> None:
    middle = {name: median(values) for name, values in ratios.items()}
    for name, values in ratios.items():
        rounds = ", ".join(f"{value:.2f}" for value in values)
        print(f"{name}: measured over promised {middle[name]:.3f} (rounds: {rounds})")
    worst = max(middle.values(), key=lambda ratio: abs(ratio - 1))
    within = sum(abs(ratio - 1) <= BAR for ratio in middle.values())
    print(f"within {BAR:.0%} of the promise: {within} of {len(middle)}, the worst {worst:.3f}")


if __name__ == "__main__":
    main()
