"""Requests that are broken in every way that a seeded generator comes up with: an answer for each, and never a 5xx."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

pytest_plugins = ["made_servers"]
pytestmark = pytest.mark.slow

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


def test_malformed_requests_get_an_answer(server, monkeypatch):
    import malformed

    monkeypatch.setattr(malformed, "PATIENCE", 1000.0)  # a slow machine is no hang
    port = int(server.url.rpartition(":")[2])
    found = asyncio.run(malformed.hand_made(port, 600))
    assert sum(found.values()) == 600
    assert not [status for status in found if status.startswith("5") or status == "hang"], found
    assert found["400"] > 100
    assert server.translate("le chat dort.").json()["translatedText"] == "the cat sleeps."


def test_numbers_beyond_all_bounds(server):
    rng = random.Random(2)
    for _ in range(50):
        number = rng.choice(
            [10**400, -(10**400), 1e308, 5e-324, -0.0, 0.1, 2**63, True, None, [], {}, "١٢", "1e3", " 7 "]
        )
        for field in ("alternatives", "budget_ms", "depth", "format", "source", "q"):
            answer = server.translate("le chat.", **{field: number}) if field != "q" else server.translate(number)
            assert answer.status_code in (200, 400), (field, number, answer.text)
