"""The command line with a model of two target languages."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import anydepth, assert_one_line, toy_pairs
from typer.testing import CliRunner

from anydepth.cli import build_app
from anydepth.infer.translator import Translator

PAIRS = toy_pairs(10, 6)
TEXTS = "".join(f"{source}\n" for source, _ in PAIRS).encode()


@pytest.fixture(autouse=True)
def _a_cache_without_calibrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def model(two_targets_run: Path, tmp_path: Path) -> Path:
    (tmp_path / "in").write_bytes(TEXTS)
    english = "".join(f"{target}\n" for _, target in PAIRS)
    (tmp_path / "en").write_text(english)
    (tmp_path / "loud").write_text(english.upper())
    return shutil.copytree(two_targets_run / "model", tmp_path / "model")


def run(*arguments: object) -> str:
    done = CliRunner().invoke(build_app(), [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.mark.slow
def test_translate_into_either(model: Path) -> None:
    quiet, loud = (anydepth("translate", model, "--to", target, stdin=TEXTS) for target in ("en", "loud"))
    assert (quiet.returncode, loud.returncode) == (0, 0), loud.stderr
    assert (len(quiet.stdout.splitlines()), len(loud.stdout.splitlines())) == (10, 10)
    assert (quiet.stdout, loud.stdout) == (quiet.stdout.lower(), loud.stdout.upper())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("translate", "MODEL"), ("fr-en, fr-loud", "--to en")),
        (("translate", "MODEL", "--to", "es"), ("does not translate to 'es'", "fr-en, fr-loud")),
        (("translate", "MODEL", "--to", "en", "--depth", "auto"), ("`auto`", "several language pairs yet")),
        (("sweep", "MODEL", "--source", "IN", "--reference", "IN", "--out", "OUT"), ("fr-en, fr-loud", "--to")),
        (("select", "MODEL", "--source", "IN", "--reference", "IN"), ("several language pairs yet",)),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_is_one_line(model: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    places = {"MODEL": model, "IN": model.parent / "in", "OUT": model.parent / "out"}
    assert_one_line(anydepth(*(places.get(one, one) for one in arguments), stdin=TEXTS), *words)


@pytest.mark.slow
def test_figures_of_each_language(model: Path, tmp_path: Path) -> None:
    texts = ("--source", tmp_path / "in", "--reference")
    for target in ("en", "loud"):
        out = ("--out", tmp_path / f"sweep-{target}", "--to", target, "--engine", "torch")
        run("sweep", model, *texts, tmp_path / target, *out)
    run("calibrate", model, *texts, tmp_path / "loud", "--to", "loud", "--repeats", 1, "--threads", 1)
    facts = json.loads(run("info", model, "--json"))
    assert list(facts["pairs"]) == ["fr-en", "fr-loud"]
    assert facts["pairs"]["fr-loud"]["default_depth"] == "2-2"
    assert facts["pairs"]["fr-loud"]["measured_on"]["reference"] == "loud"
    menu = Translator.load(model, engine="torch", device="cpu").menu
    rows = [(one["pair"], one["depth"], one["bleu"]) for one in facts["depths"]]
    assert rows == [
        (pair, name, menu.of_pair(pair)[name].quality["bleu"])
        for pair in ("fr-en", "fr-loud")
        for name in ("1-1", "1-2", "2-1", "2-2")
    ]
    assert min(bleu for _, _, bleu in rows) > 20
    text = run("info", model)
    assert "fr-en, fr-loud" in text
    assert "by default fr-en 2-2, fr-loud 2-2" in text
    assert "none; a selector cannot be trained for a model of several language pairs yet" in text
    assert [line.split()[:2] for line in text.split("\n\n")[1].splitlines()[-2:]] == [
        ["fr-loud", "2-1"],
        ["fr-loud", "2-2"],
    ]


@pytest.mark.slow
def test_compare_and_oracle_take_a_language(model: Path, tmp_path: Path) -> None:
    texts = ("--source", tmp_path / "in", "--reference")
    system = f"{model.parent / 'same'}"
    shutil.copytree(model, system)
    compared = run("compare", f"a={model}", f"b={system}", *texts, tmp_path / "loud", "--to", "loud", "--samples", 20)
    assert "2-2" in compared
    asked = run("oracle", model, *texts, tmp_path / "en", "--from", "fr", "--to", "en", "--out", tmp_path / "oracle")
    assert "2-2" in asked
    table = json.loads((tmp_path / "oracle" / "oracle.json").read_text())
    assert table["models"]


@pytest.mark.slow
def test_distill_into_a_language(model: Path, tmp_path: Path) -> None:
    out, beam = tmp_path / "out", ("--beam", 1)
    said = run("distill", model, "--source", tmp_path / "in", "--out", out, "--to", "loud", *beam)
    corpus = f"train: {{source: {out / 'distilled.fr'}, target: {out / 'distilled.loud'}}}"
    assert f"train on it: in data.pairs of a recipe, write at fr-loud  {corpus}" in said
    assert {"distilled.fr", "distilled.loud"} <= {path.name for path in (tmp_path / "out").iterdir()}
