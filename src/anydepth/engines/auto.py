"""The engines a user can choose from."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec

from anydepth.device import cores
from anydepth.engines.exportable import check_exportable
from anydepth.engines.native import NativeEngine
from anydepth.engines.native_format import check_runs
from anydepth.engines.native_library import kernels, library
from anydepth.engines.shortlist import Shortlist
from anydepth.errors import UserError
from anydepth.infer.engine import Engine, TorchEngine
from anydepth.infer.translator import Translator

Quantization = str | None
AUTO = "auto"
BEHIND_IN_BATCHES, MANY = frozenset({"avx2"}), 8  # there CTranslate2 takes 0.8 times as long (docs/results.md)


@dataclass(frozen=True)
class EngineOptions:
    """`threads` are cores used at once, by default all; what a user leaves open is None or False."""

    threads: int | None = None
    quantization: Quantization = None
    speculate: bool = False  # the first layers draft, all of them verify
    shortlist: bool = False  # search among the outputs that a source suggests
    together: int = 1  # sentences that will run at once, for `auto`


def _torch(translator: Translator, options: EngineOptions) -> Engine:
    if options.quantization not in (None, "float32"):
        raise UserError(
            f"--quantize {options.quantization} is for --engine native or ctranslate2: torch computes in float32"
        )
    _refuse_speculation(options, "torch")
    if options.shortlist:
        raise UserError("--shortlist is for --engine native or ctranslate2: torch looks at the whole vocabulary")
    return TorchEngine(translator.model)


def _ctranslate2(translator: Translator, options: EngineOptions) -> Engine:
    if find_spec("ctranslate2") is None:
        raise UserError("CTranslate2 is not installed: pip install 'anydepth[ctranslate2]', or use --engine torch")
    from anydepth.engines.ctranslate2 import CTranslate2Engine
    from anydepth.engines.ctranslate2_format import QUANTIZATIONS

    if options.quantization not in (None, *QUANTIZATIONS):
        raise UserError(f"CTranslate2 has no type {options.quantization}; it has: {', '.join(QUANTIZATIONS)}")
    _refuse_speculation(options, "ctranslate2")
    shortlist = Shortlist.of(translator) if options.shortlist else None
    return CTranslate2Engine(translator, options.threads or cores(), options.quantization or "float32", shortlist)


def _native(translator: Translator, options: EngineOptions) -> Engine:
    if options.quantization not in (None, "int8"):
        raise UserError(f"the native engine computes in int8, not {options.quantization}: leave out --quantize")
    library()
    device = next(translator.model.parameters()).device
    if device.type != "cpu":
        raise UserError(f"the native engine runs on CPUs, not on {device}: give --device cpu, or --engine torch")
    known = Shortlist.of(translator) if options.shortlist else None
    if options.speculate and known is None:
        known = Shortlist.find(translator)  # for the drafts
    return NativeEngine(
        translator.model,
        translator.menu,
        options.threads or cores(),
        speculate=options.speculate,
        shortlist=None if known is None else known.arrays,
        search_shortlist=options.shortlist,
    )


def _auto(translator: Translator, options: EngineOptions) -> Engine:
    """The fastest one that is here and runs all depths of the model."""
    why_not = why_not_native(translator)
    on_cpu = next(translator.model.parameters()).device.type == "cpu"
    converts = on_cpu and find_spec("ctranslate2") is not None and _converts(translator)
    if why_not is None and options.quantization in (None, "int8"):
        in_batches = kernels() in BEHIND_IN_BATCHES and options.together >= MANY
        if options.speculate or not (in_batches and converts):
            return _native(translator, options)
    if options.speculate:
        raise UserError(f"--speculate needs the native engine: {why_not or 'which computes in int8'}")
    if converts:
        from anydepth.engines.ctranslate2_format import available

        fastest = "int8" if "int8" in available() else "float32"
        return _ctranslate2(translator, replace(options, quantization=options.quantization or fastest))
    return _torch(translator, options)


ENGINES: dict[str, Callable[[Translator, EngineOptions], Engine]] = {
    AUTO: _auto,
    "native": _native,
    "ctranslate2": _ctranslate2,
    "torch": _torch,
}


def on_engine(
    translator: Translator, name: str, threads: int | None = None, quantization: Quantization = None, **more: int
) -> Translator:
    """The translator, run by the engine of this name; `more` are the others of `EngineOptions`."""
    if name not in ENGINES:
        raise UserError(f"there is no engine {name!r}; choose one of {', '.join(ENGINES)}")
    options = EngineOptions(threads, quantization, **more)  # type: ignore[arg-type]
    return translator.on(ENGINES[name](translator, options))


def why_not_native(translator: Translator) -> str | None:
    """Why `auto` does not take it, if it does not. Without fast instructions others are faster."""
    try:
        fastest = kernels()
        for entry in translator.menu:
            check_runs(translator.model.config, entry.subnetwork)
    except UserError as error:
        return str(error)
    if next(translator.model.parameters()).device.type != "cpu":
        return "it runs on CPUs only"
    return "it has no fast instructions for this processor" if fastest == "plain" else None


def _converts(translator: Translator) -> bool:
    try:
        for entry in translator.menu:
            check_exportable(translator.model.config, entry.subnetwork, "CTranslate2")
    except UserError:
        return False
    return True


def _refuse_speculation(options: EngineOptions, engine: str) -> None:
    if options.speculate:
        raise UserError(f"--speculate is for --engine native: {engine} has no drafts")
