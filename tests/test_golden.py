"""A small model of an earlier version decodes to the same text in every later one.

Made once, from the toy recipe of conftest.py; made anew only when the folder format changes on purpose:
python tests/test_golden.py RUN
"""

import json
import shutil
import sys
from pathlib import Path

import anydepth

GOLDEN = Path(__file__).parent / "golden"
TEXTS = ["le chat dort.", "un grand chien rouge voit le petit oiseau ici.", "et un chat aime le chien.", "zzz 😀"]


def outputs() -> dict[str, list[str]]:
    translator = anydepth.load(GOLDEN / "model")
    found = {name: translator.translate(TEXTS, depth=name) for name in translator.menu.names}
    found["2-2 beam 4"] = translator.translate(TEXTS, depth="2-2", beam=4)
    return found


def test_the_golden_model_decodes_to_the_same_text():
    assert outputs() == json.loads((GOLDEN / "expected.json").read_text("utf-8"))


if __name__ == "__main__":
    shutil.copytree(Path(sys.argv[1]) / "model", GOLDEN / "model")
    (GOLDEN / "expected.json").write_text(json.dumps(outputs(), indent=1, ensure_ascii=False) + "\n", "utf-8")
