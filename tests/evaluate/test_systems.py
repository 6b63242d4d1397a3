"""What a comparison of ways of training shows and keeps, from outputs made by hand."""

import io
import json
import re
from pathlib import Path

import pytest
from matplotlib.image import imread
from rich.console import Console
from saved_models import QUIET, REFERENCES, SOURCES, save_model

from anydepth.errors import UserError
from anydepth.evaluate.kept_outputs import kept_in
from anydepth.evaluate.metrics import score
from anydepth.evaluate.result import Conditions, versions
from anydepth.evaluate.significance import Difference
from anydepth.evaluate.systems import compare_systems
from anydepth.evaluate.systems_plot import draw_differences
from anydepth.evaluate.systems_report import write_systems_report
from anydepth.evaluate.systems_result import ScoredModel, System, SystemsResult
from anydepth.evaluate.systems_table import print_systems

TEXTS = ("one of the four lines", "two of the four lines", "three of the four lines", "four")
CONDITIONS = Conditions(
    "test.de", "test.en", 4, 1, 0.6, 32, False, 1, "cpu", 2, "x86_64", "2025-01-02T03:04:05+00:00", versions()
)


def model(name: str, bleu: float, line: str = "") -> ScoredModel:
    quality = score(TEXTS, TEXTS)
    quality = type(quality)(**{**vars(quality), "bleu": bleu, "chrf": bleu + 10})
    return ScoredModel(name, "2-2", f"fingerprint of {name}", f"key of {name}", (*TEXTS[:3], line), quality)


def made(first: str = "no-kd", second: str = "rkd", third: str = "other [bold]") -> SystemsResult:
    systems = (
        System(first, (model("a1", 30), model("a2", 32)), None),
        System(second, (model("b1", 31), model("b2", 33), model("b3", 35)), Difference(2, 1.5, 2.5, 0.0009)),
        System(third, (model("c1", 30.5, "with\ra return"),), Difference(-0.5, -1.25, 0.25, 0.0451)),
    )
    return SystemsResult(systems, CONDITIONS, 1000, 1)


def test_the_table_is_plain_in_a_pipe() -> None:
    stream = io.StringIO()
    print_systems(made(), Console(file=stream, width=120))
    text = stream.getvalue()
    assert "\x1b" not in text
    for row in (
        r"system +depth +seeds +BLEU +sd +chrF +sd +difference +95% interval +p",
        r"no-kd +2-2 +2 +31\.00 +1\.41 +41\.00 +1\.41 +baseline",
        r"  a2 +2-2 +32\.00 +42\.00",
        r"rkd +2-2 +3 +33\.00 +2\.00 +43\.00 +2\.00 +\+2\.00 +\+1\.50 to \+2\.50 +<0\.001",
        r"other \[bold\] +2-2 +1 +30\.50 +40\.50 +-0\.50 +-1\.25 to \+0\.25 +0\.045",
    ):
        assert re.search(f"^{row} *$", text, re.MULTILINE), row
    assert "sd: standard deviation over the seeds" in text
    assert "tok:13a" in text


def test_a_narrow_terminal_gets_two_tables_and_every_figure() -> None:
    stream = io.StringIO()
    print_systems(
        made(second="a very long name " * 4), Console(file=stream, width=80, force_terminal=True, no_color=True)
    )
    text = re.sub(r"\x1b\[\d*m", "", stream.getvalue())
    assert text.count("a very long name a very…") == 2
    for figure in ("33.00", "43.00", "1.41", "+2.00", "+1.50 to +2.50", "<0.001", "0.045"):
        assert figure in text
    assert text.count("a2") == 1


def test_without_seeds_there_is_no_deviation() -> None:
    systems = tuple(System(one.label, one.models[:1], one.difference) for one in made().systems)
    stream = io.StringIO()
    print_systems(SystemsResult(systems, CONDITIONS, 1000, 1), Console(file=stream, width=120))
    assert not re.search(r"\bsd\b|seeds", stream.getvalue())


def test_a_report_is_kept_and_what_has_changed_since_is_not(tmp_path: Path) -> None:
    write_systems_report(made("a/b", "a b", "c"), tmp_path)
    names = {path.name for path in (tmp_path / "outputs").iterdir()}
    assert names == {"a_b.1.txt", "a_b.2.txt", "a_b-2.1.txt", "a_b-2.2.txt", "a_b-2.3.txt", "c.1.txt"}
    assert kept_in(tmp_path)["key of c1"] == (*TEXTS[:3], "with\ra return")
    (tmp_path / "outputs" / "a_b.1.txt").write_text("something else\n" * 4, "utf-8")
    assert kept_in(tmp_path).keys() == {"key of a2", "key of b1", "key of b2", "key of b3", "key of c1"}
    shorter = made("a/b", "a b", "c")
    write_systems_report(SystemsResult(shorter.systems[:2], CONDITIONS, 1000, 1), tmp_path)
    assert {path.name for path in (tmp_path / "outputs").iterdir()} == names - {"c.1.txt"}
    data = json.loads((tmp_path / "compare.json").read_text("utf-8"))
    assert [one["sd_bleu"] for one in data["systems"]] == pytest.approx([2**0.5, 2])
    assert data["systems"][1]["difference"] == {"bleu": 2, "low": 1.5, "high": 2.5, "p_value": 0.0009}
    (tmp_path / "compare.json").write_text("[]", "utf-8")
    assert kept_in(tmp_path) == {}


def test_the_page_needs_nothing_from_outside_and_shows_text_as_text(tmp_path: Path) -> None:
    page = write_systems_report(made("a & b", "<b>rkd</b>"), tmp_path).read_text("utf-8")
    assert not re.search(r"https?://", page)
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r'(?:src|href)="([^"]*)', page))
    assert "&lt;b&gt;rkd&lt;/b&gt;" in page
    assert "<b>rkd</b>" not in page
    for text in ("+1.50 to +2.50", "baseline", "1.41", "tok:13a", "1000 samples", "training again"):
        assert text in page


def test_the_picture_takes_any_name_and_grows_with_the_systems() -> None:
    odd = draw_differences(made("a $x^{$ b", "a very long name " * 8, "_"))
    assert imread(io.BytesIO(odd)).shape[1] == 1200
    few = SystemsResult(made().systems[:2], CONDITIONS, 1000, 1)
    assert imread(io.BytesIO(draw_differences(few))).shape[0] < imread(io.BytesIO(draw_differences(made()))).shape[0]
    assert draw_differences(made()) == draw_differences(made())


def test_outputs_are_taken_over_for_the_same_model_depth_search_and_text_alone(tmp_path: Path) -> None:
    one, two = save_model(tmp_path / "one", 1), save_model(tmp_path / "two", 2)
    first = compare_systems({"one": one, "two": two}, SOURCES, REFERENCES, samples=20, console=QUIET)
    assert first.systems[1].models[0].depth == "2-2"
    assert list(first.systems[1].models[0].outputs) == two.translate(SOURCES)
    kept = {system.models[0].made_by: ("kept",) * len(SOURCES) for system in first.systems}

    def outputs_of_two(sources: list[str] = SOURCES, **options: object) -> tuple[str, ...]:
        result = compare_systems(
            {"one": one, "two": two}, sources, REFERENCES, samples=9, kept=kept, console=QUIET, **options
        )
        return result.systems[1].models[0].outputs

    assert set(outputs_of_two(batch_size=2)) == {"kept"}
    assert "kept" not in outputs_of_two(depth="1-1")
    assert "kept" not in outputs_of_two(beam=2)
    assert "kept" not in outputs_of_two(sources=[*SOURCES[:-1], "another"])
    kept = {key: lines[1:] for key, lines in kept.items()}
    assert "kept" not in outputs_of_two()


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    one, two = save_model(tmp_path / "one", 1), save_model(tmp_path / "two", 2)
    with pytest.raises(UserError, match="nothing to compare: give two or more systems"):
        compare_systems({"one": [one, two]}, SOURCES, REFERENCES, console=QUIET)
    with pytest.raises(UserError, match="small, one: this model has no depth 2-2; it has: 1-1"):
        compare_systems({"big": two, "small": one}, SOURCES, REFERENCES, depth="2-2", console=QUIET)
    with pytest.raises(UserError, match="big: two is the same model as one before it"):
        compare_systems({"small": one, "big": [two, two]}, SOURCES, REFERENCES, console=QUIET)
