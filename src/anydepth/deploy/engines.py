"""The engines a user can choose from."""

from collections.abc import Callable
from importlib.util import find_spec

from anydepth.errors import UserError
from anydepth.infer.engine import Engine, TorchEngine
from anydepth.infer.translator import Translator
from anydepth.machine import cores

Quantization = str | None


def _torch(translator: Translator, threads: int | None, quantization: Quantization) -> Engine:
    if quantization not in (None, "float32"):
        raise UserError(f"--quantize {quantization} is for --engine ctranslate2: torch computes in float32")
    return TorchEngine(translator.model)


def _ctranslate2(translator: Translator, threads: int | None, quantization: Quantization) -> Engine:
    if find_spec("ctranslate2") is None:
        raise UserError("CTranslate2 is not installed: pip install 'anydepth[ctranslate2]', or use --engine torch")
    from anydepth.deploy.ctranslate2_engine import CTranslate2Engine
    from anydepth.deploy.ctranslate2_format import QUANTIZATIONS

    if quantization not in (None, *QUANTIZATIONS):
        raise UserError(f"CTranslate2 has no type {quantization}; it has: {', '.join(QUANTIZATIONS)}")
    return CTranslate2Engine(translator, threads or cores(), quantization or "float32")


ENGINES: dict[str, Callable[[Translator, int | None, Quantization], Engine]] = {
    "torch": _torch,
    "ctranslate2": _ctranslate2,
}


def on_engine(
    translator: Translator, name: str, threads: int | None = None, quantization: Quantization = None
) -> Translator:
    """The translator, run by the engine of this name with so many cores at once, by default all."""
    if name not in ENGINES:
        raise UserError(f"there is no engine {name!r}; choose one of {', '.join(ENGINES)}")
    return translator.on(ENGINES[name](translator, threads, quantization))
