"""A sweep as a folder to keep: one web page that needs nothing else, its pictures, the numbers, the outputs."""

import json
from dataclasses import dataclass
from pathlib import Path

from anydepth.errors import UserError
from anydepth.evaluate import plots
from anydepth.evaluate.examples import pick_examples
from anydepth.evaluate.grid import lay_out
from anydepth.evaluate.grid_table import letters
from anydepth.evaluate.measurement import Measurement, ModelSweep
from anydepth.evaluate.page import file_stems, render_page, safe_name
from anydepth.evaluate.result import SweepResult
from anydepth.evaluate.shared_depths import SIGNIFICANT
from anydepth.files import write_atomically

BARELY_WORSE = 1.0

COLUMNS = (
    ("depth", "encoder layers n and decoder layers m that run, written n-m"),
    ("front", "★: on the Pareto front, no other depth is faster and at least as good in BLEU"),
    ("BLEU", "overlap of words and word sequences with the reference, 0 to 100"),
    ("chrF", "overlap of character sequences with the reference (chrF2), 0 to 100"),
    ("seconds", "median time to translate the whole test set"),
    ("ms/sentence", "the same per sentence, in milliseconds"),
    ("sentences/s", "sentences translated per second"),
    ("tokens/s", "sub-words written per second"),
    ("parameters", "weights that this depth uses, each counted once, in millions"),
    ("MB", "what these weights take, in millions of bytes"),
    ("length", "output length divided by reference length, in words; 1 is ideal"),
    ("repetition", "share of output words that repeat the 1 to 4 words right before them"),
)


@dataclass(frozen=True)
class Trade:
    """What a faster depth gains and loses against the best one."""

    depth: Measurement
    best: Measurement

    @property
    def speedup(self) -> float:
        return self.best.seconds / self.depth.seconds

    @property
    def loss(self) -> float:
        return self.best.bleu - self.depth.bleu


def fastest_trade(model: ModelSweep) -> Trade | None:
    """The fastest depth, unless it is also the best."""
    return Trade(model.fastest, model.best) if model.fastest.depth != model.best.depth else None


def barely_worse_trade(model: ModelSweep) -> Trade | None:
    """The fastest depth within one BLEU of the best, unless that is the best or the fastest itself."""
    near = (one for one in model.measurements if model.best.bleu - one.bleu <= BARELY_WORSE)
    found = min(near, key=lambda one: one.seconds)
    is_news = found.depth not in (model.best.depth, model.fastest.depth)
    return Trade(found, model.best) if is_news else None


def write_report(result: SweepResult, folder: Path) -> Path:
    """Write index.html, sweep.json, the pictures and outputs/ into `folder`; return the page's path."""
    stems = file_stems(result.labels)
    pictures = draw(result)
    page = folder / "index.html"
    try:
        for model in result.models:
            for one in model.measurements:
                path = folder / "outputs" / f"{stems[model.label]}.{safe_name(one.depth)}.txt"
                write_atomically(path, "".join(f"{line}\n" for line in one.outputs))
        for name, png in pictures.items():
            write_atomically(folder / name, png)
        content = json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(folder / "sweep.json", content + "\n")
        write_atomically(page, render(result, pictures))
    except OSError as error:
        raise UserError(f"cannot write the report to {folder}: {error.strerror}; give another folder") from error
    return page


def draw(result: SweepResult) -> dict[str, bytes]:
    """The PNGs by file name."""
    pictures = {
        "bleu.png": plots.bleu_maps(result.models),
        "time.png": plots.time_maps(result.models),
        "quality-time.png": plots.quality_time(result.models),
    }
    if result.comparison is not None and result.comparison.shared:
        stems = file_stems(result.labels)
        for label in result.comparison.mean_differences:
            pictures[_difference_name(stems[label])] = plots.difference_map(result.comparison, result.models, label)
    return pictures


def render(result: SweepResult, pictures: dict[str, bytes]) -> str:
    """The page, with the pictures inside."""
    stems = file_stems(result.labels)
    return render_page(
        "sweep.html.j2",
        pictures,
        result=result,
        conditions=result.conditions,
        comparison=result.comparison,
        grid=lay_out(result.comparison, result.models) if result.comparison else None,
        letters=letters(result.labels),
        models=[
            {
                "sweep": model,
                "fastest": fastest_trade(model),
                "barely_worse": barely_worse_trade(model),
                "examples": pick_examples(model, result.sources, result.references),
            }
            for model in result.models
        ],
        columns=COLUMNS,
        significant=SIGNIFICANT,
        difference_names={label: _difference_name(stems[label]) for label in result.labels},
    )


def _difference_name(stem: str) -> str:
    return f"difference-{stem}.png"
