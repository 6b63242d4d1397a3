"""What the reports of depth-adaptive.sh say together: a table with an average row, and accuracy over layers.

python recipes/studies/depth_adaptive.py OUT
"""

import json
import sys
from pathlib import Path
from statistics import fmean

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

SETS = ("trec6", "mr", "subj", "reviews")
METHODS = ("static", "halting", "mi", "reconstruction")
COLOURS = {"static": "#333333", "halting": "#b5651d", "mi": "#1f6fb2"}


def main() -> None:
    out = Path(sys.argv[1])
    print_table(out)
    if (out / "report-trec6-layers" / "evaluation.json").exists():
        draw_layers(out)


def systems(out: Path, report: str) -> dict[str, dict]:
    found = json.loads((out / f"report-{report}" / "evaluation.json").read_text("utf-8"))
    return {system["system"]: system for system in found["systems"]}


def print_table(out: Path) -> None:
    """Accuracy, mean depth, and how many times as fast as static at batch 1 and 16."""
    rows = {name: systems(out, name) for name in SETS}
    print("| | " + " | ".join(METHODS) + " |\n|" + " --- |" * (len(METHODS) + 1))
    figures: dict[str, list[tuple[float, ...]]] = {method: [] for method in METHODS}
    for name, found in rows.items():
        cells = []
        for method in METHODS:
            one = found[method]
            values = (
                one["accuracy"]["mean"],
                one["mean_depth"]["mean"],
                *(one["speed_up"][n]["mean"] for n in ("1", "16")),
            )
            figures[method].append(values)
            cells.append(cell(*values, one["accuracy"]["deviation"]))
        print(f"| {name} | " + " | ".join(cells) + " |")
    means = [cell(*(fmean(column) for column in zip(*figures[method], strict=True))) for method in METHODS]
    print("| average | " + " | ".join(means) + " |")


def cell(accuracy: float, depth: float, single: float, batched: float, deviation: float | None = None) -> str:
    spread = "" if deviation is None else f" ± {deviation:.1f}"
    return f"{accuracy:.1f}{spread}; {depth:.2f}; {single:.2f}x, {batched:.2f}x"


def draw_layers(out: Path) -> None:
    """Accuracy and time over the number of layers (Figure 3 of the paper)."""
    found = systems(out, "trec6-layers")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    layers = sorted({int(name.rpartition("-")[2]) for name in found if "-" in name})
    for method, colour in COLOURS.items():
        ours = [found[f"{method}-{n}"] for n in layers]
        left.plot(layers, [one["accuracy"]["mean"] for one in ours], "o-", color=colour, label=method)
        right.plot(
            layers, [1000 * one["seconds_per_text"]["1"]["mean"] for one in ours], "o-", color=colour, label=method
        )
    left.set(
        xlabel="layers of the encoder", ylabel="accuracy in %", title="TREC-6, 240 updates, one seed", xticks=layers
    )
    right.set(xlabel="layers of the encoder", ylabel="ms per question, one by one", xticks=layers, ylim=(0, None))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#d9dde2", linewidth=0.6)
    left.legend(frameon=False)
    figure.savefig(out / "layers.png", dpi=130)
    print(f"written: {out / 'layers.png'}")


if __name__ == "__main__":
    main()
