"""The text files of prepared data, and the notes that say what they were made from and that they are whole."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from anydepth.config import DataConfig
from anydepth.data.corpus import Pair, read_lines
from anydepth.data.store import SIDES
from anydepth.errors import UserError
from anydepth.files import read_json, sha256_of

NOTES = "prepared.json"


def write_pairs(folder: Path, name: str, pairs: Iterable[Pair]) -> None:
    with (
        open(folder / f"{name}.source", "w", encoding="utf-8", newline="\n") as sources,
        open(folder / f"{name}.target", "w", encoding="utf-8", newline="\n") as targets,
    ):
        for source, target in pairs:
            sources.write(source + "\n")
            targets.write(target + "\n")


def read_back(folder: Path, name: str) -> Iterator[Pair]:
    if not (folder / f"{name}.source").stat().st_size:
        return iter(())  # of one corpus among several nothing may be left
    return zip(read_lines(folder / f"{name}.source"), read_lines(folder / f"{name}.target"), strict=True)


def keep_pairs(folder: Path, name: str, keep: Callable[[Pair], bool]) -> None:
    """Leave in the files only the pairs that `keep` says yes to."""
    write_pairs(folder, f"{name}.kept", filter(keep, read_back(folder, name)))
    for side in SIDES:
        (folder / f"{name}.kept.{side}").replace(folder / f"{name}.{side}")


def notes_of(config: DataConfig, seed: int, counts: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What a prepared folder was made from, how much of it remains, and the checksums of its files."""
    files = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
    return {"data": what_is_prepared(config), "seed": seed, "counts": counts, "files": files}


def what_is_prepared(config: DataConfig) -> dict[str, Any]:
    """The keys that the files depend on. Of what is not used nothing is said that earlier versions do not know."""
    data = config.model_dump(mode="json", exclude={"sampling", "temperature", "masked"})
    if not config.keep_out:
        del data["keep_out"]
    for key in ("augment", "character_coverage", "required_characters", "split_digits"):
        if not data[key]:
            del data[key]
    if config.folds is None:
        del data["folds"], data["fold"]
    in_pairs = [pair[key] or {} for pair in data["pairs"] for key in ("train", "valid")]
    if not config.pairs:
        del data["pairs"]
    every = (one for given in (data["train"] or {}, data["valid"] or {}, *in_pairs) for one in listed(given))
    for corpus in every:
        corpus.pop("weight", None)  # which is a matter of training
        if corpus.get("text") is None and not config.pairs:
            corpus.pop("text", None)
        if corpus.get("labelled") is None:
            for key in ("labelled", "text_column", "label_column"):
                corpus.pop(key, None)
    return data


def listed(given: Any) -> list[Any]:
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
        if not (folder / name).is_file() or (verify and sha256_of(folder / name) != expected):
            raise UserError(f"{folder / name} is damaged: {advice}")
    return notes
