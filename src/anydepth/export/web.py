"""The page that translates in a browser tab: a folder to host anywhere, and the same files for the server.

The page runs the core as WebAssembly (`page/anydepth.wasm`, built by `make wasm`) on the model file that
`--to runtime` writes.
"""

import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from babel import Locale

from anydepth import __version__
from anydepth.artifact.model_file import SUFFIX
from anydepth.artifact.weights import FileWeights
from anydepth.depth import MenuEntry
from anydepth.errors import UserError
from anydepth.export.sample import SampleText
from anydepth.files import atomic_folder
from anydepth.infer.translator import Translator

MODEL_FILE = f"model{SUFFIX}"
ABOUT = "model.json"  # what the page knows of the model: at the server, a route of this name
MEDIA_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "worker.js": "text/javascript; charset=utf-8",
    "core.js": "text/javascript; charset=utf-8",
    "sentences.js": "text/javascript; charset=utf-8",
    "service-worker.js": "text/javascript; charset=utf-8",
    "manifest.webmanifest": "application/manifest+json",
    "icon.svg": "image/svg+xml",
    "anydepth.wasm": "application/wasm",
}
LANGUAGE_NAMES = Locale("en").languages


def read_page_files() -> dict[str, bytes]:
    """The files of the page, by name."""
    folder = files("anydepth.export").joinpath("page")
    return {name: folder.joinpath(name).read_bytes() for name in MEDIA_TYPES}


def export_web(
    translator: Translator, out: Path, sample: SampleText, threads: int, *, shortlist: bool = True, int4: bool = False
) -> int:
    """Write the folder and return how many sentences were compared at each depth, as the model file is checked."""
    from anydepth.export.export import MARK, check_out  # PyTorch, which a server of this page does without
    from anydepth.export.runtime import export_runtime

    check_out(out, translator)
    with atomic_folder(out.resolve()) as folder:
        count = export_runtime(translator, folder / MODEL_FILE, sample, threads, shortlist=shortlist, int4=int4)
        for name, data in read_page_files().items():
            (folder / name).write_bytes(data)
        about = describe_site(translator, sample, (folder / MODEL_FILE).read_bytes())
        (folder / ABOUT).write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", "utf-8")
        record = {"made_by": f"anydepth {__version__}", "format": "web", "source_model": translator.fingerprint}
        (folder / MARK).write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return count


def describe_in_tab(translator: Translator, size: int | None, version: str) -> dict[str, Any]:
    """What the page needs to run the model by itself. Depths by word need the Python package."""
    names = [entry.name for choice in translator.choices for entry in choice.menu if not entry.subnetwork.by_word]
    if not names:
        raise UserError("each depth of this model has a depth for each word, which a browser does not run")
    return {"file": f"{MODEL_FILE}?v={version}", "size": size, "depths": list(dict.fromkeys(names))}


def describe_site(translator: Translator, sample: SampleText, model_file: bytes) -> dict[str, Any]:
    """As the server describes its model, but with the times of the menu."""
    examples = sample.examples()
    pairs = translator.pairs
    choices = zip(pairs, translator.choices, strict=False)  # of pairs that do not differ there is one choice
    return {
        "kind": "translation",
        "server": False,
        "version": __version__,
        "key_required": False,
        "languages": describe_languages([(pair.source, pair.target) for pair in pairs]),
        "pairs": {pair.name: _describe_pair(choice, pair.source, pair.target, examples) for pair, choice in choices},
        "in_tab": describe_in_tab(translator, len(model_file), hashlib.sha256(model_file).hexdigest()[:16]),
    }


def _describe_pair(translator: Translator, source: str, target: str, examples: Sequence[str]) -> dict[str, Any]:
    entries = [entry for entry in translator.menu if not entry.subnetwork.by_word]
    on, best = translator.menu.measured_on, translator.menu.default.name
    seconds = {entry.name: entry.cost.get("seconds_per_sentence") for entry in entries}
    names = [entry.name for entry in entries]
    return {
        "source": source,
        "target": target,
        "default": best if best in names else max(entries, key=lambda entry: entry.layers).name,
        "has_selector": False,
        "has_budget": any("bleu" in entry.quality for entry in entries),
        "times_from": "the measurements of the model",
        "measured_on": on.get("test_set", on.get("reference", "")),
        "examples": list(examples),
        "depths": [
            describe_depth(translator, entry, None if (time := seconds[entry.name]) is None else 1000 * time)
            for entry in entries
        ],
    }


def describe_depth(translator: Translator, entry: MenuEntry, milliseconds: float | None) -> dict[str, Any]:
    """For the page and the server's /model. The parameters of a model file are not counted."""
    in_file = isinstance(translator.loaded.weights, FileWeights)
    return {
        "name": entry.name,
        "encoder": len(entry.subnetwork.encoder),
        "decoder": len(entry.subnetwork.decoder),
        "bleu": entry.quality.get("bleu"),
        "chrf": entry.quality.get("chrf"),
        "ms": milliseconds,
        "parameters": None if in_file else translator.parameters(entry.name),
    }


def describe_languages(pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Each language with its name in English and the languages it is translated into."""
    codes = dict.fromkeys(code for pair in pairs for code in pair)
    return [
        {"code": code, "name": language_name(code), "targets": [target for source, target in pairs if source == code]}
        for code in codes
    ]


def language_name(code: str) -> str:
    return str(LANGUAGE_NAMES.get(code.replace("-", "_"), code))
