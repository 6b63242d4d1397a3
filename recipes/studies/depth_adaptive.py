"""What the reports of depth-adaptive.sh say together: a table with an average row, MI against halting at equal
accuracy, and accuracy over layers.

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
EQUAL = 0.3  # points of accuracy
LAYERS = 6


def main() -> None:
    out = Path(sys.argv[1])
    if all(has(out, name) for name in SETS):
        print_table(out)
    for name in ("trec6", "reviews"):
        if has(out, f"{name}-scales"):
            print_equals(out, name)
    for name in ("trec6", "mr"):
        if has(out, f"{name}-borrowed"):
            print_exits(out, name)
    if has(out, "trec6-layers"):
        draw_layers(out)


def record(out: Path, report: str) -> Path:
    return out / f"report-{report}" / "evaluation.json"


def has(out: Path, report: str) -> bool:
    return record(out, report).exists()


def systems(out: Path, report: str) -> dict[str, dict]:
    found = json.loads(record(out, report).read_text("utf-8"))
    return {system["system"]: system for system in found["systems"]}


def print_table(out: Path) -> None:
    """Accuracy, mean depth, and how many times as fast as static at batch 1 and 16; allowed is what layers computed
    would give."""
    rows = {name: systems(out, name) for name in SETS}
    print("accuracy; mean depth; times as fast as static at batch 1, 16 (allowed by the layers computed)\n")
    print("| | " + " | ".join(METHODS) + " |\n|" + " --- |" * (len(METHODS) + 1))
    figures: dict[str, list[tuple[float, ...]]] = {method: [] for method in METHODS}
    for name, found in rows.items():
        cells = []
        for method in METHODS:
            one = found[method]
            figures[method].append(pick_figures(one))
            cells.append(shown(one))
        print(f"| {name} | " + " | ".join(cells) + " |")
    means = [cell(*(fmean(column) for column in zip(*figures[method], strict=True))) for method in METHODS]
    print("| average | " + " | ".join(means) + " |")


def cell(
    accuracy: float, depth: float, single: float, batched: float, allowed: float, deviation: float | None = None
) -> str:
    spread = "" if deviation is None else f" ± {deviation:.1f}"
    return f"{accuracy:.1f}{spread}; {depth:.2f}; {single:.2f}x, {batched:.2f}x ({allowed:.2f}x)"


def print_equals(out: Path, name: str) -> None:
    """MI beside the halting unit, both over all scales: for each way to run the one, the fastest way to run the other
    that is as good, at most 0.3 points worse. Both ways round, since all are chosen by the test set."""
    found = systems(out, f"{name}-scales")
    for one, other in (("halting", "mi"), ("halting", "mi-scales"), ("mi", "halting"), ("mi-scales", "halting")):
        print(f"\n{name}: {one}, and the fastest by {other} that is as good within {EQUAL} points, at batch 1")
        for point in all_points(found[one]):
            enough = [each for each in all_points(found[other]) if accuracy(each) >= accuracy(point) - EQUAL]
            best = min(enough, key=seconds, default=None)
            answer = (
                "none is as good" if best is None else f"{said(best)}, {seconds(best) / seconds(point):.2f}x the time"
            )
            print(f"{said(point)}: {answer}")


def print_exits(out: Path, name: str) -> None:
    """The weights that learnt to classify after every layer, without their halting unit."""
    print(
        f"\n{name}: all words after the same layer, of the weights that the halting unit has; at last with MI's depths"
    )
    for n in range(1, LAYERS + 1):
        point = systems(out, f"{name}-exit-{n}")["halting"]
        print(f"after layer {n}: {shown(point)}")
    for point in all_points(systems(out, f"{name}-borrowed")["halting"]):
        print(f"{said(point)}: {shown(point)}")


def pick_figures(point: dict) -> tuple[float, ...]:
    speeds = (point["speed_up"][n]["mean"] for n in ("1", "16"))
    return accuracy(point), point["mean_depth"]["mean"], *speeds, point["speed_up_allowed"]


def shown(point: dict) -> str:
    return cell(*pick_figures(point), point["accuracy"]["deviation"])


def all_points(system: dict) -> list[dict]:
    return [system, *system["curve"]]


def accuracy(point: dict) -> float:
    return point["accuracy"]["mean"]


def seconds(point: dict) -> float:
    return point["seconds_per_text"]["1"]["mean"]


def said(point: dict) -> str:
    scale = "as trained" if point["scale"] is None else f"scale {point['scale']:g}"
    return f"{scale} ({accuracy(point):.1f}, depth {point['mean_depth']['mean']:.2f}, {1000 * seconds(point):.1f} ms)"


def draw_layers(out: Path) -> None:
    """Accuracy and time over the number of layers (Figure 3 of the paper)."""
    found = systems(out, "trec6-layers")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    layers = sorted({int(name.rpartition("-")[2]) for name in found if "-" in name})
    for method, colour in COLOURS.items():
        ours = [found[f"{method}-{n}"] for n in layers]
        left.plot(layers, [accuracy(one) for one in ours], "o-", color=colour, label=method)
        right.plot(layers, [1000 * seconds(one) for one in ours], "o-", color=colour, label=method)
    left.set(xlabel="layers of the encoder", ylabel="accuracy in %", title="TREC-6, one seed", xticks=layers)
    right.set(
        xlabel="layers of the encoder",
        ylabel="ms per question, one by one",
        title="time",
        xticks=layers,
        ylim=(0, None),
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#d9dde2", linewidth=0.6)
    left.legend(frameon=False)
    figure.savefig(out / "layers.png", dpi=130)
    print(f"\nwritten: {out / 'layers.png'}")


if __name__ == "__main__":
    main()
