import os

import pytest
import yaml
from conftest import anydepth

PLAIN = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}


@pytest.mark.slow
def test_maps_draws_every_map_and_says_how_to_use_it():
    done = anydepth("maps", 6, 2, env=PLAIN, fresh=True)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[2].split() == ["last", "regular", "overlap"]
    assert lines[7].split() == ["skip", "cross", "interleave"]
    assert lines[8].split() == list("123456") * 3
    assert lines[9].endswith("■ · ■ · ■ ·  1, 3, 5")
    assert [line.split()[0] for line in lines if line.endswith(("(PKD)", "(RC)", "(OC)", "(SC)", "(CC)"))] == [
        "last", "regular", "overlap", "skip", "cross",
    ]  # fmt: skip
    by_name, by_layers = (yaml.safe_load(line)["teacher"] for line in lines[-2:])
    assert by_name == {"method": "ckd", "map": "overlap"}
    assert by_layers == {"method": "ckd", "map": {1: [1, 3], 2: [4, 6]}}


@pytest.mark.slow
def test_maps_go_on_below_in_a_narrow_terminal():
    lines = anydepth("maps", 40, 2, env={**PLAIN, "COLUMNS": "34"}).stdout.decode().splitlines()
    first = lines.index("last")
    assert [line.split()[0] for line in lines[first : first + 8] if line] == ["last", "1", "1", "2", "31", "1", "2"]
    assert max(map(len, lines[:-2])) <= 34  # the last two are for a recipe, and stay whole


@pytest.mark.slow
def test_maps_without_blocks():
    done = anydepth("maps", 6, 2, env={**PLAIN, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"# . # . . .  1, 3" in done.stdout


@pytest.mark.parametrize("arguments", [["0", "2"], ["6", "-1"], ["6", "5000"], ["six", "2"], ["6"], []])
def test_maps_refuses_in_one_line(here, arguments):
    done = here("maps", *arguments)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b"")
    assert said.startswith("anydepth: ")
    assert len(said.splitlines()) == 1
