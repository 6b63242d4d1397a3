"""The page of the studies, from what their runs have left: claims, arms, and comparisons as far as they are there."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from claims import Arm, Claim, Step

from anydepth.evaluate.training_run import FINISHED, TrainingRun, read_log

LAST = 0.25  # of the updates
MOST_FALL = 0.02  # of the validation loss: an arm that still falls faster has not reached a plateau
INTRODUCTION = """\
# Claims and studies

Made by `make studies` from `studies/claims.py`, where the arms, their settings and what counts as shown were written
down before any of them ran. `make studies` goes on with what is unfinished; it can be stopped at any time.

**A run has reached its plateau** if its validation loss, at the depth that is validated first, fell by less than
{fall:.0%} over the last quarter of its updates. Nothing counts that has not: such arms are marked *still falling*. A
run on the *unigram plateau* has learned no more than how often each subword occurs; it counts as not trained, as one
that *diverged* does.

A claim is **open** until all its arms have reached a plateau.
"""


@dataclass(frozen=True)
class RunState:
    """How far a run has come. `fall` is the share of the validation loss that it lost in the last quarter."""

    step: int = 0
    nll: float | None = None
    fall: float | None = None
    finished: bool = False
    diverged: bool = False
    on_unigram_plateau: bool = False

    @property
    def is_conclusive(self) -> bool:
        if self.diverged or (self.finished and self.on_unigram_plateau):
            return True
        return self.finished and self.fall is not None and self.fall < MOST_FALL

    @property
    def words(self) -> str:
        if self.diverged:
            return "diverged"
        if not self.finished:
            return f"at update {self.step:,}" if self.step else "not begun"
        if self.on_unigram_plateau:
            return "unigram plateau"
        return "plateau" if self.is_conclusive else "still falling"


def read_state(run: Path) -> RunState:
    found = TrainingRun.of(run.name, read_log(run))
    curves = found.validation() if found.train and found.valid else {}
    curve = next(iter(curves.values()), None)
    record = json.loads((run / FINISHED).read_text("utf-8")) if (run / FINISHED).exists() else {}
    step = found.end if found.train else 0
    return RunState(
        step=step,
        nll=curve.values[-1] if curve and curve.values else None,
        fall=last_fall(curve.steps, curve.values) if curve else None,
        finished=bool(record),
        diverged=found.diverged is not None,
        on_unigram_plateau=bool(record.get("plateau")),
    )


def last_fall(steps: Sequence[int], values: Sequence[float]) -> float | None:
    """The share that was lost from the last validation before the last quarter to the end; None if there is none."""
    before = [value for step, value in zip(steps, values, strict=True) if step <= (1 - LAST) * steps[-1]]
    return (before[-1] - values[-1]) / before[-1] if before else None


def studies_page(claims: Sequence[Claim], out: Path) -> str:
    parts = [INTRODUCTION.format(fall=MOST_FALL)]
    states = {claim.key: _arm_states(claim, out) for claim in claims}
    parts.append(_overview(claims, states))
    parts += ["\n".join(_claim(claim, states[claim.key], out)) for claim in claims]
    return "\n".join(part.strip() + "\n" for part in parts)


def _arm_states(claim: Claim, out: Path) -> dict[str, list[RunState]]:
    arms = [item for item in claim.work if isinstance(item, Arm)]
    folders = {arm.name: [out / claim.key / arm.name / f"seed-{n}" for n in range(1, arm.seeds + 1)] for arm in arms}
    return {name: [read_state(run) for run in runs] for name, runs in folders.items()}


def _overview(claims: Sequence[Claim], states: dict[str, dict[str, list[RunState]]]) -> str:
    lines = ["| claim | the paper | state |", "| --- | --- | --- |"]
    for claim in claims:
        every = [state for arm in states[claim.key].values() for state in arm]
        done = sum(state.is_conclusive for state in every)
        at_plateau = f"**open**: {done} of {len(every)} runs are at a plateau"
        state = "see below" if done == len(every) else at_plateau
        lines.append(f"| [{claim.title}](#{claim.key}) | {claim.paper} | {state} |")
    return "\n".join(lines)


def _claim(claim: Claim, states: dict[str, list[RunState]], out: Path) -> Iterator[str]:
    yield f"## {claim.title} {{#{claim.key}}}"
    yield ""
    yield f"- The paper: {claim.paper}."
    yield f"- Here: {claim.setting}."
    yield f"- Counts as shown: {claim.shown}"
    yield ""
    if not any(state.step for arm in states.values() for state in arm):
        yield f"No arm has begun; there are {len(states)}: {', '.join(f'`{name}`' for name in states)}."
        yield ""
        return
    yield "| arm | seeds finished | updates | validation loss | fell in the last quarter | state |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, runs in states.items():
        if any(state.step for state in runs):
            yield _row(name, runs)
    waiting = [f"`{name}`" for name, runs in states.items() if not any(state.step for state in runs)]
    yield ""
    if waiting:
        yield f"Not begun: {', '.join(waiting)}."
        yield ""
    for step in claim.work:
        if isinstance(step, Step) and step.makes.endswith("compare.json"):
            yield from _comparison(step.name, Path(step.makes.replace("{out}", str(out / claim.key))))


def _row(name: str, runs: Sequence[RunState]) -> str:
    done = [state for state in runs if state.finished or state.diverged]
    losses = [state.nll for state in done if state.nll is not None]
    falls = [state.fall for state in done if state.fall is not None]
    spread = f" ± {stdev(losses):.3f}" if len(losses) > 1 else ""
    loss = f"{fmean(losses):.3f}{spread}" if losses else ""
    fall = f"{max(falls):.1%}" if falls else ""
    words = ", ".join(dict.fromkeys(state.words for state in runs))
    updates = max(state.step for state in runs)
    return f"| `{name}` | {len(done)} of {len(runs)} | {updates:,} | {loss} | {fall} | {words} |"


def _comparison(name: str, path: Path) -> Iterator[str]:
    """BLEU on the test set, and the differences to the first system with their intervals."""
    if not path.exists():
        return
    systems: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["systems"]
    yield f"`{name}`, test set:"
    yield ""
    yield "| system | BLEU | difference | 95% interval |"
    yield "| --- | --- | --- | --- |"
    for system in systems:
        one = system["difference"]
        deviation = "" if system["sd_bleu"] is None else f" ± {system['sd_bleu']:.2f}"
        apart = "" if one is None else f"{one['bleu']:+.2f}"
        interval = "" if one is None else f"{one['low']:+.2f} to {one['high']:+.2f}"
        yield f"| {system['label']} | {system['mean_bleu']:.2f}{deviation} | {apart} | {interval} |"
    yield ""
