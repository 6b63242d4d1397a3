"""Times translations by several models, each with its own depth and beam, in turn: what `anydepth sweep`, with one beam
for all, cannot. BLEU is compared with that of the first by a bootstrap over sentences.

python studies/timing.py NAME=MODEL,DEPTH,BEAM ... --source FILE --reference FILE --out FOLDER
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from anydepth import Translator, UserError
from anydepth.data.corpus import read_lines
from anydepth.evaluate.experiment import Environment, OtherLoad
from anydepth.evaluate.metrics import score
from anydepth.evaluate.significance import Difference, paired_bootstrap
from anydepth.files import write_atomically

WARM_UP_SENTENCES = 8
RESULT = "timing.json"


@dataclass
class TimedSystem:
    name: str
    translator: Translator
    depth: str
    beam: int
    seconds: list[float] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, text: str, threads: int) -> "TimedSystem":
        name, _, rest = text.partition("=")
        try:
            folder, depth, beam = rest.rsplit(",", 2)
            return cls(name, Translator.load(folder, threads=threads), depth, int(beam))
        except ValueError as error:
            raise UserError(f"{text} is no system: write NAME=MODEL,DEPTH,BEAM") from error

    def translate(self, texts: Sequence[str]) -> None:
        start = time.perf_counter()
        found = self.translator.hypotheses(texts, depth=self.depth, beam=self.beam)
        self.seconds.append(time.perf_counter() - start)
        self.outputs = [best.text for best, *_ in found]

    def figures(self, references: Sequence[str], difference: Difference | None) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in ("name", "depth", "beam")}
        per_sentence = [seconds / len(references) for seconds in self.seconds]
        times = {"seconds_per_sentence": median(per_sentence), "passes": per_sentence}
        quality = {"bleu": score(self.outputs, references).bleu, "difference": difference and asdict(difference)}
        return {**shown, "engine": self.translator.engine.name, **quality, **times}


def time_systems(
    systems: Sequence[TimedSystem], sources: Sequence[str], references: Sequence[str], repeats: int, threads: int
) -> dict[str, Any]:
    """Each pass goes round all systems, so that a slow minute of the machine falls on all of them."""
    for one in systems:
        one.translate(sources[:WARM_UP_SENTENCES])
        one.seconds.clear()
    load = OtherLoad()
    for _ in range(repeats):
        for one in systems:
            one.translate(sources)
    differences = [None, *paired_bootstrap([[one.outputs] for one in systems], references)]
    environment = Environment(device="cpu", threads=threads)
    return {
        "conditions": {**environment.terms(), "machine": environment.machine, "threads": threads},
        "other_load": load.cores(),
        "signature": score(references[:1], references[:1]).bleu_signature,
        "systems": [one.figures(references, apart) for one, apart in zip(systems, differences, strict=True)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Time models, each at its own depth and beam, in turn.")
    parser.add_argument("systems", nargs="+", metavar="NAME=MODEL,DEPTH,BEAM")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help=f"folder for {RESULT}")
    parser.add_argument("--repeats", type=int, default=5, help="passes; their median counts")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    try:
        sources, references = list(read_lines(given.source)), list(read_lines(given.reference))
        systems = [TimedSystem.read(text, given.threads) for text in given.systems]
        found = time_systems(systems, sources, references, given.repeats, given.threads)
    except UserError as error:
        print(f"timing: {error}", file=sys.stderr)
        return 2
    write_atomically(given.out / RESULT, json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
