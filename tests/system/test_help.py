"""What a newcomer meets: help with examples, completion, the doctor, the bundled model."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
from conftest import python

from anydepth.cli import VERBS, build_app
from anydepth.cli.options import ENGINE_NAMES
from anydepth.engines.auto import ENGINES

EXAMPLES = [(verb, example) for verbs in VERBS.values() for verb, example in verbs.items()]


@pytest.mark.parametrize(("verb", "example"), EXAMPLES, ids=[verb for verb, _ in EXAMPLES])
def test_every_example_can_be_parsed_and_is_in_the_help(here, verb, example):
    words = shlex.split(re.split("[<>]", example)[0])
    assert words[:2] == ["anydepth", verb]
    typer.main.get_command(build_app()).commands[verb].make_context(verb, words[2:])  # refuses what it does not know
    said = " ".join(here(verb, "--help").stdout.decode().split())
    assert f"Example: {' '.join(shlex.split(example, posix=False))}" in said
    assert "<bool>" not in said  # a flag takes no value


def test_help_lists_every_verb_under_a_heading(here):
    said = here("--help").stdout.decode()
    for heading, verbs in VERBS.items():
        assert f" {heading} " in said
        for verb in verbs:
            assert f" {verb} " in said


def completed(typed: str) -> list[str]:
    environment = {**os.environ, "_ANYDEPTH_COMPLETE": "complete_bash", "COMP_WORDS": typed}
    environment["COMP_CWORD"] = str(len(typed.split(" ")) - 1)
    script = "import sys; sys.argv = ['anydepth']; from anydepth.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    return done.stdout.split()


@pytest.mark.slow
def test_completion_knows_verbs_engines_and_the_depths_of_a_model(toy_run):
    assert completed("anydepth tra") == ["translate", "train"]
    assert completed("anydepth serve --engine ") == list(ENGINE_NAMES) == list(ENGINES)
    assert completed(f"anydepth translate {toy_run} --depth 2") == ["2-1", "2-2"]
    assert completed("anydepth translate nowhere --depth 2") == []


def test_the_doctor_tells_what_there_is(here):
    done = here("doctor", "--json")
    found = json.loads(done.stdout)
    assert found["facts"]["software"]["anydepth"]
    assert "int8" in found["facts"]["engines and extras"]["ctranslate2"]
    assert "GFLOP/s" in found["facts"]["arithmetic on the CPU"]["float32"]
    said = here("doctor").stdout.decode()
    assert "engines and extras" in said
    measured = ("other programs", "this processor")  # which may change from one run to the next
    assert all(line.split(":")[0] in said for line in found["advice"] if not line.startswith(measured))


@pytest.mark.slow
def test_the_doctor_says_what_is_missing():
    script = "import sys; sys.modules['ctranslate2'] = None; sys.argv = ['anydepth', 'doctor']\n"
    script += "from importlib import util; there = util.find_spec\n"
    script += "util.find_spec = lambda name: None if name == 'ctranslate2' else there(name)\n"
    script += "from anydepth.cli import main; main()"
    done = python(script)
    assert "pip install 'anydepth[ctranslate2]'" in done.stdout, done.stderr
