"""Small models of an earlier version give the same in every later one: a text its translation, a text its label.

Made once, from the toy recipes of conftest.py and made_classifiers.py; made anew only when the folder format changes on
purpose: python tests/test_golden.py NAME RUN
"""

import json
import shutil
import sys
from pathlib import Path

import pytest

import anydepth

GOLDEN = Path(__file__).parent / "golden"
TEXTS = ["le chat dort.", "un grand chien rouge voit le petit oiseau ici.", "et un chat aime le chien.", "zzz 😀"]
REVIEWS = ["a superb film and an awful dog.", "the DULL river", "ordinary, or lovely?", "zzz 😀", ""]


def outputs() -> dict[str, list[str]]:
    translator = anydepth.load(GOLDEN / "model", engine="torch")
    found = {name: translator.translate(TEXTS, depth=name) for name in translator.menu.names}
    found["2-2 beam 4"] = translator.translate(TEXTS, depth="2-2", beam=4)
    return found


def classes() -> dict[str, list[list[object]]]:
    """Of each text its label, the layers that its tokens ran in all, and the probability."""
    classifier = anydepth.load(GOLDEN / "classifier", engine="torch")
    return {
        f"{name}, scale {scale}": [
            [one.label, one.computed, one.probability] for one in classifier.classify(REVIEWS, depth=name, scale=scale)
        ]
        for name in classifier.menu.names
        for scale in (0.5, 1.0, 2.0)
    }


def expected(name: str) -> Path:
    return GOLDEN / ("expected.json" if name == "model" else f"{name}.json")


def test_the_golden_model_decodes_to_the_same_text():
    assert outputs() == json.loads(expected("model").read_text("utf-8"))


def test_the_golden_classifier_finds_the_same_labels_at_the_same_depths():
    found, before = classes(), json.loads(expected("classifier").read_text("utf-8"))
    assert found.keys() == before.keys()
    for setting, texts in before.items():
        assert [one[:2] for one in found[setting]] == [one[:2] for one in texts]
        assert [one[2] for one in found[setting]] == pytest.approx([one[2] for one in texts], abs=1e-4)


if __name__ == "__main__":
    name, run = sys.argv[1], Path(sys.argv[2])
    shutil.copytree(run / "model", GOLDEN / name)
    made = outputs() if name == "model" else classes()
    expected(name).write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", "utf-8")
