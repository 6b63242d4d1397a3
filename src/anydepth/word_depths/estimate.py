"""Word depths by reconstruction, from texts to the table: trains a model that fills in, and asks it.

It fills in from every layer through one head (Liu et al. 2021, "anytime prediction").
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from anydepth.artifact import model as artifact
from anydepth.config import Recipe
from anydepth.data.cleaning import normalise
from anydepth.data.masking import MASK
from anydepth.depth import SubNetwork
from anydepth.errors import UserError
from anydepth.evaluate.bar import bar
from anydepth.files import write_atomically
from anydepth.train.pretrained import is_pretrained
from anydepth.train.run import train
from anydepth.word_depths.reconstruction import Averager, occurrence_depths, reconstruct
from anydepth.word_depths.table import WordDepths

TEXT = "text.txt"
SEED = 1
FEWEST = 20  # texts


@dataclass(frozen=True)
class Reconstruction:
    """How a table is to be made."""

    encoder: Path | None  # to start from, or one that fills in already; None: from scratch
    layers: int | None
    steps: int
    rate: float
    batch_tokens: int
    sample: int  # texts that the table is averaged over
    lambda_: float
    max_tokens: int
    threads: int | None = None
    device: str = "auto"
    vocabulary: int | None = None  # of an encoder from scratch; None: as a recipe has it


# keys of the recipe that a user of the command line has other names for
OPTIONS = {"data.vocabulary": "--vocabulary", "data.max_tokens": "--max-tokens"}


def reconstruction_depths(
    asked: Reconstruction, texts: Sequence[str], given: Sequence[str], work: Path, console: Console
) -> tuple[WordDepths, Counter[str]]:
    """The table, and how often its words occurred. Of the `given` texts, each occurrence gets a depth of its own."""
    there = _fills_in(asked, console)
    filler = there or _trained(asked, texts, work, console)
    model, averager = filler.model, Averager(filler.model.config.encoder_layers, asked.lambda_)
    chosen = random.Random(SEED).sample(list(texts), min(asked.sample, len(texts)))
    with bar(console, "texts reconstructed", len(chosen)) as advance:
        for one in reconstruct(model, filler.tokenizer, _read(filler, chosen, asked.max_tokens), advance):
            averager.add(one)
    if not averager.counts:
        raise UserError("there are no words in these texts: give others with --train")
    with bar(console, "given texts reconstructed", len(given)) as advance:
        found = reconstruct(model, filler.tokenizer, _read(filler, given, asked.max_tokens), advance)
        of_texts = occurrence_depths(found, asked.lambda_)
    facts: dict[str, object] = {
        "texts": len(texts),
        "sampled": len(chosen),
        "steps": 0 if there else asked.steps,
        "max_tokens": asked.max_tokens,
        "encoder": None if asked.encoder is None else asked.encoder.name,
    }
    return averager.table(of_texts, facts), averager.counts


def _read(filler: artifact.LoadedModel, texts: Sequence[str], limit: int) -> list[list[int]]:
    """As a classifier that was trained with this limit reads them, so that it finds their depths again."""
    longest = min(limit - len(filler.tokenizer.opening), filler.longest_source)
    return [filler.as_read(ids[:longest]) for ids in filler.tokenizer.encode_many(texts) if ids]


def _fills_in(asked: Reconstruction, console: Console) -> artifact.LoadedModel | None:
    """The given encoder, if it has learnt to fill in from every layer."""
    if asked.encoder is None or is_pretrained(asked.encoder):
        return None
    there = artifact.load_model(asked.encoder, asked.device)
    if there.kind == "classifier":
        return None
    if there.kind == "translator":
        raise UserError(f"{asked.encoder} translates: give an encoder alone with --encoder, or none to start anew")
    exits = {SubNetwork.prefix(depth, 0) for depth in range(1, there.model.config.encoder_layers + 1)}
    if there.tokenizer.id_of(MASK) is None or not exits <= {entry.subnetwork for entry in there.menu}:
        return None
    console.print(f"{asked.encoder} fills in from every layer: it is used as it is", highlight=False)
    return there


def _trained(asked: Reconstruction, texts: Sequence[str], work: Path, console: Console) -> artifact.LoadedModel:
    """A model that learns to fill in from every layer."""
    try:
        return artifact.load_model(train(_recipe(asked, texts, work), work, console), asked.device)
    except UserError as error:
        said = str(error)
        for key, option in OPTIONS.items():
            said = said.replace(key, option)
        raise UserError(said) from error


def _parts(text: str, max_tokens: int) -> Iterator[str]:
    """A long text in parts that are short enough, for which half as many words as sub-words are allowed."""
    words, size = text.split(), max(1, max_tokens // 2)
    for start in range(0, len(words), size):
        yield " ".join(words[start : start + size])


def _recipe(asked: Reconstruction, texts: Sequence[str], work: Path) -> Recipe:
    lines = [part for text in texts for part in _parts(normalise(text), asked.max_tokens)]
    if len(lines) < FEWEST:
        raise UserError(f"{len(lines)} texts are too few to learn from: give at least {FEWEST} with --train")
    held_out = max(1, min(500, len(lines) // 20))
    text = work.with_name(f"{work.name}.{TEXT}")
    text.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(line + "\n" for line in lines)
    if (work / "recipe.json").exists() and text.exists() and text.read_text("utf-8") != content:
        raise UserError(f"{work} was begun with other texts: give the same to go on, or another folder with --work")
    write_atomically(text, content)
    model: dict[str, Any] = {} if asked.encoder is not None else {"encoder_layers": asked.layers or 6}
    data: dict[str, Any] = {
        "train": {"text": text},
        "hold_out": held_out,
        "max_tokens": asked.max_tokens,
        "max_ratio": 1e9,
        **({} if asked.vocabulary is None else {"vocabulary": asked.vocabulary}),
    }
    return Recipe.model_validate(
        {
            "init_from": asked.encoder,
            "data": data,
            "model": {"decoder_layers": 0, "head": "transform", **model},
            "objective": {"name": "tied-multi", "mode": "exact"},
            "train": {
                "steps": asked.steps,
                "batch_tokens": asked.batch_tokens,
                "rate": asked.rate,
                "warmup": max(1, asked.steps // 10),
                "schedule": "linear",
                "label_smoothing": 0.0,
                "clip": 5.0,
                "average": 1,
                "log_every": max(1, asked.steps // 20),
                "valid_every": max(1, asked.steps // 4),
                "checkpoint_every": max(1, asked.steps // 4),
                "threads": asked.threads,
                "device": asked.device,
            },
        }
    )
