"""Small tables of what steps found: the reports of `anydepth oracle` and `anydepth evaluate`, and of timing.py."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plan import Step

BUSY = 0.2  # cores of other programs: times beside them are in doubt
DIFFERENCE = ("difference", "95% interval")
Found = Mapping[str, Any]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(cells)} |"
    yield ""


def difference(one: Found | None) -> list[str]:
    """To the first row, and its interval."""
    return ["", ""] if one is None else [f"{one['bleu']:+.2f}", f"{one['low']:+.2f} to {one['high']:+.2f}"]


def step_table(step: Step, found: Found) -> Iterator[str]:
    """By the name of the file that the step makes."""
    caption, table = TABLES[Path(step.makes).name]
    yield f"`{step.name}`: {caption}"
    yield ""
    yield from table(found)


def _oracle(found: Found) -> Iterator[str]:
    """Rows are encoder depths, columns decoder depths."""
    for model in found["models"]:
        shares = {(one["encoder_layers"], one["decoder_layers"]): one["share"] for one in model["depths"]}
        encoder, decoder = ({place[side] for place in shares} for side in (0, 1))
        header = ["encoder layers", *(f"{m} decoder" for m in sorted(decoder))]
        rows = [[f"{n}", *(f"{shares.get((n, m), 0):.1%}" for m in sorted(decoder))] for n in sorted(encoder)]
        yield from markdown(header, rows)
        choices = model["choices"].items()
        cells = [[name, one["name"], f"{one['bleu']:.2f}", f"{one['chrf']:.2f}"] for name, one in choices]
        yield from markdown(["choice", "depth", "BLEU", "chrF"], cells)
    yield f"BLEU: `{found['signatures']['BLEU']}`."
    yield ""


def _timing(found: Found) -> Iterator[str]:
    systems = found["systems"]
    first = systems[0]["seconds_per_sentence"]
    rows = [
        [
            *(f"`{one['name']}`", one["depth"], f"{one['beam']}", f"{one['bleu']:.2f}", *difference(one["difference"])),
            f"{1000 * one['seconds_per_sentence']:.2f} ms ({_range(one['passes'])})",
            f"{one['seconds_per_sentence'] / first:.2f}",
        ]
        for one in systems
    ]
    header = ["system", "depth", "beam", "BLEU", *DIFFERENCE, "time per sentence", "of the first's"]
    yield from markdown(header, rows)
    if (found["other_load"] or 0) > BUSY:
        yield f"Do not trust these times: other programs kept {found['other_load']:.1f} cores busy."
        yield ""
    yield f"BLEU: `{found['signature']}`."
    yield ""


def _range(passes: Sequence[float]) -> str:
    return f"{1000 * min(passes):.2f} to {1000 * max(passes):.2f}"


def _evaluation(found: Found) -> Iterator[str]:
    sizes = list(found["systems"][0]["seconds_per_text"])
    header = ["system", "run", "accuracy", "mean depth", *(f"time per text, batch of {size}" for size in sizes)]
    rows = [
        [f"`{system['system']}`", _setting(one), _mean(one["accuracy"], 2), _mean(one["mean_depth"], 2), *_times(one)]
        for system in found["systems"]
        for one in (system, *system["curve"])
    ]
    yield from markdown(header, rows)


def _setting(one: Found) -> str:
    """As the report calls it."""
    if "exit" in one:
        return f"exit {one['exit']}"
    if one["scale"] is not None:
        return f"scale {one['scale']:g}"
    return "as trained" if one["lambda"] is None else f"lambda {one['lambda']:g}"


def _times(one: Found) -> list[str]:
    return [f"{_mean(seconds, 2, 1000)} ms" for seconds in one["seconds_per_text"].values()]


def _mean(one: Found, digits: int, scale: float = 1) -> str:
    deviation = "" if one["deviation"] is None else f" ± {scale * one['deviation']:.{digits}f}"
    return f"{scale * one['mean']:.{digits}f}{deviation}"


TABLES: dict[str, tuple[str, Callable[[Found], Iterator[str]]]] = {
    "oracle.json": ("the share of sentences that each depth is best for", _oracle),
    "timing.json": ("BLEU and time, the systems in turn on one machine", _timing),
    "evaluation.json": ("accuracy and time", _evaluation),
}
