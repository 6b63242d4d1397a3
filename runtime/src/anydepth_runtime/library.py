"""The C interface (csrc/anydepth.h), as ctypes sees it. Calls release the interpreter lock."""

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint64, c_void_p
from pathlib import Path

INTERFACE = 5  # of the library, as this file knows it
INVALID, FILE, NOT_YET, STOPPED, TOO_LONG, NO_MEMORY, INTERNAL = range(-1, -8, -1)


class DepthStruct(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("pair", c_char_p),
        ("encoder_layers", c_int32),
        ("decoder_layers", c_int32),
        ("ready", c_int32),
        ("by_word", c_int32),
        ("seconds_per_sentence", c_double),
        ("bleu", c_double),
        ("chrf", c_double),
    )


class RequestStruct(ctypes.Structure):
    _fields_ = (
        ("depth", c_char_p),
        ("pair", c_char_p),
        ("budget", c_double),
        ("timeout", c_double),
        ("abort", POINTER(c_int32)),
        ("beam", c_int32),
        ("nbest", c_int32),
        ("max_length", c_int32),
        ("cut_long", c_int32),
        ("scores", c_int32),
        ("shortlist", c_int32),
        ("length_penalty", c_float),
        ("exit", c_char_p),
    )


class OutputStruct(ctypes.Structure):
    _fields_ = (("text", c_char_p), ("depth", c_char_p), ("score", c_float), ("ended", c_int32), ("layers", c_float))


def load_library() -> ctypes.CDLL:
    folder = Path(__file__).parent
    found = next(
        (path for path in sorted(folder.glob("core*")) if path.suffix in (".so", ".dylib", ".dll", ".pyd")), None
    )
    if found is None:
        raise ImportError(
            "anydepth_runtime has no compiled library: install its wheel, or compile it with a C++ compiler"
        )
    library = ctypes.CDLL(str(found))
    if library.anydepth_interface() != INTERFACE:
        raise ImportError("the library of anydepth_runtime is of another version: install it again")
    for name, result, arguments in (
        ("error", c_char_p, ()),
        ("error_code", c_int, ()),
        ("kernels", c_char_p, (c_char_p,)),
        ("open", c_void_p, (c_char_p, c_char_p)),
        ("load", c_void_p, (c_char_p, c_size_t, c_char_p)),
        ("free", None, (c_void_p,)),
        ("memory", c_uint64, (c_void_p,)),
        ("header", c_char_p, (c_void_p,)),
        ("depths", c_int32, (c_void_p,)),
        ("depth_at", c_int, (c_void_p, c_int32, POINTER(DepthStruct))),
        ("defaults", None, (POINTER(RequestStruct),)),
        ("fits", c_int, (c_void_p, c_char_p, c_size_t, c_char_p)),
        ("translate", c_void_p, (c_void_p, POINTER(c_char_p), POINTER(c_size_t), c_int32, POINTER(RequestStruct))),
        ("outputs", c_int32, (c_void_p, c_int32)),
        ("output_at", c_int, (c_void_p, c_int32, c_int32, POINTER(OutputStruct))),
        ("translations_free", None, (c_void_p,)),
    ):
        function = getattr(library, f"anydepth_{name}")
        function.restype, function.argtypes = result, arguments
    return library
