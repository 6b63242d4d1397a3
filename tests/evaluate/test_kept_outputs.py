"""The folder in which a comparison keeps its translations."""

import hashlib
import json
from pathlib import Path

import pytest
from saved_models import SOURCES, save_model

from anydepth.evaluate.kept_outputs import KeptOutputs, outputs_key
from anydepth.infer.translator import on_engine


def test_the_engine_is_part_of_the_key(tmp_path: Path) -> None:
    one = save_model(tmp_path / "one", 1)
    native = on_engine(one, "native", threads=1)
    assert outputs_key(one, "1-1", SOURCES, {"beam": 1}) != outputs_key(native, "1-1", SOURCES, {"beam": 1})


def test_the_search_and_the_sources_are_part_of_the_key(tmp_path: Path) -> None:
    one = save_model(tmp_path / "one", 1)
    here = outputs_key(one, "1-1", SOURCES, {"beam": 1})
    assert here == outputs_key(one, "1-1", SOURCES, {"beam": 1})
    assert here != outputs_key(one, "1-1", SOURCES, {"beam": 2})
    assert here != outputs_key(one, "1-1", SOURCES[::-1], {"beam": 1})


def test_kept_outputs_that_have_changed_or_lie_elsewhere_are_not_taken(tmp_path: Path) -> None:
    kept = KeptOutputs(tmp_path / "report")
    index = tmp_path / "report" / "outputs" / "made.json"
    assert json.loads(index.read_text("utf-8")) == {}
    kept.keep("x.1.txt", "key of x", ("with\ra return", ""))
    kept.keep("y.1.txt", "key of y", ("y",))
    assert KeptOutputs(tmp_path / "report").get("key of x", 2) == ("with\ra return", "")
    assert kept.get("key of x", 1) is None
    (index.parent / "x.1.txt").write_text("something\nelse\n", "utf-8")
    assert kept.get("key of x", 2) is None

    (tmp_path / "mine.txt").write_text("mine\n", "utf-8")
    mine = {"made_by": "key", "sha256": hashlib.sha256(b"mine\n").hexdigest()}
    names = ("../../mine.txt", str(tmp_path / "mine.txt"), "made.json", "..", "")
    index.write_text(json.dumps(dict.fromkeys(names, mine)), "utf-8")
    kept = KeptOutputs(tmp_path / "report")
    assert kept.get("key", 1) is None
    kept.forget_all_but([])
    assert (tmp_path / "mine.txt").exists()
    for damaged in ("[]", '{"y.1.txt": 1}', '{"y.1.txt": {"made_by": "key of y"}}', "{"):
        index.write_text(damaged, "utf-8")
        assert KeptOutputs(tmp_path / "report").get("key of y", 1) is None
        assert json.loads(index.read_text("utf-8")) == {}


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept = KeptOutputs()
    kept.keep("x.1.txt", "key", ("x",))
    kept.forget_all_but([])
    assert kept.get("key", 1) is None
    assert not list(tmp_path.iterdir())
