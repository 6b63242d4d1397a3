"""Find the boldest exit rule that keeps a promise, on sentences without references: `anydepth calibrate --keep`."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anydepth.engines.base import ExitRule
from anydepth.errors import UserError
from anydepth.evaluate.calibrate import spread
from anydepth.evaluate.experiment import RunOptions, now
from anydepth.evaluate.metrics import sentence_chrf
from anydepth.evaluate.report import Column, Report, Section, Text, tabulate
from anydepth.infer.translator import Hypothesis, Translator
from anydepth.progress import progress_bar
from anydepth.selectors.promise import (
    CONFIDENCE,
    STATISTICS,
    TOLERANCE,
    Promise,
    Spread,
    as_percent,
    p_value,
    parse_keep,
    sentence_statistics,
    sentences_needed,
)

MARGINS = (12.0, 10.0, 8.0, 7.0, 6.0, 5.0, 4.5, 4.0, 3.5, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5, 0.0)  # bolder and bolder
TIMED_SENTENCES = 200


@dataclass(frozen=True)
class TestedRule:
    """How many sentences a margin changed; the p-value of its changing more than the promise allows."""

    margin: float
    changed: int
    p_value: float
    layers: float

    @property
    def passed(self) -> bool:
        return self.p_value <= 1 - CONFIDENCE + 1e-12


@dataclass(frozen=True)
class PromiseResult:
    promise: Promise
    tested: tuple[TestedRule, ...]


def calibrate_promise(
    translator: Translator,
    sources: Sequence[str],
    keep: str | float,
    *,
    depth: str | None = None,
    tolerance: float = TOLERANCE,
    options: RunOptions | None = None,
) -> PromiseResult:
    """Test one rule after the other, from the most conservative on, until one fails; the last that passed is taken.

    Blank lines do not count. Times are of at most `TIMED_SENTENCES`, with and without the rule in
    turn.
    """
    options, share = options or RunOptions(), parse_keep(keep)
    if share == 1:
        raise UserError("100% needs no calibration: `translate --keep 100%` gives the texts of the full depth")
    if not isinstance(tolerance, int | float) or not 0 < tolerance <= 100:
        raise UserError(f"tolerance is {tolerance!r}, a chrF out of range: use more than 0, to 100")
    texts = [text for text in sources if text.strip()]
    _refuse_few(len(texts), share, options.source_name)
    sub = translator.menu[depth].subnetwork
    name, exits = translator.menu[depth].name, translator.menu.exits(sub)
    translator.translate([], depth=name, exit="margin:1", **options.search)  # refuses depths and engines without exits
    with progress_bar("calibrate", len(texts) * (1 + len(MARGINS))) as advance:
        search: Any = {"depth": name, **options.search, "scores": False, "progress": advance}
        full = _best(translator.hypotheses(texts, **search))
        outputs: dict[float | None, list[Hypothesis]] = {None: full}

        def counts() -> Iterator[tuple[float, int, float]]:
            for margin in MARGINS:
                found = _best(translator.hypotheses(texts, exit=ExitRule("margin", margin, exits), **search))
                outputs[margin] = found
                yield margin, count_changed(found, full, tolerance), mean_layers(found)

        tested = fixed_sequence(counts(), len(texts), share)
    best = next((rule for rule in reversed(tested) if rule.passed), None)
    chosen = outputs[None if best is None else best.margin]
    rule = None if best is None else ExitRule("margin", best.margin, exits)
    lengths = [len(translator.as_read(ids[: translator.longest_source])) for ids in translator.subwords(texts)]
    statistics = [
        sentence_statistics(text, length, one.decoder_layers)
        for text, length, one in zip(texts, lengths, chosen, strict=True)
        if length > 1
    ]
    promise = Promise(
        keep=share,
        depth=name,
        beam=options.beam,
        length_penalty=options.length_penalty,
        engine=translator.engine.name,
        shortlist=translator.engine.search_shortlist,
        margin=None if best is None else best.margin,
        exits=exits,
        tolerance=float(tolerance),
        confidence=CONFIDENCE,
        sentences=len(texts),
        changed=0 if best is None else best.changed,
        layers=mean_layers(chosen),
        time_ratio=1.0 if rule is None else _time_ratio(translator, texts, lengths, name, rule, options),
        batch_size=options.batch_size,
        source_file=Path(options.source_name).name,
        date=now(),
        text={key: Spread.over([one[key] for one in statistics]) for key in STATISTICS},
        pair=translator.pair,
    )
    return PromiseResult(promise, tuple(tested))


def fixed_sequence(counts: Iterable[tuple[float, int, float]], sentences: int, keep: float) -> list[TestedRule]:
    """From margins, the sentences that each changed and its layers, in the order of the test, up to the first that
    fails: so the chance that any that passed breaks the promise is at most 5%."""
    tested: list[TestedRule] = []
    for margin, changed, layers in counts:
        tested.append(TestedRule(margin, changed, p_value(changed, sentences, keep), layers))
        if not tested[-1].passed:
            break
    return tested


def promise_report(result: PromiseResult) -> Report:
    """The rules that were tested, and what was chosen."""
    one = result.promise
    columns = [
        Column("rule", lambda rule: f"margin:{rule.margin:g}"),
        Column("decoder layers", lambda rule: rule.layers, ".2f"),
        Column("changed", lambda rule: rule.changed, "d"),
        Column("kept", lambda rule: 100 * (1 - rule.changed / one.sentences), ".2f"),
        Column("p-value", lambda rule: rule.p_value, ".4f"),
        Column("", lambda rule: "*" if rule.margin == one.margin else ""),
    ]
    slower = "; that is no faster, so promise less, or try --batch-size 1" if one.time_ratio >= 1 else ""
    text = (
        f"no rule keeps {as_percent(one.keep)} on these {one.sentences:,} sentences: translate --keep "
        f"{as_percent(one.keep)} will run the full depth; promise less, or give more sentences"
        if one.margin is None
        else f"* translate --keep {as_percent(one.keep)} will run {one.depth} with {one.rule}: {one.time_ratio:.2f} "
        f"times the time of {one.depth} in batches of {one.batch_size}{slower}"
    )
    sections: list[Section] = [
        tabulate(columns, result.tested),
        Text(
            f"changed: sentences with a chrF below {one.tolerance:g} against {one.depth}; p-value: of more than "
            f"{as_percent(1 - one.keep)} such sentences in text like this; rules are tested until one is above "
            f"{1 - one.confidence:.2f}"
        ),
        Text(text),
    ]
    return Report("Rules that keep the promise", sections, asdict(result))


def count_changed(found: Sequence[Hypothesis], full: Sequence[Hypothesis], tolerance: float) -> int:
    pairs = [(a.text, b.text) for a, b in zip(found, full, strict=True) if a.text != b.text]
    if not pairs:
        return 0
    texts, others = zip(*pairs, strict=True)
    return sum(score < tolerance for score in sentence_chrf(texts, others))


def mean_layers(found: Sequence[Hypothesis]) -> float:
    """Of all tokens."""
    lengths = [len(one.tokens) + one.ended if one.depth else 0 for one in found]
    layers = sum(one.decoder_layers * length for one, length in zip(found, lengths, strict=True))
    return layers / max(1, sum(lengths))


def _best(found: list[list[Hypothesis]]) -> list[Hypothesis]:
    return [hypotheses[0] for hypotheses in found]


def _refuse_few(sentences: int, keep: float, name: str) -> None:
    needed = sentences_needed(keep)
    if sentences >= needed:
        return
    possible = math.floor(100 * (1 - CONFIDENCE) ** (1 / sentences)) if sentences else 0
    less = f", or promise less, such as --keep {possible}%" if possible >= 50 else ""
    raise UserError(
        f"a promise of {as_percent(keep)} needs at least {needed:,} sentences, and {name or 'the text'} has "
        f"{sentences:,}: give more{less}"
    )


def _time_ratio(
    translator: Translator,
    texts: Sequence[str],
    lengths: Sequence[int],
    depth: str,
    rule: ExitRule,
    options: RunOptions,
) -> float:
    """Of all batches: the sum of the least times of each with the rule, over that without it. On a CPU it is CPU time,
    which other programs disturb less."""
    clock = time.process_time if translator.device == "cpu" else time.perf_counter
    order = sorted(range(len(texts)), key=lambda i: -lengths[i])
    chosen = [texts[i] for i in spread(order, min(TIMED_SENTENCES, len(order)))]
    search: Any = options.search
    size, totals = search["batch_size"], [0.0, 0.0]
    for start in range(0, len(chosen), size):
        times: list[list[float]] = [[], []]
        for _ in range(options.repeats):
            for which, exit_ in enumerate((None, rule)):
                began = clock()
                translator.translate(chosen[start : start + size], depth=depth, exit=exit_, **search)
                times[which].append(clock() - began)
        totals = [total + min(each) for total, each in zip(totals, times, strict=True)]
    return totals[1] / totals[0]
