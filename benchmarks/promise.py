"""Whether a calibrated promise holds: `calibrate --keep` and `translate --keep` on halves of a test set.

python benchmarks/promise.py --set flores=dev.pt,devtest.pt --set tatoeba=tatoeba.pt [--other french=dev.fr]

Every sentence is translated once at the full depth and once with each rule (native int8, the model's shortlist). Then

- each set is split at random into halves 20 times: the rule is chosen on one half, as `calibrate` does, and counted on
  the other. The counts of both halves add up to that of the set: luck on one half is bad luck on the other, so
  violations are more frequent here than with independent samples. Of those, it says how many are beyond the test
  half's own noise, by a one-sided binomial test at 5%.
- 2,000 samples of 1,000 sentences are drawn from each set with replacement: the set is the population, so the share
  that is really kept is known. At most 5% of the promises may be broken.
- the rule of each set is tried on all other texts, `--other` ones and versions of the first set too, with what
  `translate` would warn of.

Times are CPU time against the full depth of some sentences of each set, one at a time and in batches of 32.
"""

import argparse
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from common import print_versions

from anydepth.data.corpus import read_lines
from anydepth.engines.base import ExitRule
from anydepth.evaluate.experiment import RunOptions
from anydepth.evaluate.metrics import sentence_chrf
from anydepth.evaluate.promise import MARGINS, _time_ratio, fixed_sequence
from anydepth.infer.translator import Translator
from anydepth.selectors.promise import TOLERANCE, Promise, Spread, TextCheck, as_percent, p_value, sentence_statistics

KEEPS = (0.99, 0.98, 0.95, 0.9)
SPLITS, DRAWS, SAMPLE = 20, 2000, 1000


@dataclass
class TextSet:
    """Of each rule, in the order of MARGINS, the chrF of each sentence against the full depth, and its layers."""

    name: str
    texts: list[str]
    lengths: list[int]  # in subwords
    chrf_rn: np.ndarray
    layers_rn: np.ndarray

    def choose(self, chosen: np.ndarray, keep: float, tolerance: float) -> int | None:
        """The place of the rule that is calibrated on these sentences."""
        changed_r = (self.chrf_rn[:, chosen] < tolerance).sum(1).tolist()
        tested = fixed_sequence(zip(MARGINS, changed_r, MARGINS, strict=True), len(chosen), keep)
        passed = [place for place, rule in enumerate(tested) if rule.passed]
        return passed[-1] if passed else None

    def changed(self, rule: int | None, chosen: np.ndarray, tolerance: float) -> int:
        return 0 if rule is None else int((self.chrf_rn[rule, chosen] < tolerance).sum())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--set", action="append", default=[], help="NAME=FILE,FILE of source sentences")
    parser.add_argument("--other", action="append", default=[], help="the same, of text that is unlike them")
    parser.add_argument("--most", type=int, default=3000, help="sentences of a file, spread over it")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("anydepth").addHandler(logging.NullHandler())
    print_versions()
    translator = Translator.load(arguments.model, engine="native", threads=1)
    given = arguments.set or ["sample"]
    sets = [translate(translator, *read(translator, one, arguments.most)) for one in given]
    first, tolerance = sets[0], arguments.tolerance
    print(f"{translator.menu.default.name}, tolerance chrF {tolerance:g}")
    for one in sets:
        show_rules(one, tolerance)
        for keep in KEEPS:
            show_splits(one, keep, tolerance)
            show_draws(one, keep, tolerance)
        show_times(translator, one, tolerance)
    changed = {
        "capitals": [text.upper() for text in first.texts],
        "no accents": [without_accents(text) for text in first.texts],
        "two in one": [f"{a} {b}" for a, b in zip(first.texts[::2], first.texts[1::2], strict=False)],
    }
    others = [translate(translator, name, texts[:500]) for name, texts in changed.items()]
    others += [translate(translator, *read(translator, one, 500)) for one in arguments.other]
    for one in sets:
        show_elsewhere(translator, one, [other for other in [*sets, *others] if other is not one], tolerance)


def read(translator: Translator, given: str, most: int) -> tuple[str, list[str]]:
    if given == "sample":
        assert translator.folder is not None
        return given, [line.partition("\t")[0] for line in read_lines(translator.folder / "sample.tsv")]
    name, _, files = given.partition("=")
    texts = []
    for file in files.split(","):
        lines = [line for line in read_lines(Path(file)) if line.strip()]
        texts += lines[:: max(1, len(lines) // most)][:most]
    return name, texts


def translate(translator: Translator, name: str, texts: list[str]) -> TextSet:
    def found(margin: float | None) -> list[tuple[str, float]]:
        rule = None if margin is None else ExitRule("margin", margin)
        hypotheses = translator.hypotheses(texts, exit=rule, scores=False, cut_long=True)
        return [(one.text, one.decoder_layers) for (one,) in hypotheses]

    full = [text for text, _ in found(None)]
    chrf, layers = [], []
    for margin in MARGINS:
        outputs = found(margin)
        scores = np.full(len(texts), 100.0)
        differ = [i for i, (text, _) in enumerate(outputs) if text != full[i]]
        scores[differ] = sentence_chrf([outputs[i][0] for i in differ], [full[i] for i in differ])
        chrf.append(scores)
        layers.append(np.array([each for _, each in outputs]))
    lengths = [len(translator.as_read(ids)) for ids in translator.subwords(texts)]
    print(f"{name}: {len(texts)} sentences are translated", flush=True)
    return TextSet(name, texts, lengths, np.stack(chrf), np.stack(layers))


def without_accents(text: str) -> str:
    import unicodedata

    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


def show_rules(one: TextSet, tolerance: float) -> None:
    print(f"\n{one.name}, {len(one.texts)} sentences: changed by each margin")
    for place, margin in enumerate(MARGINS):
        shares = "  ".join(f"<{t:g}: {100 * (one.chrf_rn[place] < t).mean():.2f}%" for t in (70, 80, 85, 90, 100))
        print(f"  {margin:g}  {one.layers_rn[place].mean():.2f} layers  {shares}")
    assert tolerance


def show_splits(one: TextSet, keep: float, tolerance: float) -> None:
    violated = beyond = 0
    kept, layers = [], []
    count = len(one.texts)
    for split in range(SPLITS):
        order = np.array(random.Random(split).sample(range(count), count))
        half, rest = order[: count // 2], order[count // 2 :]
        rule = one.choose(half, keep, tolerance)
        changed = one.changed(rule, rest, tolerance)
        kept.append(1 - changed / len(rest))
        layers.append(float(one.layers_rn.max()) if rule is None else float(one.layers_rn[rule, rest].mean()))
        if kept[-1] < keep:
            violated += 1
            beyond += 1 - p_value(changed - 1, len(rest), keep) <= 0.05
    print(
        f"  {as_percent(keep)}: {violated} of {SPLITS} halves below it, {beyond} beyond their noise; kept "
        f"{100 * fmean(kept):.2f}% (least {100 * min(kept):.2f}%), {fmean(layers):.2f} layers"
    )


def show_draws(one: TextSet, keep: float, tolerance: float) -> None:
    rng, everything = np.random.default_rng(1), np.arange(len(one.texts))
    truth = [one.changed(place, everything, tolerance) / len(everything) for place in range(len(MARGINS))]
    rules = [one.choose(rng.integers(0, len(everything), SAMPLE), keep, tolerance) for _ in range(DRAWS)]
    broken = sum(rule is not None and truth[rule] > 1 - keep for rule in rules)
    print(f"       {broken} of {DRAWS} samples of {SAMPLE} give a rule that breaks it ({100 * broken / DRAWS:.1f}%)")


def show_times(translator: Translator, one: TextSet, tolerance: float) -> None:
    for keep in KEEPS:
        rule = one.choose(np.arange(len(one.texts)), keep, tolerance)
        if rule is None:
            print(f"  {as_percent(keep)}: no rule")
            continue
        depth = translator.menu.default
        exit_ = ExitRule("margin", MARGINS[rule], translator.menu.exits(depth.subnetwork))
        ratios = [
            _time_ratio(translator, one.texts, one.lengths, depth.name, exit_, RunOptions(batch_size=size))
            for size in (1, 32)
        ]
        print(
            f"  {as_percent(keep)} of all sentences: margin:{MARGINS[rule]:g}, {one.layers_rn[rule].mean():.2f} "
            f"layers, {ratios[0]:.2f} times the time one at a time, {ratios[1]:.2f} in batches of 32",
            flush=True,
        )


def show_elsewhere(translator: Translator, here: TextSet, others: Sequence[TextSet], tolerance: float) -> None:
    keep = 0.95
    rule = here.choose(np.arange(len(here.texts)), keep, tolerance)
    if rule is None:
        return
    values = [
        sentence_statistics(*each) for each in zip(here.texts, here.lengths, here.layers_rn[rule].tolist(), strict=True)
    ]
    text = {name: Spread.over([value[name] for value in values]) for name in values[0]}
    promise = Promise(
        keep, translator.menu.default.name, 1, 0.6, "native", True, MARGINS[rule], (1,), tolerance, 0.95,
        len(values), 0, 1.0, 1.0, 32, here.name, "", text,
    )  # fmt: skip
    print(f"\n{as_percent(keep)} calibrated on {here.name}, margin:{MARGINS[rule]:g}, elsewhere")
    for other in others:
        heard: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record, heard=heard: heard.append(record.getMessage())  # type: ignore[method-assign, misc]
        logging.getLogger("anydepth").addHandler(handler)
        check = TextCheck(promise)
        for each in zip(other.texts, other.lengths, other.layers_rn[rule].tolist(), strict=True):
            check.add(*each)
        check.finish()
        logging.getLogger("anydepth").removeHandler(handler)
        changed = other.changed(rule, np.arange(len(other.texts)), tolerance)
        said = heard[0].partition("cover it: ")[2].partition(";")[0] if heard else "no warning"
        print(f"  {other.name}: {100 * (1 - changed / len(other.texts)):.1f}% kept; {said}")


if __name__ == "__main__":
    main()
