"""The engines a user can choose from, and the one that `auto` takes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec

from anydepth.artifact.model import LoadedModel
from anydepth.artifact.weights import FileWeights
from anydepth.device import cores
from anydepth.engines.base import ClassifierEngine, Engine, check_exportable, check_native
from anydepth.engines.core import kernels, library
from anydepth.engines.native import NativeEngine
from anydepth.engines.packed import native_model
from anydepth.errors import UserError

AUTO = "auto"


@dataclass(frozen=True)
class EngineOptions:
    """`threads` are cores used at once, by default all; what a user leaves open is None or False."""

    threads: int | None = None
    quantize: str | None = None  # compute type
    speculate: bool = False  # the first layers draft, all of them verify
    shortlist: bool | None = None  # search among the model's lexical shortlist; None: on native, if it has one

    def __post_init__(self) -> None:
        for name, value in (("speculate", self.speculate), ("shortlist", self.shortlist)):
            if value not in (None, True, False):
                raise UserError(f"{name} is {value!r}: use True or False")


def make_engine(loaded: LoadedModel, name: str = AUTO, options: EngineOptions | None = None) -> Engine:
    """The engine of this name, ready to run the model."""
    if name not in ENGINES:
        raise UserError(f"there is no engine {name!r}; choose one of {', '.join(ENGINES)}")
    options = options or EngineOptions()
    if options.threads is not None and options.threads < 1:
        raise UserError(f"threads is {options.threads}: use at least 1")
    return ENGINES[name](loaded, options)


def make_classifier_engine(loaded: LoadedModel, name: str = AUTO, threads: int | None = None) -> ClassifierEngine:
    """The same for a model that classifies: native or torch."""
    if name not in ENGINES:
        raise UserError(f"there is no engine {name!r}; choose one of {', '.join(ENGINES)}")
    if name == "ctranslate2":
        raise UserError(f'{name} takes models that translate; this one classifies: use engine="native" or "torch"')
    in_file = isinstance(loaded.weights, FileWeights)
    if name == "native" or (name == AUTO and (in_file or why_not_native(loaded) is None)):
        return _native(loaded, EngineOptions(threads))
    from anydepth.engines.torch import TorchEngine

    return TorchEngine(loaded.model)


def _torch(loaded: LoadedModel, options: EngineOptions) -> Engine:
    if options.quantize not in (None, "float32"):
        raise UserError(
            f'quantize="{options.quantize}" is for engine="native" or engine="ctranslate2": torch computes in float32'
        )
    from anydepth.engines.torch import TorchEngine

    _refuse_speculation(options, "torch")
    if options.shortlist:
        raise UserError(
            'shortlist=True is for engine="native" or engine="ctranslate2": torch computes the whole vocabulary'
        )
    return TorchEngine(loaded.model)


def _ctranslate2(loaded: LoadedModel, options: EngineOptions) -> Engine:
    if find_spec("ctranslate2") is None:
        raise UserError("CTranslate2 is not installed: pip install 'anydepth[ctranslate2]', or use engine=\"torch\"")
    from anydepth.engines.ctranslate2 import COMPUTE_TYPES, CTranslate2Engine

    if options.quantize not in (None, *COMPUTE_TYPES):
        raise UserError(f"CTranslate2 has no compute type {options.quantize}; it has: {', '.join(COMPUTE_TYPES)}")
    _refuse_speculation(options, "ctranslate2")
    from anydepth.engines.shortlist import Shortlist

    shortlist = Shortlist.load(loaded) if options.shortlist else None
    return CTranslate2Engine(loaded, options.threads or cores(), options.quantize or "float32", shortlist)


def _native(loaded: LoadedModel, options: EngineOptions) -> NativeEngine:
    if options.quantize not in (None, "int8"):
        raise UserError(f'the native engine computes in int8, not {options.quantize}: use quantize="int8"')
    library()
    if (reason := _begins_with_language(loaded)) is not None:
        raise UserError(reason)
    if loaded.device != "cpu":
        device = next(loaded.model.parameters()).device
        raise UserError(f'the native engine runs on CPUs, not on {device}: use device="cpu", or engine="torch"')
    native = native_model(loaded)
    if options.shortlist and not native.has_shortlist:
        raise UserError("this model has no shortlist: make one with `anydepth shortlist`")
    return NativeEngine(
        native,
        loaded.config,
        loaded.menu,
        options.threads or cores(),
        speculate=options.speculate,
        search_shortlist=native.has_shortlist if options.shortlist is None else options.shortlist,
    )


def _auto(loaded: LoadedModel, options: EngineOptions) -> Engine:
    """The fastest one that is here and runs all depths of the model."""
    if isinstance(loaded.weights, FileWeights):
        return _native(loaded, options)
    why_not = why_not_native(loaded)
    if why_not is None and options.quantize in (None, "int8"):
        return _native(loaded, options)
    if options.speculate:
        raise UserError(f"speculate=True needs the native engine: {why_not or 'which computes in int8'}")
    if loaded.device == "cpu" and find_spec("ctranslate2") is not None and _converts(loaded):
        from anydepth.engines.ctranslate2 import available

        fastest = "int8" if "int8" in available() else "float32"
        return _ctranslate2(loaded, replace(options, quantize=options.quantize or fastest))
    return _torch(loaded, options)


ENGINES: dict[str, Callable[[LoadedModel, EngineOptions], Engine]] = {
    AUTO: _auto,
    "native": _native,
    "ctranslate2": _ctranslate2,
    "torch": _torch,
}


def why_not_native(loaded: LoadedModel) -> str | None:
    """Why `auto` does not take it, if it does not. Without fast instructions others are faster."""
    try:
        fastest = kernels()
        for entry in loaded.menu:
            check_native(loaded.config, entry.subnetwork, classifies=loaded.kind == "classifier")
    except UserError as error:
        return str(error)
    if (reason := _begins_with_language(loaded)) is not None:
        return reason
    if loaded.device != "cpu":
        return "it runs on CPUs only"
    return "it has no fast instructions for this processor" if fastest == "plain" else None


def _begins_with_language(loaded: LoadedModel) -> str | None:
    if all(pair.target_tag is None for pair in loaded.pairs):
        return None
    return (
        "outputs of this model begin with the tag of a language, as in M2M100, NLLB and mBART, which the native engine "
        'cannot do: use engine="ctranslate2" or engine="torch"'
    )


def _converts(loaded: LoadedModel) -> bool:
    try:
        for entry in loaded.menu:
            check_exportable(loaded.config, entry.subnetwork, "CTranslate2")
    except UserError:
        return False
    return True


def refuse_translation_options(quantize: str | None, speculate: bool, shortlist: bool | None) -> None:
    """Of a model that classifies."""
    if quantize is not None or speculate or shortlist:
        raise UserError("this model classifies texts: quantize, speculate and shortlist are for translation")


def _refuse_speculation(options: EngineOptions, engine: str) -> None:
    if options.speculate:
        raise UserError(f'speculate=True is for engine="native": {engine} has no drafts')
