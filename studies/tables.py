"""The page of the studies, from what their runs have left: claims, arms, and comparisons as far as they are there."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from comparisons import read_comparison
from plan import ONLY, PlannedComparison, Step
from records import MOST_FALL, RunState
from step_tables import DIFFERENCE, difference, markdown, step_table
from study import Study

INTRODUCTION = """\
# Claims and studies

Made by `make studies` from `studies/claims.py`, where the arms, their settings and what counts as shown were written
down before any of them ran. `make studies` goes on with what is unfinished; it can be stopped at any time. What a run
made of the test set is kept in `studies/records`, so that a study can go on elsewhere without its models. A record
counts as long as the recipe, the changes to it, the test set and all that the run needed are the same.

**A run has reached its plateau** if its validation loss, at the depth that is validated first, fell by less than
{fall:.0%} over the last quarter of its updates. Nothing counts that has not: such arms are marked *still falling*. A
run on the *unigram plateau* has learned no more than how often each subword occurs; it counts as not trained, as one
that *diverged* does.

A claim is **open** until all its arms have reached a plateau. Differences are to the first row of a table. Their
intervals come from a bootstrap over seeds and sentences; means over depths draw the same sentences at all of them.
"""

States = dict[str, list[RunState]]


def studies_page(studies: Sequence[Study], cost: str) -> str:
    """`cost` is a sentence on how the hours were estimated."""
    states = {study.claim.key: _arm_states(study) for study in studies}
    parts = [INTRODUCTION.format(fall=MOST_FALL), cost, _overview(studies, states)]
    parts += ["\n".join(_claim(study, states[study.claim.key])) for study in studies]
    return "\n".join(part.strip() + "\n" for part in parts)


def _arm_states(study: Study) -> States:
    return {arm.name: [study.state(arm, seed) for seed in range(1, arm.seeds + 1)] for arm in study.claim.arms}


def _overview(studies: Sequence[Study], states: Mapping[str, States]) -> str:
    rows = []
    for claim in (study.claim for study in studies):
        every = [state for arm in states[claim.key].values() for state in arm]
        done = sum(state.is_conclusive for state in every)
        at_plateau = f"**open**: {done} of {len(every)} runs are at a plateau"
        state = "see below" if done == len(every) else at_plateau
        rows.append([f"[{claim.title}](#{claim.key})", claim.paper, f"{claim.hours:,}", state])
    return "\n".join(markdown(["claim", "the paper", "core hours", "state"], rows))


def _claim(study: Study, states: States) -> Iterator[str]:
    claim = study.claim
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
    header = ["arm", "seeds finished", "updates", "validation loss", "fell in the last quarter", "state"]
    begun = {name: runs for name, runs in states.items() if any(state.step for state in runs)}
    yield from markdown(header, [_row(name, runs) for name, runs in begun.items()])
    if waiting := [f"`{name}`" for name in states if name not in begun]:
        yield f"Not begun: {', '.join(waiting)}."
        yield ""
    for name, why in study.blocked().items():
        yield f"`{name}` cannot run: {why}."
        yield ""
    yield from _results(study)


def _row(name: str, runs: Sequence[RunState]) -> list[str]:
    done = [state for state in runs if state.is_over]
    losses = [state.nll for state in done if state.nll is not None]
    falls = [state.fall for state in done if state.fall is not None]
    spread = f" ± {stdev(losses):.3f}" if len(losses) > 1 else ""
    loss = f"{fmean(losses):.3f}{spread}" if losses else ""
    fall = f"{max(falls):.1%}" if falls else ""
    words = ", ".join(dict.fromkeys(state.words for state in runs))
    updates = max(state.step for state in runs)
    return [f"`{name}`", f"{len(done)} of {len(runs)}", f"{updates:,}", loss, fall, words]


def _results(study: Study) -> Iterator[str]:
    signatures = []
    for item in study.claim.work:
        if isinstance(item, PlannedComparison) and (compared := read_comparison(study, item)) is not None:
            signatures.append(compared["signature"])
            yield from _comparison(item, compared)
        elif isinstance(item, Step) and item.result and (found := study.result(item)) is not None:
            yield from step_table(item, found)
    for signature in dict.fromkeys(signatures):
        yield f"BLEU of the comparisons: `{signature}`."
        yield ""


def _comparison(comparison: PlannedComparison, found: Mapping[str, Any]) -> Iterator[str]:
    """BLEU on the test set, and the differences to the first system with their intervals."""
    depths = list(dict.fromkeys(depth for system in comparison.systems for _, depth in system.points))
    at = f"mean over {', '.join(depths)}" if len(comparison.systems[0].points) > 1 else f"at {depths[0]}"
    language = f", to {comparison.test.to}" if comparison.test else ""
    yield f"`{comparison.name}`: test set{'' if depths[0] == ONLY else f' {at}'}{language}"
    yield ""
    header = ["arm", "depth", "seeds", "BLEU", *DIFFERENCE]
    yield from markdown(header, [_compared(system) for system in found["systems"]])
    first = found["systems"][0]
    if first["bleu"] is None:
        yield f"There are no differences: all seeds of an arm of `{first['name']}`, the first row, diverged."
        yield ""


def _compared(system: Mapping[str, Any]) -> list[str]:
    finished = system["seeds"] - system["diverged"]
    seeds = f"{finished} of {system['seeds']}, {system['diverged']} diverged" if system["diverged"] else f"{finished}"
    deviation = "" if system["deviation"] is None else f" ± {system['deviation']:.2f}"
    bleu = "" if system["bleu"] is None else f"{system['bleu']:.2f}{deviation}"
    depths = system["depths"] if len(system["depths"]) <= 3 else [f"{len(system['depths'])} depths"]
    return [f"`{system['name']}`", ", ".join(depths), seeds, bleu, *difference(system["difference"])]
