"""What a comparison of ways of training shows and keeps, from outputs made by hand."""

import io
import json
import re
from pathlib import Path

import pytest
from constructed_conditions import CONDITIONS
from matplotlib.image import imread
from rich.console import Console
from saved_models import REFERENCES, SOURCES, save_model
from watched_engine import WatchedEngine

from anydepth.errors import UserError
from anydepth.evaluate import experiment
from anydepth.evaluate.compare import CompareResult, ScoredModel, System, compare_systems
from anydepth.evaluate.compare_report import compare_report, write_comparison
from anydepth.evaluate.experiment import RunOptions
from anydepth.evaluate.figures import draw
from anydepth.evaluate.kept_outputs import KeptOutputs
from anydepth.evaluate.metrics import score
from anydepth.evaluate.render import to_terminal
from anydepth.evaluate.significance import Difference
from anydepth.infer.translator import Translator
from anydepth.progress import show_progress

TEXTS = ("one of the four lines", "two of the four lines", "three of the four lines", "four")


def model(name: str, bleu: float, line: str = "") -> ScoredModel:
    quality = score(TEXTS, TEXTS)
    quality = type(quality)(**{**vars(quality), "bleu": bleu, "chrf": bleu + 10})
    outputs = (*TEXTS[:3], line)
    return ScoredModel(name, "2-2", f"fingerprint of {name}", f"key of {name}", f"{name}.txt", outputs, quality)


def made(first: str = "no-kd", second: str = "rkd", third: str = "other [bold]") -> CompareResult:
    systems = (
        System(first, (model("a1", 30), model("a2", 32)), None),
        System(second, (model("b1", 31), model("b2", 33), model("b3", 35)), Difference(2, 1.5, 2.5, 0.0009)),
        System(third, (model("c1", 30.5, "with\ra return"),), Difference(-0.5, -1.25, 0.25, 0.0451)),
    )
    return CompareResult(systems, CONDITIONS, 1000, 1)


def print_comparison(result: CompareResult, console: Console) -> None:
    to_terminal(compare_report(result), console)


def draw_differences(result: CompareResult) -> bytes:
    (figure,) = compare_report(result).figures()
    return draw(figure)[0]


def test_the_table_is_plain_in_a_pipe() -> None:
    stream = io.StringIO()
    print_comparison(made(), Console(file=stream, width=120))
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
    print_comparison(
        made(second="a very long name " * 4), Console(file=stream, width=80, force_terminal=True, no_color=True)
    )
    text = re.sub(r"\x1b\[\d*m", "", stream.getvalue())
    assert text.count("a very long name a very l…") == 2
    assert text.count("a2") == 1  # a seed has nothing to compare
    for figure in ("33.00", "43.00", "1.41", "+2.00", "+1.50 to +2.50", "<0.001", "0.045"):
        assert figure in text


def test_without_seeds_there_is_no_deviation() -> None:
    systems = tuple(System(one.label, one.models[:1], one.difference) for one in made().systems)
    stream = io.StringIO()
    print_comparison(CompareResult(systems, CONDITIONS, 1000, 1), Console(file=stream, width=120))
    assert not re.search(r"\bsd\b|seeds", stream.getvalue())


def files_in(folder: Path) -> set[str]:
    return {path.name for path in (folder / "outputs").iterdir()}


def test_a_report_has_the_outputs_of_its_models_and_of_no_others(tmp_path: Path) -> None:
    write_comparison(made(), tmp_path)
    assert files_in(tmp_path) == {"made.json", *(f"{name}.txt" for name in ("a1", "a2", "b1", "b2", "b3", "c1"))}
    (tmp_path / "outputs" / "a1.txt").write_text("something else\n" * 4, "utf-8")
    write_comparison(CompareResult(made().systems[:2], CONDITIONS, 1000, 1), tmp_path)
    assert files_in(tmp_path) == {"made.json", *(f"{name}.txt" for name in ("a1", "a2", "b1", "b2", "b3"))}
    data = json.loads((tmp_path / "compare.json").read_text("utf-8"))
    assert [one["sd_bleu"] for one in data["systems"]] == pytest.approx([2**0.5, 2])
    assert data["systems"][1]["difference"] == {"bleu": 2, "low": 1.5, "high": 2.5, "p_value": 0.0009}
    for one in (model for system in data["systems"] for model in system["models"]):
        assert (tmp_path / one["outputs"]).read_text("utf-8").splitlines() == [*TEXTS[:3], ""]


def test_the_page_needs_nothing_from_outside_and_shows_text_as_text(tmp_path: Path) -> None:
    page = write_comparison(made("a & b", "<b>rkd</b>"), tmp_path).read_text("utf-8")
    assert not re.search(r"https?://", page)
    for link in re.findall(r'(?:src|href)="([^"]*)', page):  # a mark within a chart, or a file of the folder
        assert link.startswith("#") or (tmp_path / link).is_file()
    assert "&lt;b&gt;rkd&lt;/b&gt;" in page
    assert "<b>rkd</b>" not in page
    for text in ("+1.50 to +2.50", "baseline", "1.41", "tok:13a", "1000 samples", "training again"):
        assert text in page


def test_the_picture_takes_any_name_and_grows_with_the_systems() -> None:
    odd = draw_differences(made("a $x^{$ b", "a very long name " * 8, "_"))
    assert imread(io.BytesIO(odd)).shape[1] == 840
    few = CompareResult(made().systems[:2], CONDITIONS, 1000, 1)
    assert imread(io.BytesIO(draw_differences(few))).shape[0] < imread(io.BytesIO(draw_differences(made()))).shape[0]
    assert draw_differences(made()) == draw_differences(made())


def test_outputs_are_taken_over_for_the_same_model_depth_search_text_and_version_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = save_model(tmp_path / "one", 1), save_model(tmp_path / "two", 2)
    first = compare_systems({"one": one, "two": two}, SOURCES, REFERENCES, RunOptions(samples=20))
    assert first.systems[1].models[0].depth == "2-2"
    assert list(first.systems[1].models[0].outputs) == two.translate(SOURCES)

    def outputs_of_two(sources: list[str] = SOURCES, count: int = len(SOURCES), **options: object) -> tuple[str, ...]:
        kept = KeptOutputs(tmp_path / "report")
        for model in first.models:
            kept.keep(model.file, model.made_by, ("kept",) * count)
        run = RunOptions(samples=9, **{name: options.pop(name) for name in ("beam", "batch_size") if name in options})
        result = compare_systems({"one": one, "two": two}, sources, REFERENCES, run, kept=kept, **options)
        return result.systems[1].models[0].outputs

    assert set(outputs_of_two(batch_size=2)) == {"kept"}
    assert "kept" not in outputs_of_two(depth="1-1")
    assert "kept" not in outputs_of_two(beam=2)
    assert "kept" not in outputs_of_two(sources=[*SOURCES[:-1], "another"])
    assert "kept" not in outputs_of_two(count=len(SOURCES) - 1)
    monkeypatch.setattr(experiment, "version", lambda package: f"a later {package}")
    assert "kept" not in outputs_of_two()


def test_outputs_are_on_disk_before_the_next_model_begins(tmp_path: Path) -> None:
    families = {"a/b": save_model(tmp_path / "one", 1), "a b": [save_model(tmp_path / f"m{n}", n) for n in (2, 3)]}
    report = tmp_path / "report"

    def compare(systems: dict[str, object]) -> tuple[CompareResult, str]:
        console = Console(file=io.StringIO(), width=120)
        show_progress(console)
        try:
            result = compare_systems(systems, SOURCES, REFERENCES, RunOptions(samples=9), kept=KeptOutputs(report))
        finally:
            show_progress(Console(quiet=True))
        return result, console.file.getvalue()

    with pytest.raises(KeyboardInterrupt):
        compare({**families, "a b": [families["a b"][0], stopping(families["a b"][1])]})
    assert files_in(report) == {"made.json", "a_b.1.txt", "a_b-2.1.txt"}
    whole, said = compare(families)
    assert "outputs kept from before: 2 of 3" in said
    assert "sentences translated: 6 of 6" in said
    assert files_in(report) == {"made.json", "a_b.1.txt", "a_b-2.1.txt", "a_b-2.2.txt"}

    swapped = {"a/b": families["a b"][::-1], "c": families["a/b"], "d": families["a/b"]}
    again, said = compare(swapped)
    assert "outputs kept from before: 3 of 3" in said
    assert "translated" not in said
    assert [model.outputs for model in again.models[:3]] == [model.outputs for model in whole.models[::-1]]
    write_comparison(again, report)
    assert files_in(report) == {"made.json", "a_b.1.txt", "a_b.2.txt", "c.1.txt", "d.1.txt"}
    for model in again.models:
        assert (report / "outputs" / model.file).read_text("utf-8").split("\n")[:-1] == list(model.outputs)

    newer = [save_model(tmp_path / f"m{n}", n) for n in (4, 5)]
    with pytest.raises(KeyboardInterrupt):
        compare({"a/b": [newer[0], stopping(newer[1]), families["a b"][1]], "c": families["a/b"]})
    kept = KeptOutputs(report)  # although a newer one has the first file of a/b now
    assert all(kept.get(model.made_by, len(SOURCES)) == model.outputs for model in (again.models[0], again.models[2]))


def stopping(translator: Translator) -> Translator:
    """The same, but for a Ctrl-C at its first batch."""

    def stop(depth: str, size: int) -> None:
        raise KeyboardInterrupt

    return translator.on(WatchedEngine(translator.engine, stop))


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    one, two = save_model(tmp_path / "one", 1), save_model(tmp_path / "two", 2)
    with pytest.raises(UserError, match="nothing to compare: give two or more systems"):
        compare_systems({"one": [one, two]}, SOURCES, REFERENCES)
    with pytest.raises(UserError, match="small, one: this model has no depth 2-2; it has: 1-1"):
        compare_systems({"big": two, "small": one}, SOURCES, REFERENCES, depth="2-2")
    with pytest.raises(UserError, match="big: two is the same model as one before it"):
        compare_systems({"small": one, "big": [two, two]}, SOURCES, REFERENCES)
