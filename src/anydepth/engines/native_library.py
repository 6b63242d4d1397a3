"""The C interface of the core (core/anydepth.h), as Python sees it. Calls let go of the interpreter lock."""

import ctypes
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from anydepth.errors import UserError

INTERFACE = 1
_i32, _f32 = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_float)


class SubNetworkStruct(ctypes.Structure):
    _fields_ = (
        ("encoder", _i32),
        ("encoder_weights", _f32),
        ("encoder_layers", ctypes.c_int32),
        ("decoder", _i32),
        ("decoder_weights", _f32),
        ("decoder_layers", ctypes.c_int32),
    )


class BatchStruct(ctypes.Structure):
    _fields_ = (
        ("tokens", _i32),
        ("starts", _i32),
        ("depths", _i32),
        ("limits", _i32),
        ("sentences", ctypes.c_int32),
    )


class OptionsStruct(ctypes.Structure):
    _fields_ = (
        ("beam", ctypes.c_int32),
        ("nbest", ctypes.c_int32),
        ("min_length", ctypes.c_int32),
        ("scores", ctypes.c_int32),
        ("shortlist", ctypes.c_int32),
        ("draft_layers", ctypes.c_int32),
        ("draft_length", ctypes.c_int32),
        ("length_penalty", ctypes.c_float),
    )


class ResultsStruct(ctypes.Structure):
    _fields_ = (("tokens", _i32), ("lengths", _i32), ("ended", _i32), ("scores", _f32))


@cache
def library() -> ctypes.CDLL:
    """The core, or why there is none."""
    spec = find_spec("anydepth.engines._core")
    if spec is None or spec.origin is None:
        raise UserError(
            "the native engine was not built when anydepth was installed (it needs a C++ compiler): "
            "install a compiler and anydepth again, or use --engine ctranslate2 or torch"
        )
    try:
        core = ctypes.CDLL(str(Path(spec.origin)))
    except OSError as error:
        raise UserError(f"the native engine cannot be loaded ({error}): install anydepth again") from error
    if core.anydepth_interface() != INTERFACE:
        raise UserError("the native engine is of another version of anydepth: install anydepth again")
    _declare(core)
    return core


def _declare(core: ctypes.CDLL) -> None:
    model, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    sub, batch = ctypes.POINTER(SubNetworkStruct), ctypes.POINTER(BatchStruct)
    for name, result, arguments in (
        ("error", text, ()),
        ("kernels", text, (text,)),
        ("load", model, (text, size, text)),
        ("free", None, (model,)),
        ("memory", size, (model,)),
        ("set_shortlist", ctypes.c_int, (model, _i32, size, _i32, _i32)),
        (
            "search",
            ctypes.c_int,
            (model, sub, batch, ctypes.POINTER(OptionsStruct), ctypes.POINTER(ResultsStruct)),
        ),
        ("logits", ctypes.c_int, (model, sub, batch, _i32, ctypes.c_int32, ctypes.c_int32, _f32)),
        ("speculation", None, (model, ctypes.POINTER(ctypes.c_int64))),
    ):
        function = getattr(core, f"anydepth_{name}")
        function.restype, function.argtypes = result, arguments


def last_error() -> str:
    return str(library().anydepth_error().decode("utf-8"))


def kernels(name: str | None = None) -> str | None:
    """The instructions that run here, the fastest or those of this name; None if there are none of it."""
    found = library().anydepth_kernels(None if name is None else name.encode())
    return None if found is None else str(found.decode())


def why_not() -> str | None:
    """Why there is no core to run here, if there is none."""
    try:
        library()
    except UserError as error:
        return str(error)
    return None
