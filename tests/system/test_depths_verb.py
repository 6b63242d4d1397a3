import os

import pytest
from conftest import anydepth

PLAIN = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}


@pytest.mark.slow
def test_depths_draws_the_optimal_strategy():
    done = anydepth("depths", 12, env=PLAIN, fresh=True)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[0].split() == ["layer", *map(str, range(1, 13))]
    assert lines[4].endswith("2, 6, 8, 12")
    assert lines[7].split() == ["tasks", "per", "layer", *"232223322322"]
    assert lines[-2].startswith("TB  0.49")
    assert lines[-1].startswith("ALD 2.05")
    assert "\x1b" not in done.stdout.decode()


@pytest.mark.slow
def test_depths_compares_all_strategies_and_uses_the_width():
    narrow, wide = (
        anydepth("depths", 12, "--strategy", "all", env={**PLAIN, "COLUMNS": width}).stdout.decode()
        for width in ("80", "120")
    )
    table = [line.split() for line in narrow.splitlines()[1:6]]
    assert table == [
        ["head", "1.78", "1.00"],
        ["seq", "0.49", "1.00"],
        ["left", "1.50", "2.00"],
        ["middle-left", "0.78", "2.00"],
        ["optimal", "0.49", "2.05"],
    ]
    assert "TB: task balance, lower is better; ALD: average layer distance, higher is better\n" in narrow
    assert ["head", "seq", "left", "middle-left", "optimal"] in [line.split() for line in wide.splitlines()]
    assert max(map(len, narrow.splitlines())) <= 80


@pytest.mark.slow
def test_depths_without_blocks():
    done = anydepth("depths", 6, "--strategy", "left", env={**PLAIN, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert b"# . . # . ." in done.stdout


def test_depths_of_a_prime_come_with_a_warning(here):
    done = here("depths", 11)
    assert done.returncode == 0
    assert done.stderr.decode().splitlines() == [
        "warning: 11 is prime, so its only depths are 1 and 11: use a number with more divisors, such as 12"
    ]


@pytest.mark.parametrize(
    "arguments", [["0"], ["-1"], ["5000"], ["abc"], [], ["12", "--strategy", "best"], ["12", "--strategy", ""]]
)
def test_depths_refuses_in_one_line(here, arguments):
    done = here("depths", *arguments)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b"")
    assert said.startswith("anydepth: ")
    assert len(said.splitlines()) == 1
