"""The page of the studies, from what their runs have left: claims, arms, and comparisons as far as they are there."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from claims import DEEPEST, Claim, Comparison
from records import MOST_FALL, RunRecord, RunState, read_state, record_path

INTRODUCTION = """\
# Claims and studies

Made by `make studies` from `studies/claims.py`, where the arms, their settings and what counts as shown were written
down before any of them ran. `make studies` goes on with what is unfinished; it can be stopped at any time. What a run
made of the test set is kept in `studies/records`, so that a study can go on elsewhere without its models.

**A run has reached its plateau** if its validation loss, at the depth that is validated first, fell by less than
{fall:.0%} over the last quarter of its updates. Nothing counts that has not: such arms are marked *still falling*. A
run on the *unigram plateau* has learned no more than how often each subword occurs; it counts as not trained, as one
that *diverged* does.

A claim is **open** until all its arms have reached a plateau.
"""


def studies_page(claims: Sequence[Claim], out: Path, records: Path) -> str:
    parts = [INTRODUCTION.format(fall=MOST_FALL)]
    states = {claim.key: _arm_states(claim, out / claim.folder, records / claim.folder) for claim in claims}
    parts.append(_overview(claims, states))
    parts += ["\n".join(_claim(claim, states[claim.key], records / claim.folder)) for claim in claims]
    return "\n".join(part.strip() + "\n" for part in parts)


def _arm_states(claim: Claim, out: Path, records: Path) -> dict[str, list[RunState]]:
    def state(arm: str, seed: int) -> RunState:
        record = record_path(records, arm, seed)
        return RunRecord.load(record).state if record.exists() else read_state(out / arm / f"seed-{seed}")

    return {arm.name: [state(arm.name, seed) for seed in range(1, arm.seeds + 1)] for arm in claim.arms}


def _overview(claims: Sequence[Claim], states: dict[str, dict[str, list[RunState]]]) -> str:
    lines = ["| claim | the paper | state |", "| --- | --- | --- |"]
    for claim in claims:
        every = [state for arm in states[claim.key].values() for state in arm]
        done = sum(state.is_conclusive for state in every)
        at_plateau = f"**open**: {done} of {len(every)} runs are at a plateau"
        state = "see below" if done == len(every) else at_plateau
        lines.append(f"| [{claim.title}](#{claim.key}) | {claim.paper} | {state} |")
    return "\n".join(lines)


def _claim(claim: Claim, states: dict[str, list[RunState]], records: Path) -> Iterator[str]:
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
    for item in claim.work:
        if isinstance(item, Comparison):
            yield from _comparison(item.name, records / f"{item.name}.json")


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
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    at = "" if found["depth"] == DEEPEST else f" at {found['depth']}"
    yield f"`{name}`: test set{at}"
    yield ""
    yield "| arm | seeds | BLEU | difference | 95% interval |"
    yield "| --- | --- | --- | --- | --- |"
    for system in found["systems"]:
        one, bleu = system["difference"], system["bleu"]
        deviation = f" ± {stdev(bleu):.2f}" if len(bleu) > 1 else ""
        apart = "" if one is None else f"{one['bleu']:+.2f}"
        interval = "" if one is None else f"{one['low']:+.2f} to {one['high']:+.2f}"
        yield f"| `{system['arm']}` | {len(bleu)} | {fmean(bleu):.2f}{deviation} | {apart} | {interval} |"
    yield ""
