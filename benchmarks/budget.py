"""Is `--budget` kept? Calibrates on one set, translates another within several budgets, and holds the mean time per
sentence against what was promised. Ratio above 1: slower than promised.

python benchmarks/budget.py [MODEL SOURCE REFERENCE HELD-OUT] [--repeats 5]         by default what `make demo` leaves
"""

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from common import interleaved, print_versions

from anydepth import artifact
from anydepth.evaluate.calibrate import calibrate
from anydepth.infer import Translator
from anydepth.select.budget import BudgetSelector, in_ms, within_budget
from anydepth.select.calibration import Calibration, save
from anydepth.text.corpus import read_lines

DATA = Path("demo/data")
BAR = 0.1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", type=Path, default=Path("demo/run"))
    parser.add_argument("source", nargs="?", type=Path, default=DATA / "valid.fr")
    parser.add_argument("reference", nargs="?", type=Path, default=DATA / "valid.en")
    parser.add_argument("held_out", nargs="?", type=Path, default=DATA / "test.fr")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--budgets", type=int, default=4, help="between the fastest and the slowest depth")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--sentences", type=int, default=300, help="of the held-out set at batch 1")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print_versions()
    with tempfile.TemporaryDirectory() as folder:  # the model keeps the calibration it has
        shutil.copytree(artifact.resolve(arguments.model), Path(folder) / "model")
        translator = artifact.load(Path(folder) / "model")
        sources, references = (list(read_lines(path)) for path in (arguments.source, arguments.reference))
        calibration = calibrate(
            translator, sources, references, batch_size=arguments.batch_size, repeats=arguments.repeats
        )
        save(calibration, translator.folder, translator.fingerprint)
        held_out = [line for line in read_lines(arguments.held_out) if line.strip()]
        few = held_out[:: max(1, len(held_out) // arguments.sentences)]
        selectors: dict[str, BudgetSelector] = {}
        ways = {}
        for batch_size, lines in ((1, few), (arguments.batch_size, held_out)):
            for budget in budgets(calibration, translator, lines, batch_size, arguments.budgets):
                name = f"batch {batch_size}, {len(lines)} sentences, --budget {budget}"
                selectors[name] = within_budget(translator, budget, batch_size=batch_size)
                ways[name] = partial(translator.translate, lines, depth=selectors[name], batch_size=batch_size)
        seconds = interleaved(ways, arguments.repeats)
        report(selectors, {name: seconds[name] / len(ways[name].args[0]) for name in ways})


def budgets(
    calibration: Calibration, translator: Translator, lines: Sequence[str], batch_size: int, count: int
) -> list[str]:
    """At even distances from just above the fastest depth to just above the slowest."""
    lengths = [len(ids) + 1 for ids in translator.tokenizer.encode_many(lines)]
    expected = sorted(cost.seconds(lengths) for cost in calibration.costs(batch_size).values())
    steps = [expected[0] + (expected[-1] - expected[0]) * i / max(1, count - 1) for i in range(count)]
    return [f"{in_ms(1.01 * step, round_up=True)}ms" for step in steps]


def report(selectors: dict[str, BudgetSelector], seconds: dict[str, float]) -> None:
    ratios = {name: seconds[name] / selector.expected for name, selector in selectors.items()}
    for name, selector in selectors.items():
        print(
            f"{name}: depth {selector.depth}, promised {in_ms(selector.expected)} ms per sentence, "
            f"measured {in_ms(seconds[name])} ms, ratio {ratios[name]:.3f}, "
            f"of the budget {seconds[name] / selector.budget:.3f}"
        )
    worst = max(ratios.values(), key=lambda ratio: abs(ratio - 1))
    kept = sum(abs(ratio - 1) <= BAR for ratio in ratios.values())
    print(f"within {BAR:.0%} of the promise: {kept} of {len(ratios)}, the worst {worst:.3f}")


if __name__ == "__main__":
    main()
