"""translate --budget and --depth auto as a user gives them."""

import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conftest import anydepth, assert_one_line, toy_pairs
from made_tables import COSTS, DEPTHS

import anydepth as package
from anydepth.selectors.learned import LearnedSelector, TradeoffPoint, save_selector
from anydepth.selectors.network import DepthPredictor, SelectorConfig, SelectorReader

pytestmark = pytest.mark.slow

LINES = [source for source, _ in toy_pairs(30, seed=21)]
NATIVE = ("--engine", "native")
TEXT = "".join(f"{line}\n" for line in LINES).encode()


@pytest.fixture(scope="module")
def model(toy_run, tmp_path_factory) -> Path:
    """With times that a sweep may have measured, of which all are known, and with a selector."""
    folder = Path(shutil.copytree(toy_run / "model", tmp_path_factory.mktemp("choosing") / "model"))
    menu = json.loads((folder / "depths.json").read_text())
    for depth in menu["depths"]:
        n, m = (len(depth["subnetwork"][side]) for side in ("encoder", "decoder"))
        depth["cost"] = {"seconds_per_sentence": 0.001 * (n + 4 * m)}
        depth["quality"] = {"bleu": 20.0 + n + 4 * m}
    menu["measured_on"] = {"reference": "dev.en", "batch_size": 32}
    (folder / "depths.json").write_text(json.dumps(menu))
    translator = package.load(folder, engine="torch")
    network = DepthPredictor(SelectorConfig(), translator.model, 4)
    read = SelectorReader(translator.model, translator.tokenizer, encoder=False)
    selector = LearnedSelector(network, read, DEPTHS, COSTS, 8.0)
    points = [TradeoffPoint(0.0, 1.0, 30.0, 50.0), TradeoffPoint(1000.0, 0.4, 25.0, 40.0)]
    quality_k = np.array([20.0, 21.0, 24.0, 25.0])
    selector = selector.rescaled(np.zeros(4), quality_k, 0.0).with_points(points)  # the same of any sentence
    save_selector(folder, selector.with_threshold(0.0))
    return folder


def environment(tmp_path) -> dict[str, str]:
    import os

    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}


@cache
def translated(model, depth) -> bytes:
    """By the same engine: two ways of rounding may part where two subwords are all but equally likely."""
    return anydepth("translate", model, "--depth", depth, *NATIVE, stdin=TEXT).stdout


@pytest.mark.parametrize(("budget", "depth"), [("5.5ms", "1-1"), ("0.0091s", "1-2"), ("100/s", "2-2"), ("1s", "2-2")])
def test_a_budget_takes_the_best_depth_that_fits_and_says_so(model, tmp_path, budget, depth):
    done = anydepth("translate", model, "--budget", budget, *NATIVE, stdin=TEXT, env=environment(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == translated(model, depth)
    said = done.stderr.decode()
    assert f"depth {depth}: expects" in said
    assert "on dev.en" in said
    assert "anydepth calibrate" in said  # these times are a sweep's


def test_a_budget_below_the_fastest_depth_is_refused_with_its_time(model, tmp_path):
    done = anydepth("translate", model, "--budget", "4ms", stdin=TEXT, env=environment(tmp_path))
    assert done.returncode == 2
    assert done.stdout == b""
    assert "below the fastest depth, 1-1" in done.stderr.decode()
    assert "5.00ms" in done.stderr.decode()


def test_auto_follows_the_selector_and_its_threshold(model, tmp_path):
    best = anydepth("translate", model, "--depth", "auto", *NATIVE, stdin=TEXT)
    assert best.stdout == translated(model, "2-2")
    fast = anydepth("translate", model, "--depth", "auto", "--threshold", "1000", *NATIVE, stdin=TEXT)
    assert fast.stdout == translated(model, "1-1")


@pytest.mark.parametrize(("budget", "depth"), [("20ms", "2-2"), ("8ms", "1-1")])
def test_auto_within_a_budget_takes_the_best_trade_off_that_fits(model, tmp_path, budget, depth):
    """Threshold 0 puts all sentences at 2-2, 10 ms; at 1000 quality is worth less than time."""
    options = ("--depth", "auto", "--budget", budget, *NATIVE)
    done = anydepth("translate", model, *options, stdin=TEXT, env=environment(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "depth auto, threshold" in done.stderr.decode()
    assert done.stdout == translated(model, depth)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--budget", "20"), "20ms"),
        (("--budget", "fast"), "20ms"),
        (("--budget", "0ms"), "more than 0"),
        (("--budget", "20ms", "--depth", "1-1"), "both choose the depth"),
        (("--threshold", "1"), "--threshold is for --depth auto"),
        (("--threshold", "nan", "--depth", "auto"), "not a finite number"),
        (("--threshold", "1", "--depth", "auto", "--budget", "20ms"), "--threshold is for --depth auto"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(model, options, words):
    assert_one_line(anydepth("translate", model, *options, stdin=TEXT), words)


def test_auto_and_a_budget_without_the_means_say_how_to_get_them(toy_run, tmp_path):
    assert_one_line(anydepth("translate", toy_run, "--depth", "auto", stdin=TEXT), "anydepth select")
    done = anydepth("translate", toy_run, "--budget", "20ms", stdin=TEXT, env=environment(tmp_path))
    assert_one_line(done, "anydepth calibrate")
    done = anydepth("translate", toy_run, "--budget", "20ms", "--depth", "auto", stdin=TEXT, env=environment(tmp_path))
    assert_one_line(done, "anydepth select")
