"""Translations that an earlier comparison left in a folder, so that one with more seeds need not make them again."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anydepth.infer.translator import Translator

RECORD = "compare.json"
FOLDER = "outputs"

Kept = dict[str, tuple[str, ...]]


def key_of(translator: Translator, depth: str, sources: Sequence[str], **search: Any) -> str:
    """Of all that the outputs depend on."""
    layers = asdict(translator.menu[depth].subnetwork)
    return digest_of(json.dumps([translator.fingerprint, layers, search, list(sources)], sort_keys=True))


def text_of(outputs: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in outputs)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def files_in(folder: Path) -> list[dict[str, str]]:
    """What the record says of its files of outputs; nothing if there is no record, or it is damaged."""
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
        files = [model["outputs"] for system in record["systems"] for model in system["models"]]
        return [{key: str(file[key]) for key in ("file", "made_by", "sha256")} for file in files]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def kept_in(folder: Path) -> Kept:
    """The outputs by their keys, without files that have changed since: the record may be older than they are."""
    kept = {}
    for file in files_in(folder):
        try:
            text = path_of(folder, file["file"]).read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if digest_of(text) == file["sha256"]:
            kept[file["made_by"]] = tuple(text.split("\n")[:-1])
    return kept


def path_of(folder: Path, file: str) -> Path:
    """Nowhere else, whatever the record says."""
    return folder / FOLDER / Path(file).name
