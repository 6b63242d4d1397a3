"""From a corpus to what training reads: cleaned text, a tokenizer and token files, in one folder."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from anydepth.config import DataConfig
from anydepth.errors import UserError
from anydepth.files import atomic_folder, read_json, sha256_of
from anydepth.text.clean import Cleaner, CleaningCounts, digest
from anydepth.text.corpus import Pair, read_lines, read_pairs
from anydepth.text.split import HoldOut, too_small_to_hold_out
from anydepth.text.store import PairStore, StoreWriter
from anydepth.text.tokenizer import Tokenizer

Item = TypeVar("Item")
EncodedPair = tuple[Pair, list[int], list[int]]

PAIRS_ENCODED_AT_ONCE = 10_000


@dataclass
class Prepared:
    folder: Path
    tokenizer: Tokenizer
    train: PairStore
    valid_pairs: list[Pair]
    fingerprint: str  # of the tokenizer and the tokens: what a model trained on this depends on
    counts: dict[str, Any]  # "train" and "valid" as CleaningCounts, "valid_seen_in_train" as a number


def prepare(config: DataConfig, folder: Path, seed: int, *, show_progress: bool = True) -> Prepared:
    """Fill `folder`, in one step, or reuse what an equal configuration left there."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: choose another folder for the prepared data")
    if folder.exists() and any(folder.iterdir()):
        _check_reusable(folder, config, seed)
    else:
        columns = (SpinnerColumn(), "{task.description}", TextColumn("{task.completed:,}"), TimeElapsedColumn())
        console = Console(stderr=True)
        visible = show_progress and console.is_terminal
        bar = Progress(*columns, console=console, transient=True, disable=not visible)
        with bar, atomic_folder(folder) as work:
            _fill(config, work, seed, bar)
    notes = _read_notes(folder)
    return Prepared(
        folder=folder,
        fingerprint=hashlib.sha256(json.dumps(notes["files"], sort_keys=True).encode()).hexdigest(),
        tokenizer=Tokenizer.from_bytes((folder / "tokenizer.model").read_bytes()),
        train=PairStore(folder, "train"),
        valid_pairs=list(_read_back(folder, "valid")),
        counts=notes["counts"],
    )


def _fill(config: DataConfig, work: Path, seed: int, bar: Progress) -> None:
    given = None if config.tokenizer is None else Tokenizer.load(config.tokenizer)  # refused early if it is not there
    cleaner = Cleaner(config)
    train_counts = cleaner.counts
    cleaned = _watched(bar, "cleaned pairs", cleaner.clean(read_pairs(config.train)))
    seen: set[int] = set()
    if config.valid is None:
        valid, valid_counts = _hold_out(cleaned, HoldOut(config.hold_out, seed), train_counts, work)
    else:
        valid, valid_counts = _clean_valid(config)
        sources = {digest(source) for source, _ in valid}
        _write_pairs(work, "train", _noting_sources(cleaned, sources, seen))
    _check_usable("training", train_counts)

    tokenizer = given or _train_tokenizer(config, work, seed, bar)
    (work / "tokenizer.model").write_bytes(tokenizer.to_bytes())

    train = _watched(bar, "encoded pairs", _read_back(work, "train"))
    with StoreWriter(work, "train", tokenizer.vocabulary_size) as store:
        for _, source_ids, target_ids in _encode(train, tokenizer, config.max_tokens, train_counts):
            store.add(source_ids, target_ids)
    valid = [pair for pair, _, _ in _encode(valid, tokenizer, config.max_tokens, valid_counts)]
    for corpus, counts in (("training", train_counts), ("validation", valid_counts)):
        _check_usable(corpus, counts)
    _write_pairs(work, "valid", valid)

    all_counts = {
        "train": train_counts.to_json(),
        "valid": valid_counts.to_json(),
        "valid_seen_in_train": sum(digest(source) in seen for source, _ in valid),
    }
    files = {path.name: sha256_of(path) for path in sorted(work.iterdir())}
    notes = {"data": config.model_dump(mode="json"), "seed": seed, "counts": all_counts, "files": files}
    (work / "prepared.json").write_text(json.dumps(notes, indent=2) + "\n", encoding="utf-8")


def _train_tokenizer(config: DataConfig, work: Path, seed: int, bar: Progress) -> Tokenizer:
    sentences = (sentence for pair in _read_back(work, "train") for sentence in pair)
    return Tokenizer.train(
        _watched(bar, "sentences for the vocabulary", sentences),
        config.vocabulary,
        sample=config.vocabulary_sample,
        byte_fallback=config.byte_fallback,
        seed=seed,
    )


def _hold_out(
    pairs: Iterable[Pair], hold_out: HoldOut, train_counts: CleaningCounts, work: Path
) -> tuple[list[Pair], CleaningCounts]:
    """Write the pairs to train on; return the others, one per source, with their counts."""

    def shown() -> Iterator[Pair]:
        for pair in pairs:
            hold_out.see(pair[0])
            yield pair

    valid: dict[str, str] = {}

    def to_train_on() -> Iterator[Pair]:
        for source, target in _read_back(work, "cleaned"):
            if source in hold_out:
                train_counts.held_out += 1
                valid.setdefault(source, target)
            else:
                yield source, target

    _write_pairs(work, "cleaned", shown())
    _check_usable("training", train_counts)
    hold_out.choose()
    _write_pairs(work, "train", to_train_on())
    for side in ("source", "target"):
        (work / f"cleaned.{side}").unlink()

    held_out = train_counts.held_out
    train_counts.kept -= held_out
    if held_out > train_counts.kept:
        raise too_small_to_hold_out(hold_out.size, f"only {train_counts.kept} pairs that share no source with them")
    counts = CleaningCounts(read=held_out, kept=len(valid), duplicates=held_out - len(valid))
    return list(valid.items()), counts


def _clean_valid(config: DataConfig) -> tuple[list[Pair], CleaningCounts]:
    assert config.valid is not None
    cleaner = Cleaner(config.model_copy(update={"deduplicate": False}))
    valid = list(cleaner.clean(read_pairs(config.valid)))
    _check_usable("validation", cleaner.counts)
    return valid, cleaner.counts


def _check_usable(corpus: str, counts: CleaningCounts) -> None:
    if counts.kept == 0:
        raise UserError(
            f"no pair of the {corpus} corpus is usable ({counts.summary()}): "
            "look at the files, or relax data.max_tokens and data.max_ratio"
        )


def _noting_sources(pairs: Iterable[Pair], sources: set[int], seen: set[int]) -> Iterator[Pair]:
    """Pass pairs on and add to `seen` those of `sources` that occur."""
    for pair in pairs:
        source = digest(pair[0])
        if source in sources:
            seen.add(source)
        yield pair


def _encode(
    pairs: Iterable[Pair], tokenizer: Tokenizer, max_tokens: int, counts: CleaningCounts
) -> Iterator[EncodedPair]:
    """Pairs with their sub-words. Those with too many, or none, move from `kept` to their place in the counts."""
    remaining = iter(pairs)
    while chunk := list(islice(remaining, PAIRS_ENCODED_AT_ONCE)):
        sources = tokenizer.encode_many([source for source, _ in chunk])
        targets = tokenizer.encode_many([target for _, target in chunk])
        for pair, source_ids, target_ids in zip(chunk, sources, targets, strict=True):
            shorter, longer = sorted((len(source_ids), len(target_ids)))
            if shorter > 0 and longer <= max_tokens:
                yield pair, source_ids, target_ids
                continue
            counts.kept -= 1
            if shorter == 0:
                counts.empty += 1
            else:
                counts.too_long += 1


def _watched(bar: Progress, description: str, items: Iterable[Item]) -> Iterator[Item]:
    task = bar.add_task(description, total=None)
    for number, item in enumerate(items, start=1):
        if number % 1000 == 0:
            bar.update(task, completed=number)
        yield item


def _write_pairs(folder: Path, name: str, pairs: Iterable[Pair]) -> None:
    with (
        open(folder / f"{name}.source", "w", encoding="utf-8", newline="\n") as sources,
        open(folder / f"{name}.target", "w", encoding="utf-8", newline="\n") as targets,
    ):
        for source, target in pairs:
            sources.write(source + "\n")
            targets.write(target + "\n")


def _read_back(folder: Path, name: str) -> Iterator[Pair]:
    return zip(read_lines(folder / f"{name}.source"), read_lines(folder / f"{name}.target"), strict=True)


def _read_notes(folder: Path) -> dict[str, Any]:
    """What `_fill` wrote, once every file it wrote is found to be whole."""
    if not (folder / "prepared.json").exists():
        raise UserError(f"{folder} holds something other than prepared data: choose another folder")
    advice = f"delete {folder} and run again"
    notes = read_json(folder / "prepared.json", advice)
    files, counts = notes.get("files"), notes.get("counts")
    if not isinstance(files, dict) or not isinstance(counts, dict) or "train" not in counts:
        raise UserError(f"{folder / 'prepared.json'} is damaged: {advice}")
    for name, expected in files.items():
        if not (folder / name).is_file() or sha256_of(folder / name) != expected:
            raise UserError(f"{folder / name} is damaged: {advice}")
    return notes


def _same_tokenizer(path: Path | None, folder: Path) -> bool:
    """Whether it has only moved."""
    return path is not None and Tokenizer.load(path).to_bytes() == (folder / "tokenizer.model").read_bytes()


def _check_reusable(folder: Path, config: DataConfig, seed: int) -> None:
    notes = _read_notes(folder)
    try:
        earlier = DataConfig.model_validate(notes.get("data"))
    except ValidationError as error:
        raise UserError(f"{folder} was prepared by another version: delete that folder and run again") from error
    changed = [f"data.{key}" for key, value in config if value != getattr(earlier, key) and key != "tokenizer"]
    if config.tokenizer != earlier.tokenizer and not _same_tokenizer(config.tokenizer, folder):
        changed.append("data.tokenizer")
    if notes.get("seed") != seed:
        changed.append("train.seed")
    if changed:
        raise UserError(f"{folder} was prepared with another {changed[0]}: choose a new folder, or delete this one")
