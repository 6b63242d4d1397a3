"""A model file without PyTorch: start, memory, bytes to the first translation, and the same output everywhere.

python benchmarks/runtime.py [--model models/pt-en] [--program build/core/anydepth-run] [--source test.pt]

CPU time (user and system, median) and peak memory of one sentence from a cold start: by anydepth-run, by the runtime
package, by `anydepth translate`; the memory is an upper bound, as Linux counts the program that started it. What a
second process on the same file adds. How much of the file must arrive before its shallowest depth runs. Whether the
three give the same text at every depth, on the sample of the model and on the lines of --source. Build the program
first: cmake -S csrc -B build/core && cmake --build build/core.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
import typer

from anydepth.artifact import bundled_model
from anydepth.artifact.model import load_model
from anydepth.artifact.model_file import Kind, ModelFile
from anydepth.depth import SubNetwork
from anydepth.engines.core import kernels, library

ROOT = Path(__file__).parents[1]
SENTENCE = "Ele perdeu as chaves no comboio.\n"
STAY = f"""import sys
from anydepth_runtime import Translator
translator = Translator(sys.argv[1])
print(translator.translate({SENTENCE!r}), flush=True)
sys.stdin.read()
"""
NOTHING = "import sys\nprint(flush=True)\nsys.stdin.read()\n"
ONE_LINE = "import sys\nfrom anydepth_runtime import Translator\nprint(Translator(sys.argv[1]).translate({text!r}))\n"
EVERY_DEPTH = """import json, sys
from anydepth_runtime import Translator
translator, texts = Translator(sys.argv[1]), json.load(sys.stdin)
json.dump({d: translator.translate(texts, depth=d, cut_long=True) for d in sys.argv[2:]}, sys.stdout)
"""


@dataclass(frozen=True)
class Start:
    seconds: float  # of CPU
    mebibytes: float


def main(
    model: Path | None = None,
    program: Path = ROOT / "build/core/anydepth-run",
    source: Path | None = None,
    sentences: int = 1000,
    starts: int = 11,
) -> None:
    folder = model or bundled_model()
    loaded = load_model(folder, defer=True)
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "model.anydepth"
        anydepth = [sys.executable, "-m", "anydepth"]
        subprocess.run([*anydepth, "export", str(folder), "--to", "runtime", "--out", str(file)], check=True)
        search_path = [str(_runtime(Path(temporary))), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(search_path)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        run, package = [str(program), str(file)], [sys.executable, "-c", ONE_LINE.format(text=SENTENCE), str(file)]
        translate = [*anydepth, "translate", str(folder), "--engine", "native"]
        size, machine = file.stat().st_size / 1e6, f"{kernels()} on {platform.platform()}"
        print(f"{size:.1f} MB, {len(loaded.menu)} depths, {machine}")
        ways: dict[str, tuple[Sequence[str], str]] = {
            "anydepth-run": (run, "0.05 s, 60 MiB"),
            "runtime package": (package, "0.15 s, 60 MiB"),
            "anydepth translate": (translate, "0.5 s"),
        }
        for name, (command, bar) in ways.items():
            found = [cold_start(command, environment) for _ in range(starts + 1)][1:]
            seconds, memory = median(one.seconds for one in found), median(one.mebibytes for one in found)
            print(f"{name}, one sentence: {seconds:.3f} s of CPU, {memory:.0f} MiB (bar {bar})")
        first, second = two_processes([sys.executable, "-c", STAY, str(file)], environment)
        _, python = two_processes([sys.executable, "-c", NOTHING], environment)
        print(
            f"a second process adds {second:.1f} MiB to {first:.1f} MiB: {second / first:.0%} (bar 25%); of these "
            f"{python:.1f} MiB are Python's own"
        )
        arrived, whole = first_depth(file, [entry.subnetwork for entry in loaded.menu])
        print(f"bytes until the first translation: {arrived:,} of {whole:,}, {arrived / whole:.1%} (bar 55%)")
        texts = gather(folder, source, sentences)
        same_output(texts, loaded.menu.names, run, translate, environment, file)


def _runtime(folder: Path) -> Path:
    """The runtime package with the core of this installation."""
    shutil.copytree(ROOT / "runtime/src/anydepth_runtime", folder / "anydepth_runtime")
    shutil.copy(library()._name, folder / "anydepth_runtime" / f"core{Path(library()._name).suffix}")
    return folder


def cold_start(command: Sequence[str], environment: Mapping[str, str]) -> Start:
    with tempfile.TemporaryFile() as standard_input:
        standard_input.write(SENTENCE.encode())
        standard_input.seek(0)
        process = subprocess.Popen(command, stdin=standard_input, stdout=subprocess.DEVNULL, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Start(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def two_processes(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """MiB: resident memory of the first, and what is the second's alone. Each has translated a sentence."""
    running: list[subprocess.Popen[bytes]] = []
    found = []
    try:
        for _ in range(2):
            process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            running.append(process)
            assert process.stdout is not None
            process.stdout.readline()
            found.append(psutil.Process(process.pid).memory_full_info())
        return found[0].rss / 2**20, found[1].uss / 2**20
    finally:
        for process in running:
            process.communicate()


def first_depth(file: Path, subs: Sequence[SubNetwork]) -> tuple[int, int]:
    """Bytes that the first depth to arrive needs, and those of the whole file."""
    found = ModelFile.open(file)
    ends = {(place.kind, place.index): place.offset + place.size for place in found.places}
    base = max(ends[kind, 0] for kind in (Kind.EMBEDDINGS, Kind.OUTPUT))
    patterns = {
        Kind.ENCODER_LAYER: found.header["core"]["encoder"],
        Kind.DECODER_LAYER: found.header["core"]["decoder"],
    }

    def needed(sub: SubNetwork) -> int:
        layers = ((Kind.ENCODER_LAYER, sub.encoder), (Kind.DECODER_LAYER, sub.decoder))
        return max(base, *(ends[kind, patterns[kind][layer]] for kind, run in layers for layer in run))

    return min(needed(sub) for sub in subs), file.stat().st_size


def gather(folder: Path, source: Path | None, count: int) -> list[str]:
    sample = folder / "sample.tsv"
    texts = [line.split("\t")[0] for line in sample.read_text("utf-8").splitlines()] if sample.is_file() else []
    if source is not None:
        texts += source.read_text("utf-8").splitlines()
    return texts[:count]


def same_output(
    texts: Sequence[str],
    depths: Sequence[str],
    run: Sequence[str],
    translate: Sequence[str],
    environment: Mapping[str, str],
    file: Path,
) -> None:
    def output(command: Sequence[str], given: str) -> str:
        done = subprocess.run(
            command, input=given, stdout=subprocess.PIPE, encoding="utf-8", env=environment, check=True
        )
        return done.stdout

    lines = "".join(f"{text}\n" for text in texts)
    package = json.loads(output([sys.executable, "-c", EVERY_DEPTH, str(file), *depths], json.dumps(list(texts))))
    different = {"anydepth-run": 0, "runtime package": 0}
    for depth in depths:
        expected = output([*translate, "--depth", depth, "--cut-long"], lines).splitlines()
        found = {
            "anydepth-run": output([*run, "--depth", depth, "--cut-long"], lines).splitlines(),
            "runtime package": package[depth],
        }
        for name, other in found.items():
            different[name] += sum(a != b for a, b in zip(expected, other, strict=True))
    for name, count in different.items():
        print(
            f"{name} against `anydepth translate --engine native`, {len(texts):,} sentences at {len(depths)} depths: "
            f"{count} of {len(texts) * len(depths):,} outputs differ (bar 0)"
        )


if __name__ == "__main__":
    typer.run(main)
