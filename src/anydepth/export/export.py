"""Export: one depth of a model alone, for another engine or for anydepth itself, checked as soon as it is written."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from anydepth import __version__
from anydepth.artifact.folder import read_config
from anydepth.artifact.model import save
from anydepth.depth import DepthMenu, MenuEntry, SubNetwork
from anydepth.engines.shortlist import VMAP, Shortlist
from anydepth.errors import UserError
from anydepth.export.card import export_card
from anydepth.export.check import Check, check
from anydepth.export.sample import NAME as SAMPLE
from anydepth.export.sample import Sample
from anydepth.files import atomic_folder
from anydepth.infer.translator import Translator
from anydepth.model.cutting import cut

MARK = "export.json"  # by which an export is known, with where it comes from
ALL = "all"
STORED: dict[str, torch.dtype] = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Asked:
    """What is to be exported: `quantization` is the type of numbers, float32 unless another is asked for."""

    translator: Translator
    depth: str
    quantization: str
    threads: int = 1

    @property
    def entry(self) -> MenuEntry:
        return self.translator.menu[self.depth]


def _to_anydepth(asked: Asked, folder: Path) -> Translator:
    """A model folder. Weights may be stored in half precision; they are float32 again once they are loaded."""
    translator, dtype = asked.translator, STORED.get(asked.quantization)
    if dtype is None:
        raise UserError(f"a model of anydepth is stored as {', '.join(STORED)}, not {asked.quantization}")
    if translator.folder is None:
        raise UserError("only a model that was loaded from a folder can be exported")
    tensors = {name: value.detach() for name, value in translator.model.named_parameters()}
    config, menu, words = translator.model.config, translator.menu, translator.token_depths
    if asked.depth != ALL:
        sub = asked.entry.subnetwork
        config, tensors = cut(config, tensors, sub)
        menu, words = _menu_of(asked.entry, menu), words if sub.by_word else None
    facts = read_config(translator.folder).facts
    alone = folder / "model"
    save(
        alone,
        config,
        {name: value.to(dtype) for name, value in tensors.items()},
        translator.tokenizer,
        menu,
        translator.languages,
        facts,
        translator.pairs,
        token_depths=words,
    )
    for path in alone.iterdir():
        path.rename(folder / path.name)
    alone.rmdir()
    return Translator.load(folder, engine="torch", device="cpu")


def _menu_of(entry: MenuEntry, menu: DepthMenu) -> DepthMenu:
    """The one depth, whose layers are now all there are; what was measured of it stays true."""
    sub = entry.subnetwork
    layers = tuple(range(len(sub.encoder))), tuple(range(len(sub.decoder)))
    alone = SubNetwork(*layers, sub.encoder_weights, sub.decoder_weights, sub.by_word)
    return DepthMenu([MenuEntry(alone.name, alone, entry.cost, entry.quality)], menu.measured_on)


def _to_ctranslate2(asked: Asked, folder: Path) -> Translator:
    _needs("ctranslate2", "ctranslate2")
    from anydepth.engines.ctranslate2 import COMPUTE_TYPES, CTranslate2Engine, convert, token_names, write

    if asked.quantization not in COMPUTE_TYPES:
        raise UserError(f"CTranslate2 has no type {asked.quantization}; it has: {', '.join(COMPUTE_TYPES)}")
    translator, sub = asked.translator, asked.entry.subnetwork
    names = token_names(translator.tokenizer)
    write(convert(translator.model, sub, names), folder, asked.quantization, Shortlist.find(translator.loaded), names)
    engine = CTranslate2Engine(translator.loaded, asked.threads, asked.quantization)
    engine.take(sub, folder)
    return translator.on(engine)


def _to_onnx(asked: Asked, folder: Path) -> Translator:
    _needs("onnxscript", "onnx")
    _needs("onnxruntime", "onnx")
    from anydepth.engines.onnx import OnnxEngine, write_onnx

    if asked.quantization != "float32":
        raise UserError(f"ONNX is exported in float32, not {asked.quantization}: leave out --quantize")
    sub = asked.entry.subnetwork
    write_onnx(asked.translator.model, sub, folder)
    return asked.translator.on(OnnxEngine(sub, folder, asked.threads))


FORMATS: dict[str, Callable[[Asked, Path], Translator]] = {
    "ctranslate2": _to_ctranslate2,
    "onnx": _to_onnx,
    "anydepth": _to_anydepth,
}


def export(asked: Asked, to: str, out: Path, sample: Sample) -> Check:
    """Write it and try it on the sample; if it does not translate as its source does, nothing is left of it."""
    if to not in FORMATS:
        raise UserError(f"there is no format {to!r}; choose one of {', '.join(FORMATS)}")
    if asked.depth == ALL and to != "anydepth":
        raise UserError(f"{to} has one depth per model: name one, such as --depth {asked.translator.menu.deepest.name}")
    _check_free(out, asked.translator)
    with atomic_folder(out.resolve()) as folder:
        exported = FORMATS[to](asked, folder)
        result = _checked(asked, exported, sample)
        if asked.quantization == "float32" and result.wrong:
            one = result.wrong[0]
            raise UserError(
                f"what was exported does not translate as its source: {one.source!r} became {one.found!r}, not "
                f"{one.expected!r}; nothing was written: please report this"
            )
        _add_our_files(asked, to, folder, sample.sources[0] if sample.in_model else "...")
    return result


def _checked(asked: Asked, exported: Translator, sample: Sample) -> Check:
    """Of all depths, in all language pairs, the one that is worst off."""
    if asked.depth != ALL:
        there = asked.depth if asked.depth in exported.menu.names else exported.menu.default.name
        return check(asked.translator, exported, asked.depth, there, sample)
    both = zip(asked.translator.choices, exported.choices, strict=True)
    checks = [check(before, after, name, name, sample) for before, after in both for name in before.menu.names]
    return min(checks, key=lambda one: (-len(one.wrong), one.same))


def _add_our_files(asked: Asked, to: str, folder: Path, example: str) -> None:
    """Where it comes from; and what another engine's folder lacks: the tokenizer, and how to use it all."""
    translator = asked.translator
    record: dict[str, Any] = {
        "made_by": f"anydepth {__version__}",
        "format": to,
        "quantization": asked.quantization,
        "depth": asked.depth,
        "languages": list(translator.languages),
        "longest": translator.model.config.max_length,
        **({"tag": translator.tag} if translator.tag else {}),
        **({"shortlist": True} if (folder / VMAP).is_file() else {}),
        "source_model": translator.fingerprint,
        "facts": {} if translator.folder is None else read_config(translator.folder).facts,
    }
    (folder / MARK).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    own = translator.folder and translator.folder / SAMPLE
    if own and own.is_file() and to == "anydepth":
        shutil.copy(own, folder / SAMPLE)
    if to != "anydepth":
        (folder / translator.tokenizer.file_name).write_bytes(translator.tokenizer.to_bytes())
        (folder / "README.md").write_text(export_card(record, asked.entry, example), "utf-8")


def _check_free(out: Path, translator: Translator) -> None:
    """An earlier export may be replaced; nothing else, and least of all the model itself."""
    if out.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise UserError(f"{out} is the folder that this runs in: give a new one with --out")
    source = translator.folder and translator.folder.resolve()
    if source and (out.resolve() == source or out.resolve() in source.parents or source in out.resolve().parents):
        raise UserError(f"{out} is where the model itself is: give another folder with --out")
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists() and not (out / MARK).is_file():
        raise UserError(f"{out} is there already and is not an earlier export: give another folder with --out")


def _needs(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise UserError(f"{package} is not installed: pip install 'anydepth[{extra}]'")
