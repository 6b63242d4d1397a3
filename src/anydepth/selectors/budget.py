"""A time budget: the best depth, or trade-off of the learned selector, whose expected time is within it."""

import logging
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from anydepth.data.corpus import SAMPLE_FILE
from anydepth.depth import DepthMenu
from anydepth.device import has_gpu
from anydepth.errors import UserError
from anydepth.selectors.calibration import (
    Calibration,
    Cost,
    LengthCost,
    TimedModel,
    find_for,
    of_machine,
)

if TYPE_CHECKING:  # it needs torch
    from anydepth.selectors.learned import LearnedSelector

HOW_TO_WRITE = "write a time per sentence such as 20ms or 0.02s, or a speed such as 50/s"
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
DEFAULT_BATCH_SIZE = 32
FEW = 16  # sentences
log = logging.getLogger(__name__)


def parse_budget(text: str) -> float:
    """Seconds per sentence, from 20ms, 0.02s, 50/s or 50 sentences/s."""
    if not isinstance(text, str):
        raise UserError(f"{text!r} is not a budget: {HOW_TO_WRITE}")
    if re.fullmatch(NUMBER, text.strip(), re.IGNORECASE):
        raise UserError(f"the budget {text.strip()} has no unit: write {text.strip()}ms or {text.strip()}/s")
    read = re.fullmatch(rf"({NUMBER})\s*(ms|s|(?:sentences?\s*)?/\s*s)", text.strip(), re.IGNORECASE)
    if read is None:
        raise UserError(f"{text!r} is not a budget: {HOW_TO_WRITE}")
    value, unit = float(read[1]), read[2].lower()
    seconds = value / 1000 if unit == "ms" else value if unit == "s" else 1 / value if value else 0.0
    if not 0 < seconds < math.inf:
        raise UserError(f"a budget of {text.strip()} is not a positive time: give more than 0, such as 20ms or 50/s")
    return seconds


def best_within(
    costs: Mapping[str, Cost], quality: Mapping[str, float], budget: float, lengths: Sequence[int]
) -> tuple[str, float]:
    """The best depth whose expected time is within the budget, or else the fastest; with that time, per sentence."""
    expected = {name: cost.seconds(lengths) for name, cost in costs.items()}
    fitting = [name for name, seconds in expected.items() if seconds <= budget]
    if fitting:
        chosen = max(fitting, key=lambda name: (quality[name], -expected[name]))
    else:
        chosen = min(expected, key=lambda name: (expected[name], -quality[name]))
    return chosen, expected[chosen]


class BudgetSelector:
    """All sources of a call get one depth: the best in BLEU whose mean expected time over them is within the budget.

    A few sentences, typed in or the last of a file, say little about how long sentences are: the `usual_lengths`, where
    known, then count instead. `measured_on` names the test set of the qualities, `metric` what they are and `unit` what
    a source is, for messages.
    """

    def __init__(
        self,
        costs: Mapping[str, Cost],
        quality: Mapping[str, float],
        budget: float,
        *,
        measured_on: str = "",
        usual_lengths: Sequence[int] = (),
        metric: str = "BLEU",
        unit: str = "sentence",
    ) -> None:
        if not costs or set(costs) != set(quality):
            raise UserError("a budget needs cost and quality for the same depths, at least one")
        self.costs, self.quality, self.budget = dict(costs), dict(quality), budget
        self.measured_on, self.usual_lengths = measured_on, usual_lengths
        self.metric, self.unit = metric, unit
        self.has_begun = False  # once begun, nothing is refused any more
        self.depth: str | None = None
        self.expected = math.nan  # seconds per sentence, once it has chosen
        self._has_warned = False

    def __repr__(self) -> str:
        chosen = "" if self.depth is None else f", depth {self.depth}"
        return f"{type(self).__name__}({in_ms(self.budget)} ms per {self.unit}, of {', '.join(self.costs)}{chosen})"

    def choose(self, sources: Sequence[Sequence[int]]) -> list[str]:
        """A menu entry for each source, token ids that end in EOS. Empty ones take no time and do not count."""
        lengths: Sequence[int] = [len(source) for source in sources if len(source) > 1]
        if not lengths:
            return [self.depth or next(iter(self.costs))] * len(sources)
        if len(lengths) < FEW and self.usual_lengths:
            lengths = self.usual_lengths
        chosen, seconds = best_within(self.costs, self.quality, self.budget, lengths)
        if seconds > self.budget:
            self._refuse_or_warn(chosen, seconds, len(sources))
        elif chosen != self.depth:
            on = f" on {self.measured_on}" if self.measured_on else ""
            time = f"expects {in_ms(seconds)} ms per {self.unit} within {in_ms(self.budget)} ms"
            log.info(f"depth {chosen}: {time}, {self.metric} {self.quality[chosen]:.1f}{on}")
        self.depth, self.expected, self.has_begun = chosen, seconds, True
        return [chosen] * len(sources)

    def _refuse_or_warn(self, fastest: str, seconds: float, many: int) -> None:
        """A budget that the first sentences cannot meet is a mistake; within a stream it is a few long sentences."""
        if not self.has_begun:
            raise UserError(
                f"a budget of {in_ms(self.budget)} ms per {self.unit} is below the fastest depth, {fastest}, which "
                f"takes {in_ms(seconds)} ms per {self.unit}: give a budget of at least "
                f"{in_ms(seconds, round_up=True)}ms"
            )
        if not self._has_warned:
            log.info(
                f"depth {fastest}, the fastest: expects {in_ms(seconds)} ms per {self.unit}, more than the budget of "
                f"{in_ms(self.budget)} ms, for the next {many:,} {self.unit}s"
            )
        self._has_warned = True


class AutoWithinBudget:
    """Of the learned selector's measured trade-offs, the best whose expected time is within the budget.

    Where none fits, `fixed` chooses one depth for all, or refuses the budget.
    """

    def __init__(self, selector: "LearnedSelector", fixed: BudgetSelector) -> None:
        self.selector, self.fixed = selector, fixed
        self._by_quality = sorted(selector.points, key=lambda point: (-point.bleu, point.cost))
        self._last_threshold: float | None = None

    def choose(self, sources: Sequence[Sequence[int]]) -> list[str]:
        import numpy as np  # the selector needs it, a budget alone does not

        scores_nk = self.selector.scores(sources)
        lengths_n = np.array([len(source) for source in sources])
        for point in self._by_quality:
            picked_n = self.selector.pick(scores_nk, lengths_n, point.threshold)
            names = [self.selector.depths[k] for k in picked_n]
            expected = self._expected(names, lengths_n.tolist())
            if expected is not None and expected <= self.fixed.budget:
                if point.threshold != self._last_threshold:
                    time = f"expects {in_ms(expected)} ms per sentence within {in_ms(self.fixed.budget)} ms"
                    log.info(f"depth auto, threshold {point.threshold:.3g}: {time}")
                self._last_threshold, self.fixed.has_begun = point.threshold, True
                return names
        if self._last_threshold is not None or not self.fixed.has_begun:
            log.info("no trade-off of the selector is within the budget: one depth for all instead")
            self._last_threshold = None
        return self.fixed.choose(sources)

    def _expected(self, names: list[str], lengths: list[int]) -> float | None:
        """Mean seconds per sentence, those of one depth in batches of their own; None if a depth was never timed."""
        groups: dict[str, list[int]] = {}
        for name, length in zip(names, lengths, strict=True):
            groups.setdefault(name, []).append(length)
        if not groups.keys() <= self.fixed.costs.keys():
            return None
        return sum(len(group) * self.fixed.costs[name].seconds(group) for name, group in groups.items()) / len(lengths)


def within_budget(
    translator: TimedModel, budget: str, *, beam: int = 1, batch_size: int = DEFAULT_BATCH_SIZE
) -> BudgetSelector:
    """A selector for `budget`, such as "20ms", by what was measured on this machine or, failing that, by a sweep."""
    seconds = parse_budget(budget)
    calibration = find_for(translator, beam)
    if calibration is not None and set(calibration.depths) & set(translator.menu.names):
        return _by_calibration(calibration, translator.menu, seconds, batch_size)
    engine = translator.engine.name
    command = _command(translator, beam, batch_size) + _other_conditions(translator)
    swept = [entry for entry in translator.menu if "seconds_per_sentence" in entry.cost and "bleu" in entry.quality]
    if not swept:
        raise UserError(f"a budget needs the time of each depth, and none has been measured yet: run {command}")
    on = translator.menu.measured_on
    if (on.get("batch_size", batch_size) == 1) != (batch_size == 1):
        raise UserError(
            f"a budget needs times for batches of {batch_size}, and this model was timed in batches of "
            f"{on['batch_size']}: run {command}"
        )
    swept_on = str(on.get("engine", "torch"))
    # PyTorch is the slowest on a CPU: other engines stay within its times.
    bound = swept_on == "torch" and str(on.get("device", "cpu")) == translator.device == "cpu"
    if swept_on != engine and not bound:
        raise UserError(
            f"a budget needs times of the engine {engine}, and this model was timed on {swept_on}: run {command}"
        )
    slower = f", and {engine} is faster, so a deeper one may fit" if swept_on != engine else ""
    log.info(
        f"the budget uses the times of a sweep{_conditions_of_sweep(on)}, perhaps on another machine{slower}; "
        f"to measure this machine run {command}"
    )
    return BudgetSelector(
        {entry.name: LengthCost(entry.cost["seconds_per_sentence"], 0.0) for entry in swept},
        {entry.name: entry.quality["bleu"] for entry in swept},
        seconds,
        measured_on=str(on.get("reference", "")),
    )


def _by_calibration(calibration: Calibration, menu: DepthMenu, seconds: float, batch_size: int) -> BudgetSelector:
    calibrated = calibration.conditions.batch_size
    if batch_size > 1 and not calibrated / 2 <= batch_size <= 2 * calibrated:
        log.info(
            f"the calibration was measured with batches of {calibrated}, not {batch_size}, so the time is an estimate; "
            f"for an exact one run `anydepth calibrate --batch-size {batch_size}`"
        )
    known = [name for name in menu.names if name in calibration.depths]
    costs = calibration.costs(batch_size)
    return BudgetSelector(
        {name: costs[name] for name in known},
        {name: calibration.depths[name].quality["bleu"] for name in known},
        seconds,
        measured_on=calibration.conditions.reference_file,
        usual_lengths=[length for length, count in calibration.lengths.items() for _ in range(count)],
    )


def _command(translator: TimedModel, beam: int, batch_size: int) -> str:
    """How to calibrate for these conditions."""
    model = "MODEL" if translator.folder is None else shlex.quote(str(translator.folder))
    has_sample = translator.folder is not None and (translator.folder / SAMPLE_FILE).is_file()
    texts = "" if has_sample else " --source FILE --reference FILE"
    command = f"anydepth calibrate {model}{texts} --threads {translator.engine.threads}"
    if translator.pair is not None:
        command += " --from {} --to {}".format(*map(shlex.quote, translator.languages))
    if beam != 1:
        command += f" --beam {beam}"
    if batch_size not in (1, DEFAULT_BATCH_SIZE):
        command += f" --batch-size {batch_size}"
    engine, _, quantization = translator.engine.name.partition(" ")
    command += f" --engine {engine}" + (f" --quantize {quantization}" if quantization else "")
    if translator.device == "cpu" and has_gpu():
        command += " --device cpu"
    return f"`{command}`"


def _other_conditions(translator: TimedModel) -> str:
    calibrated = of_machine(translator.folder, translator.fingerprint)
    there = next((one.conditions for one in calibrated if one.conditions.pair == translator.pair), None)
    if there is None:
        return ""
    of = f"beam {there.beam}, {there.threads} threads, {there.device}, {there.engine}"
    return f" (calibrated on this machine: {of})"


def _conditions_of_sweep(on: dict[str, object]) -> str:
    names = {"engine": "", "device": "", "threads": "threads ", "beam": "beam ", "batch_size": "batches of "}
    parts = [f"{words}{on[key]}" for key, words in names.items() if key in on]
    return f" ({', '.join(parts)})" if parts else ""


def in_ms(seconds: float, round_up: bool = False) -> str:
    """Milliseconds in three figures or more; rounded up, they are never less than `seconds`."""
    value = seconds * 1000
    places = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    if round_up:
        value = math.ceil(value * 10**places) / 10**places
        return f"{value:.{places}f}"
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
