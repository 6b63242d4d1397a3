"""What the doctor makes of what it measured."""

import os

from anydepth.export.doctor import advice_on_load, advice_on_types, other_load

EMULATED = "this processor has no fast instructions for {}: "


def test_both_types_are_slow():
    first, second = advice_on_types({"bfloat16": 31.2, "float16": 24.0})
    assert first.startswith(EMULATED.format("bfloat16") + "products take 31.2 times as long")
    assert second.startswith(EMULATED.format("float16") + "products take 24.0 times as long")


def test_one_slow_type_says_nothing_about_the_other():
    (said,) = advice_on_types({"bfloat16": 1.1, "float16": 24.0})
    assert said.startswith(EMULATED.format("float16"))
    assert "bfloat16" not in said


def test_a_fast_one_beside_a_slow_one():
    slow, fast = advice_on_types({"bfloat16": 0.4, "float16": 24.0})
    assert slow.startswith(EMULATED.format("float16"))
    assert "0.40 of the time of float32, so `train.precision: bfloat16` may pay" in fast
    assert "`auto` computes in float32 on every CPU" in fast


def test_as_fast_as_float32():
    assert advice_on_types({"bfloat16": 0.9, "float16": 1.2}) == []


def test_the_load_is_never_more_than_there_are_cores(monkeypatch):
    class Measured:
        def __init__(self, cores):
            self.cores = lambda: cores

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (7.0, 7.0, 7.0))
    assert other_load(Measured(1.3)) == 1.3
    assert other_load(Measured(2.1)) == 2
    assert other_load(Measured(None)) == 2
    (said,) = advice_on_load(1.3)
    assert said.startswith("other programs use about 1.3 of 2 cores")
    assert advice_on_load(0.2) == []
