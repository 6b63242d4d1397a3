"""Builds the core for WebAssembly with ziglang, which pip installs: `make wasm`.

The program is part of the Python package, beside a record of what it was built from; a test compares that with csrc.
The C++ library that comes with ziglang has no exceptions on this target, so their part of it is compiled here.
"""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CSRC = Path(__file__).resolve().parent.parent
OUT = CSRC.parent / "src" / "anydepth" / "export" / "page" / "anydepth.wasm"
RECORD = OUT.with_name("anydepth.wasm.json")
PATTERNS = ("*.cpp", "*.h", "*.inl", "wasm/*.cpp", "wasm/build.py")
TARGET = ["-target", "wasm32-wasi", "-mcpu=generic+simd128+exception_handling", "-g0"]
EXCEPTIONS = ["-fwasm-exceptions", "-mexception-handling"]
EXCEPTIONS += ["-mllvm", "-wasm-enable-eh", "-mllvm", "-wasm-use-legacy-eh=true"]
CORE = ["-std=c++17", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra", f"-I{CSRC}"]
LINK = ["-mexec-model=reactor", "-O2", "-s", "-Wl,--no-entry", "-Wl,--gc-sections", "-Wl,-z,stack-size=1048576"]
EXPORTS = ("begin", "append", "free", "complete", "header", "depths", "error", "error_code", "kernels", "outputs")
EXPORTS = (*(f"anydepth_{name}" for name in EXPORTS), "anydepth_translations_free")


def source_sums(csrc: Path = CSRC) -> dict[str, str]:
    """What the program depends on, with checksums; line ends do not count."""
    paths = sorted(path for pattern in PATTERNS for path in csrc.glob(pattern))
    return {path.relative_to(csrc).as_posix(): _sum(path.read_bytes().replace(b"\r\n", b"\n")) for path in paths}


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _zig(arguments: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "ziglang", *arguments], check=True)


def _library() -> list[list[str]]:
    """How the files of the C++ library that exceptions need are compiled."""
    import ziglang

    lib = Path(ziglang.__file__).parent / "lib"
    abi, unwind = lib / "libcxxabi", lib / "libunwind"
    include = [f"-I{abi / 'include'}", f"-I{unwind / 'include'}", f"-I{lib / 'libcxx' / 'src'}"]
    abi_flags = ["-std=c++23", "-D_LIBCXXABI_HAS_NO_THREADS", "-D_LIBCPP_BUILDING_LIBRARY", "-O2", "-w", *include]
    names = ("cxa_exception", "cxa_personality")
    found = [["c++", *abi_flags, str(abi / "src" / f"{name}.cpp")] for name in names]
    c_flags = ["-D_LIBUNWIND_HAS_NO_THREADS", "-D_LIBUNWIND_HIDE_SYMBOLS", "-O2", "-w", *include]
    return [*found, ["cc", *c_flags, str(unwind / "src" / "Unwind-wasm.c")]]


def build(out: Path) -> None:
    """Compile and link; the same sources give the same bytes."""
    own = [*sorted(CSRC.glob("*.cpp")), CSRC / "wasm" / "web.cpp"]
    jobs = [*(["c++", *CORE, str(path)] for path in own), *_library()]
    declared = re.findall(r"\bweb_\w+(?=\()", (CSRC / "wasm" / "web.cpp").read_text("utf-8"))
    exports = [f"-Wl,--export={name}" for name in (*EXPORTS, *dict.fromkeys(declared))]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as threads:
        objects = [str(Path(folder, f"{i}-{Path(job[-1]).stem}.o")) for i, job in enumerate(jobs)]
        commands = [[*job, *TARGET, *EXCEPTIONS, "-c", "-o", made] for job, made in zip(jobs, objects, strict=True)]
        list(threads.map(_zig, commands))
        _zig(["c++", *TARGET, "-fwasm-exceptions", *LINK, *exports, *objects, "-o", str(out)])
    out.chmod(0o644)


def main() -> None:
    build(OUT)
    record = {"sha256": _sum(OUT.read_bytes()), "sources": source_sums()}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print(f"{OUT}: {OUT.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
