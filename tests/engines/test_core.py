"""The C++ core by itself: its unit tests, mutated and truncated files, the program, and the runtime package.

What has to be compiled for it is compiled once, with the sanitizers: csrc/tests/sanitizers.sh does more of the same.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_runtime import make_runtime
from random_models import TEXTS

import anydepth
from anydepth.export.runtime import export_runtime
from anydepth.export.sample import SampleText
from anydepth.serve.segments import split

ROOT = Path(__file__).parents[2]
CORE = ROOT / "csrc"
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
FLAGS = ("-std=c++17", "-O0", "-g1", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MUTATIONS = 500
KINDS = ("plain", "dense", "after", "recurrent", "int4", "classifier")
compiled = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tests and the program, compiled with the sanitizers."""
    folder = tmp_path_factory.mktemp("programs")
    objects = []
    for source in sorted(CORE.glob("*.cpp")):
        objects.append(folder / f"{source.stem}.o")
        subprocess.run([COMPILER, *FLAGS, "-c", f"-I{CORE}", source, "-o", objects[-1]], check=True, timeout=1200)
    for main in ("tests/unit.cpp", "tests/mutate.cpp", "tests/drive.cpp", "program/anydepth_run.cpp"):
        output = folder / Path(main).stem
        subprocess.run(
            [COMPILER, *FLAGS, "-pthread", f"-I{CORE}", CORE / main, *objects, "-o", output], check=True, timeout=1200
        )
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small random models of every kind, and tiny ones."""
    folder = tmp_path_factory.mktemp("models")
    for place, options in ((folder, []), (folder / "tiny", ["--tiny"])):
        subprocess.run([sys.executable, CORE / "tests" / "make_models.py", place, *options], check=True)
    return folder


@pytest.fixture(scope="module")
def model_file(toy_run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "toy.anydepth"
    export_runtime(anydepth.load(toy_run, engine="torch"), path, SampleText(TEXTS, None, "test"), 1)
    return path


def run(program: Path, *arguments: object, text: str = "") -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=900, input=text)
    assert "Sanitizer" not in done.stderr, done.stderr
    assert "runtime error" not in done.stderr, done.stderr
    return done


@compiled
@pytest.mark.slow
def test_unit_tests(programs, model_file, models):
    done = run(
        programs / "unit", model_file, models / "plain", models / "dense", models / "classifier"
    )  # unigram and BPE
    assert done.returncode == 0, done.stdout
    assert " 0 failed" in done.stdout


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_mutated_and_truncated_files_are_refused_or_run(programs, models, kind):
    done = run(programs / "mutate", models / "tiny" / kind, MUTATIONS)
    assert done.returncode == 0, (done.stdout, done.stderr)
    ran, _, refused, *_ = done.stdout.split()
    assert int(ran) > 20
    assert int(refused) > 100


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["plain", "avx2", "avx-vnni", "avx512-vnni", "neon", "neon-dot", "neon-i8mm"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_search_with_every_kernel(programs, models, kind, kernels):
    done = run(programs / "drive", models / kind, kernels)
    if "does not have these instructions" in done.stdout:
        assert kernels != "plain"
        return  # there is nothing to run on this processor
    assert done.returncode == 0, done.stdout
    expected = {"1-0", "2-0"} if kind == "classifier" else {"1-1", "2-3"}
    assert expected <= {line.split()[0] for line in done.stdout.splitlines()}


@compiled
@pytest.mark.slow
def test_the_program_translates_as_the_verb(programs, model_file):
    program, translator = programs / "anydepth_run", anydepth.load(model_file)
    lines = [*TEXTS, "  Où\tça ? ", "\u2028le chat", *TEXTS * 20]
    text = "\ufeff" + "\r\n".join(lines) + "\n"
    for depth in translator.menu.names:
        for threads in (1, 3):
            done = run(program, model_file, "--depth", depth, "--threads", threads, text=text)
            assert done.stdout.split("\n")[:-1] == translator.translate(lines, depth=depth)
    for rule in ("margin:3", "confidence:0.9", "patience:2"):
        found = run(program, model_file, "--exit", rule, "--threads", 2, text=text).stdout.split("\n")[:-1]
        assert found == translator.translate(lines, exit=rule)
    done = run(program, model_file, "--beam=3", "--nbest", 2, text="le chat dort.")
    best = translator.hypotheses(["le chat dort."], beam=3, nbest=2)[0]
    assert done.stdout.splitlines() == [f"0 ||| {one.text} ||| {one.score:.4f}" for one in best]
    listed = run(program, model_file, "--list").stdout.split()
    assert set(translator.menu.names) <= set(listed)
    assert "--depth" in run(program, "--help").stdout


@compiled
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "text", "reason"),
    [
        ((), "", "name a model file"),
        (("{file}", "--depth", "9-9"), "", "no depth 9-9"),
        (("{file}", "--depth"), "", "--depth needs a value"),
        (("{file}", "--exit", "margin"), "", "margin is not an early-exit rule: write margin:2, confidence:0.9"),
        (("{file}", "--exit", "margin:2", "--depth", "2-1"), "", "at depth 2-1 tokens cannot leave early"),
        (("{file}", "--beam", "many"), "", "--beam is many: give a whole number"),
        (("{file}", "--nbest", "2"), "", "more than --beam"),
        (("{file}", "--speed"), "", "no option --speed"),
        (("{file}", "{file}"), "", "one model file is enough"),
        (("{file}", "--budget", "5"), "", "such as 20ms"),
        (("{file}", "--pair", "xx-yy"), "", "does not translate xx-yy; it has: fr-en"),
        (("/nowhere",), "", "cannot read /nowhere"),
        ((__file__,), "", "not a model file of anydepth"),
        (("{file}",), "le chat.\n" + "le chat " * 200, "line 2 has"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(programs, model_file, arguments, text, reason):
    given = [argument.format(file=model_file) for argument in arguments]
    done = run(programs / "anydepth_run", *given, text=text)
    assert done.returncode == 2
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


@compiled
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the stack of a thread has another size")
def test_it_does_with_fewer_threads_than_asked_for(programs, model_file):
    """With a stack that has no room in memory, no thread can be started."""
    command = '"$0" "$@"'
    arguments = (programs / "anydepth_run", model_file, "--depth", "1-1", "--threads", 4)
    text = "le chat dort.\n" * 200
    expected = run("sh", "-c", command, *arguments, text=text)
    assert expected.returncode == 0, expected.stderr
    found = run("sh", "-c", f"ulimit -s {1 << 37} || exit 77; exec {command}", *arguments, text=text)
    if found.returncode == 77:
        pytest.skip("the size of stacks is limited here")
    assert (found.returncode, found.stderr, found.stdout) == (0, "", expected.stdout)


@compiled
@pytest.mark.slow
def test_lines_are_answered_as_they_come(programs, model_file):
    """Whoever writes them may wait for a translation before the next one."""
    command = [str(programs / "anydepth_run"), str(model_file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        for text in TEXTS[:2]:
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith("\n")
        process.stdin.close()
        assert process.stdout.read() == ""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runtime(tmp_path_factory.mktemp("runtime"))


def run_runtime(runtime: Path, code: str) -> str:
    """Without any package but the standard library."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(runtime)}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_runtime_package_translates_as_anydepth(runtime, model_file):
    translator = anydepth.load(model_file)
    code = f"""
import json
from anydepth_runtime import Translator
t = Translator({str(model_file)!r}, threads=2)
texts = {[*TEXTS, *TEXTS * 15]!r}
assert (t.source_language, t.target_language) == ("fr", "en"), t.languages
print(json.dumps([{{one.name: t.translate(texts, depth=one.name) for one in t.depths}},
                  t.translate("le chat dort."),
                  [(h.text, h.decoder_layers) for h, in t.hypotheses(texts[:9], exit="margin:3")],
                  [one.score for one in t.hypotheses(["le chat dort."], beam=3, nbest=3)[0]]]))
"""
    by_depth, one, early, scores = json.loads(run_runtime(runtime, code))
    expected = {name: translator.translate([*TEXTS, *TEXTS * 15], depth=name) for name in translator.menu.names}
    assert by_depth == expected
    assert one == translator.translate("le chat dort.")
    expected = translator.hypotheses([*TEXTS, *TEXTS][:9], exit="margin:3")
    assert early == [[h.text, h.decoder_layers] for (h,) in expected]
    assert 0 < sum(layers for _, layers in early) < 18
    assert scores == [h.score for h in translator.hypotheses(["le chat dort."], beam=3, nbest=3)[0]]


TEXT = "Le chat dort. Le chien mange !\n\n  Il pleut.  \n---\n" + "le chat dort, " * 60


def test_the_runtime_package_translates_a_text_as_the_server_does(runtime, model_file):
    """It needs sentencex, so not without site packages."""
    translator = anydepth.load(model_file)
    longest = translator.longest_source
    segments = split(TEXT, "fr", lambda part: len(translator.tokenizer.encode(part)) <= longest)
    made = iter(translator.translate([one.text for one in segments if one.is_for_the_model]))
    expected = "".join(one.around(next(made) if one.is_for_the_model else one.text) for one in segments)
    code = f"import anydepth_runtime as a; print(a.Translator({str(model_file)!r}).translate_text({TEXT!r}), end='')"
    command, environment = [sys.executable, "-c", code], {"PYTHONPATH": str(runtime)}
    found = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert found.stdout == expected, found.stderr
    assert found.stdout.count("\n") == TEXT.count("\n")
    assert "---" in found.stdout


def test_a_deadline_stops_the_splitting_of_a_text_too(runtime, model_file):
    code = f"""
import anydepth_runtime as a
t = a.Translator({str(model_file)!r})
try:
    t.translate_text("le chat dort et " * 20_000, timeout=1e-3)
except a.StoppedError as error:
    print(error)
assert t.translate_text("le chat dort.", timeout=1000) == t.translate("le chat dort.")
"""
    command, environment = [sys.executable, "-c", code], {"PYTHONPATH": str(runtime)}
    found = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert found.stdout == "splitting the text was stopped: its time was over\n", found.stderr


def test_the_wheel_of_the_runtime_package_has_all_its_files(tmp_path):
    """Without the library, which takes long to compile."""
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path / "lib")]
    folder = shutil.copytree(ROOT / "runtime", tmp_path / "runtime", ignore=shutil.ignore_patterns("build", "*.so"))
    for name in ("csrc", "src"):  # beside it, as in the repository
        (tmp_path / name).symlink_to(ROOT / name)
    subprocess.run(command, cwd=folder, check=True)
    names = {path.name for path in (tmp_path / "lib" / "anydepth_runtime").iterdir()}
    assert names == {"__init__.py", "library.py", "py.typed", "segments.py", "translator.py"}


def test_a_translator_of_the_runtime_package_is_copied_pickled_and_forked(runtime, model_file):
    code = f"""
import copy, os, pickle
from anydepth_runtime import Translator
t = Translator({str(model_file)!r}, threads=2)
texts = {[*TEXTS * 15]!r}
expected = t.translate(texts)
copied = copy.copy(t)
del copied
sent = pickle.loads(pickle.dumps(t))
assert t.translate(texts) == expected
del t
assert sent.translate(texts) == expected
child = os.fork()
if child == 0:
    os._exit(0 if sent.translate(texts) == expected else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_runtime(runtime, code).strip() == "0"


def test_the_runtime_package_says_what_is_wrong(runtime, model_file):
    code = f"""
from anydepth_runtime import *
t = Translator({str(model_file)!r})
def said(body):
    try:
        body()
    except Exception as error:
        print(type(error).__name__, str(error))
said(lambda: Translator("/nowhere"))
said(lambda: Translator({__file__!r}))
said(lambda: t.translate("le chat.", depth="9-9"))
said(lambda: t.translate(["le chat.", 5]))
said(lambda: t.translate(["le chat."] * 40 + ["le chat " * 100]))
said(lambda: t.translate("le chat.", exit="margin"))
said(lambda: t.translate("le chat.", exit=2))
said(lambda: t.translate("le chat.", beam=0))
said(lambda: t.translate("le chat.", beam=2.5))
said(lambda: t.translate("le chat.", timeout=float("nan")))
said(lambda: t.translate("le chat.", timeout=1e-9))
said(lambda: t.hypotheses("le chat."))
said(lambda: t.translate(["le chat dort."] * 2000, timeout=1e-3, beam=8))
said(lambda: t.translate("le chat.", beam=2**32 + 4))
said(lambda: t.translate(None))
said(lambda: Translator({str(model_file)!r} + chr(0) + "x"))
said(lambda: Translator({str(model_file)!r}, pair="xx-yy"))
said(lambda: t.translate_text("le chat."))
"""
    found = run_runtime(runtime, code).splitlines()
    for line, (kind, reason) in zip(
        found,
        [
            ("RuntimeFileError", "cannot read /nowhere"),
            ("RuntimeFileError", "not a model file"),
            ("TranslationError", "no depth 9-9"),
            ("TranslationError", "text 2 is of type int, not a string"),
            ("TooLongError", "text 41 has"),
            ("TranslationError", "margin is not an early-exit rule: write margin:2"),
            ("TranslationError", "exit is 2: use a rule such as margin:2"),
            ("TranslationError", "beam is out of range"),
            ("TranslationError", "beam is 2.5: use a whole number"),
            ("TranslationError", "timeout is out of range"),
            ("StoppedError", "time was over"),
            ("TranslationError", "write [text]"),
            ("StoppedError", "time was over"),
            ("TranslationError", "beam is 4294967300: it is out of range"),
            ("TranslationError", "texts is of type NoneType: give a string, or several"),
            ("RuntimeFileError", "is no name of a file"),
            ("TranslationError", "pair is 'xx-yy': the model has fr-en"),
            ("ImportError", "pip install anydepth-runtime[text]"),
        ],
        strict=True,
    ):
        assert line.startswith(kind), line
        assert reason in line
