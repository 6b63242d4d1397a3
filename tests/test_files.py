import os
import subprocess

import pytest

from anydepth.files import atomic_folder, checked_file, write_atomically


@pytest.fixture
def dead_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    final = tmp_path / "model"
    with pytest.raises(FileNotFoundError), atomic_folder(final) as folder:
        (folder / "half" / "way").write_text("there is no folder half")
    assert list(tmp_path.iterdir()) == []
    with atomic_folder(final) as folder:
        (folder / "one").write_text("1")
        assert not final.exists()
    with atomic_folder(final) as folder:
        (folder / "two").write_text("2")
        assert (final / "one").exists()
    assert [path.name for path in final.iterdir()] == ["two"]
    assert list(tmp_path.iterdir()) == [final]


def test_what_a_killed_process_left_is_removed(tmp_path, dead_process):
    (tmp_path / f".model.tmp-{dead_process}").mkdir()
    (tmp_path / f".model.tmp-{os.getppid()}").mkdir()  # of a process that still runs
    (tmp_path / ".model.txt-notes").write_text("somebody else's")
    with atomic_folder(tmp_path / "model"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f".model.tmp-{os.getppid()}", ".model.txt-notes", "model",
    ]  # fmt: skip


def test_a_file_that_a_killed_process_was_checking_is_removed(tmp_path, dead_process):
    (tmp_path / f".model[1].anydepth.tmp-{dead_process}").write_text("half")
    (tmp_path / f".other.anydepth.tmp-{dead_process}").write_text("of another export")
    final = tmp_path / "model[1].anydepth"
    with pytest.raises(ZeroDivisionError), checked_file(final) as written, written.open("w"):
        _ = 1 / 0
    assert [path.name for path in tmp_path.iterdir()] == [f".other.anydepth.tmp-{dead_process}"]
    with checked_file(final) as written:
        written.write_text("right")
        assert not final.exists()
    assert final.read_text() == "right"


def test_a_folder_that_was_just_moved_aside_comes_back(tmp_path, dead_process):
    aside = tmp_path / f".model.old-{dead_process}"
    aside.mkdir()
    (aside / "precious").write_text("x")
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "model"):
        _ = 1 / 0
    assert (tmp_path / "model" / "precious").exists()


def test_a_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    write_atomically(path, "one")
    write_atomically(path, b"two")
    assert path.read_text() == "two"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]
