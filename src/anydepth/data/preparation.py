"""From corpora to what training reads: cleaned text, a tokenizer and token files, in one folder.

prepared.json   what they were made from, how much was left out, checksums of all files
"""

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from anydepth.config import DataConfig
from anydepth.data.augment import Augmenter
from anydepth.data.batching import CorpusSpan
from anydepth.data.cleaning import CleaningCounts
from anydepth.data.corpus import Pair
from anydepth.data.decontamination import decontaminate
from anydepth.data.parts import PairCorpus, clean_part, file_prefix, list_labels, read_back, watched
from anydepth.data.shards import PairEncoder, PairStore, encode_part
from anydepth.data.tokenizer import MASK, Tokenizer, TokenizerOptions, sample_sentences
from anydepth.errors import UserError
from anydepth.files import atomic_folder, file_sha256, read_json

NOTES = "prepared.json"


@dataclass
class PreparedPair:
    """What there is of one language pair. Where the sources in `train` begin with a tag, `valid_pairs` are text."""

    name: str
    languages: tuple[str, str]
    tag: str | None
    train: PairStore
    valid_pairs: list[Pair]
    files: list[str]  # the names of its text files, one for each corpus
    spans: list[CorpusSpan]  # of its corpora in `train`
    target_tag: str | None = None


@dataclass
class Prepared:
    folder: Path
    tokenizer: Tokenizer
    parts: list[PreparedPair]
    fingerprint: str  # of the tokenizer and the tokens: what a model trained on this depends on
    # "train" and "valid" as CleaningCounts, or where there are several pairs those of each by its name;
    # "valid_seen_in_train" as a number
    counts: dict[str, Any]
    labels: tuple[str, ...] = ()  # of texts that have some, in the order of their numbers

    def training_text(self) -> Iterator[Pair]:
        """All there is to train on, as it was before it became tokens."""
        return (pair for part in self.parts for name in part.files for pair in read_back(self.folder, name))


def prepare(
    config: DataConfig,
    folder: Path,
    seed: int,
    *,
    tokenizer: Tokenizer | None = None,
    verify: bool = True,
) -> Prepared:
    """Fill `folder`, in one step, or reuse what the same configuration left there, if every file is as it was.

    `tokenizer` is that of `config.tokenizer`, if it has been loaded. `verify=False`: another process has just verified.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: choose another folder for the prepared data")
    if folder.exists() and any(folder.iterdir()):
        notes = read_notes(folder, verify)
        _check_reusable(notes, folder, config, seed)
    else:
        with atomic_folder(folder) as work:
            _fill(config, work, seed, tokenizer)
        notes = read_notes(folder, verify=False)
    return Prepared(
        folder=folder,
        fingerprint=hashlib.sha256(json.dumps(notes["files"], sort_keys=True).encode()).hexdigest(),
        tokenizer=Tokenizer.load(folder),
        parts=_open_parts(config, folder, notes),
        counts=notes["counts"],
        labels=tuple(notes.get("labels", ())),
    )


def _open_parts(config: DataConfig, folder: Path, notes: dict[str, Any]) -> list[PreparedPair]:
    parts = []
    for pair in config.corpora:
        prefix, languages = file_prefix(pair, config.corpora), (pair.source_language, pair.target_language)
        valid = list(read_back(folder, f"{prefix}valid"))
        name = f"{prefix}train"
        tag, store = config.tags.get(pair.name), PairStore(folder, name)
        sizes = notes.get("sizes", {}).get(pair.name, [len(store)])
        weights = [corpus.weight for corpus in pair.training]
        spans = [CorpusSpan(size, weight) for size, weight in zip(sizes, weights, strict=True)]
        files = PairCorpus(pair, prefix, CleaningCounts()).files
        target_tag = config.target_tags.get(pair.name)
        parts.append(PreparedPair(pair.name, languages, tag, store, valid, files, spans, target_tag))
    return parts


def _fill(config: DataConfig, work: Path, seed: int, read: Tokenizer | None) -> None:
    given = _given_tokenizer(config, read)  # refused early if it is not there or not fit
    parts = [clean_part(config, pair, work, seed) for pair in config.corpora]
    decontaminate(parts, config.decontaminate, work)
    tokenizer = given or _train_tokenizer(config, parts, work, seed)
    (work / tokenizer.file_name).write_bytes(tokenizer.to_bytes())
    labels = list_labels(parts[0]) if config.is_labelled else []
    for part in parts:
        tag = config.tags.get(part.pair.name)
        tag_id = None if tag is None else tokenizer.symbol_id(tag)
        first = [*tokenizer.opening, *([] if tag_id is None else [tag_id])]
        target_tag = config.target_tags.get(part.pair.name)
        target_id = None if target_tag is None else tokenizer.symbol_id(target_tag)
        first_target = () if target_id is None else (target_id,)
        encode_part(part, PairEncoder(tokenizer, first, config.max_tokens, labels, first_target), work)
    notes = make_notes(config, seed, _counts(parts), work) | ({"labels": labels} if labels else {})
    if any(len(part.sizes) > 1 for part in parts):
        notes["sizes"] = {part.pair.name: part.sizes for part in parts}
    (work / NOTES).write_text(json.dumps(notes, indent=2) + "\n", encoding="utf-8")


def _counts(parts: Sequence[PairCorpus]) -> dict[str, Any]:
    train: dict[str, Any] = {part.pair.name: part.train_counts.to_json() for part in parts}
    valid: dict[str, Any] = {part.pair.name: part.valid_counts.to_json() for part in parts}
    if len(parts) == 1:
        (train,), (valid,) = train.values(), valid.values()
    return {"train": train, "valid": valid, "valid_seen_in_train": sum(part.valid_seen_in_train() for part in parts)}


def _symbols(config: DataConfig) -> list[str]:
    """What the tokenizer needs beside the pieces of text."""
    return [MASK] if config.is_text else sorted({*config.tags.values(), *config.target_tags.values()})


def _given_tokenizer(config: DataConfig, read: Tokenizer | None) -> Tokenizer | None:
    if config.tokenizer is None:
        return None
    given = read or Tokenizer.load(config.tokenizer)
    missing = [symbol for symbol in _symbols(config) if given.symbol_id(symbol) is None]
    if missing:
        raise UserError(
            f"the tokenizer of {config.tokenizer} has no symbol {missing[0]}, which these corpora need: "
            "take one that was made for such corpora, or none"
        )
    return given


def _train_tokenizer(config: DataConfig, parts: Sequence[PairCorpus], work: Path, seed: int) -> Tokenizer:
    options = TokenizerOptions(
        config.vocabulary,
        config.vocabulary_sample,
        config.byte_fallback,
        _symbols(config),
        config.character_coverage,
        config.required_characters,
        config.split_digits,
    )
    sentences = watched("sentences for the vocabulary", _sentences(config, parts, work, seed))
    return Tokenizer.train(sentences, options, seed)


def _sentences(config: DataConfig, parts: Sequence[PairCorpus], work: Path, seed: int) -> Iterator[str]:
    """All of one language pair; of several the same number of each: those of a small one are repeated."""
    sides = 2 if config.task == "translation" else 1
    of_each = [(side for pair in _augmented(config, part, work, seed) for side in pair[:sides]) for part in parts]
    if len(parts) == 1:
        return of_each[0]
    largest = max(sides * part.train_counts.kept for part in parts)
    share = min(largest, max(1, config.vocabulary_sample // len(parts)))
    chosen = [text for texts in of_each for text in islice(cycle(sample_sentences(texts, share, seed)), share)]
    random.Random(seed).shuffle(chosen)  # sentencepiece is very slow where text repeats itself in the same order
    return iter(chosen)


def _augmented(config: DataConfig, part: PairCorpus, work: Path, seed: int) -> Iterator[Pair]:
    """The text to train on, with the changes of the first epoch, so that the vocabulary has what those need."""
    pairs = part.training_text(work)
    if config.augment is None:
        return pairs
    return Augmenter(config.augment, (part.pair.source_language, part.pair.target_language), seed).text(pairs)


def _same_tokenizer(path: Path | None, folder: Path) -> bool:
    """Whether it has only moved."""
    return path is not None and Tokenizer.load(path).to_bytes() == Tokenizer.load(folder).to_bytes()


def _check_reusable(notes: dict[str, Any], folder: Path, config: DataConfig, seed: int) -> None:
    try:
        earlier = DataConfig.model_validate(notes.get("data"))
    except ValidationError as error:
        raise UserError(f"{folder} was prepared by another version: delete that folder and run again") from error
    then, now = describe_data(earlier), describe_data(config)
    changed = [f"data.{key}" for key in {**then, **now} if now.get(key) != then.get(key) and key != "tokenizer"]
    if config.tokenizer != earlier.tokenizer and not _same_tokenizer(config.tokenizer, folder):
        changed.append("data.tokenizer")
    if notes.get("seed") != seed:
        changed.append("train.seed")
    if changed:
        raise UserError(f"{folder} was prepared with another {changed[0]}: choose a new folder, or delete this one")


def make_notes(config: DataConfig, seed: int, counts: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What a prepared folder was made from, how much of it remains, and the checksums of its files."""
    files = {path.name: file_sha256(path) for path in sorted(folder.iterdir())}
    return {"data": describe_data(config), "seed": seed, "counts": counts, "files": files}


def describe_data(config: DataConfig) -> dict[str, Any]:
    """The keys that the files depend on, without unused ones that earlier versions do not know."""
    data = config.model_dump(mode="json", exclude={"sampling", "temperature", "masked", "lowercase_capitals"})
    if not config.decontaminate:
        del data["decontaminate"]
    for key in ("augment", "character_coverage", "required_characters", "split_digits", "language_tokens"):
        if not data[key]:
            del data[key]
    if config.folds is None:
        del data["folds"], data["fold"]
    in_pairs = [pair[key] or {} for pair in data["pairs"] for key in ("train", "valid")]
    if not config.pairs:
        del data["pairs"]
    every = (one for given in (data["train"] or {}, data["valid"] or {}, *in_pairs) for one in _as_list(given))
    for corpus in every:
        corpus.pop("weight", None)  # it concerns training only
        if corpus.get("text") is None and not config.pairs:
            corpus.pop("text", None)
        if corpus.get("labelled") is None:
            for key in ("labelled", "text_column", "label_column"):
                corpus.pop(key, None)
    return data


def _as_list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def read_notes(folder: Path, verify: bool) -> dict[str, Any]:
    """The notes of a prepared folder, once every file they name is found to be there, and to be whole."""
    if not (folder / NOTES).exists():
        raise UserError(f"{folder} holds something other than prepared data: choose another folder")
    advice = f"delete {folder} and run again"
    notes = read_json(folder / NOTES, advice)
    files, counts = notes.get("files"), notes.get("counts")
    if not isinstance(files, dict) or not isinstance(counts, dict) or "train" not in counts:
        raise UserError(f"{folder / NOTES} is damaged: {advice}")
    for name, expected in files.items():
        if not (folder / name).is_file() or (verify and file_sha256(folder / name) != expected):
            raise UserError(f"{folder / name} is damaged: {advice}")
    return notes
