"""The comparisons of a study: BLEU of systems on the test set, and their differences to the first with intervals."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from plan import PlannedComparison, PlannedSystem
from records import RunRecord, digest
from study import Study, outputs_key

from anydepth.data.corpus import read_lines
from anydepth.evaluate.metrics import score
from anydepth.evaluate.significance import paired_bootstrap_of_means
from anydepth.files import file_sha256, write_atomically


@dataclass(frozen=True)
class Compared:
    """A system whose arms have all ended. `ways` has the outputs of each arm, by seed and depth, of the seeds that did
    not diverge; `depths` are those that were run."""

    name: str
    ways: Sequence[Sequence[Sequence[Sequence[str]]]]
    seeds: int
    diverged: int
    depths: Sequence[str]

    @property
    def has_outputs(self) -> bool:
        return all(self.ways)

    def figures(self, references: Sequence[str]) -> dict[str, Any]:
        """BLEU is the mean over arms and depths; the deviation, over seeds, is known of one arm."""
        arms = [[fmean(score(lines, references).bleu for lines in depths) for depths in seeds] for seeds in self.ways]
        sizes = [len(seeds[0]) if seeds else 0 for seeds in self.ways]
        weighted = [fmean(bleu) * size for bleu, size in zip(arms, sizes, strict=True)] if self.has_outputs else []
        return {
            **{name: getattr(self, name) for name in ("name", "seeds", "diverged", "depths")},
            "bleu": sum(weighted) / sum(sizes) if weighted else None,
            "deviation": stdev(arms[0]) if len(arms) == 1 and len(arms[0]) > 1 else None,
        }


def read_comparison(study: Study, comparison: PlannedComparison) -> dict[str, Any] | None:
    """What is kept, if it is of the outputs of today; where the references are not at hand they are trusted."""
    path = _path(study, comparison)
    kept: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    compared = _gather(study, comparison)
    is_current = compared is not None and kept.get("made_by") == _digest(compared)
    return kept if is_current and _checksum(study, comparison) in (kept["references"], "") else None


def compare(study: Study) -> None:
    """The comparisons of arms that have all ended, again if their outputs are others than before."""
    for one in study.claim.comparisons:
        compared = _gather(study, one)
        if compared is not None and _checksum(study, one) and read_comparison(study, one) is None:
            references = list(read_lines(_references(study, one)))
            found = _compare(compared, references)
            made_by = {"made_by": _digest(compared), "references": _checksum(study, one)}
            write_atomically(_path(study, one), json.dumps({**made_by, **found}, indent=1) + "\n")


def _compare(compared: Sequence[Compared], references: Sequence[str]) -> dict[str, Any]:
    first, *others = (one.figures(references) for one in compared)
    with_outputs = [one for one in compared[1:] if one.has_outputs]
    differences = {}
    if compared[0].has_outputs and with_outputs:
        systems = [compared[0].ways, *(one.ways for one in with_outputs)]
        found = paired_bootstrap_of_means(systems, references, over_seeds=True)
        differences = {one.name: asdict(apart) for one, apart in zip(with_outputs, found, strict=True)}
    rows = [{**row, "difference": differences.get(row["name"])} for row in (first, *others)]
    return {"signature": score(references[:1], references[:1]).bleu_signature, "systems": rows}


def _gather(study: Study, comparison: PlannedComparison) -> list[Compared] | None:
    """The systems whose arms have all ended; None if these are not the first and another."""
    found = [_read_system(study, comparison, system) for system in comparison.systems]
    compared = [one for one in found if one is not None]
    return compared if found[0] is not None and len(compared) > 1 else None


def _read_system(study: Study, comparison: PlannedComparison, system: PlannedSystem) -> Compared | None:
    arms = [arm for arm in study.claim.arms if arm.name in system.arms]
    records = [[study.record(arm, seed) for seed in range(1, arm.seeds + 1)] for arm in arms]
    ended = [[one for one in seeds if one is not None] for seeds in records]
    if ended != records:
        return None
    test, ways, depths = study.claim.find_test(comparison), [], []
    for arm, seeds in zip(arms, ended, strict=True):
        keys = [outputs_key(test, depth) for depth in system.depths(arm.name)]
        outputs = [[one.outputs[key] for key in keys] for one in seeds if one.state.has_model]
        ways.append([[one.lines for one in model] for model in outputs])
        depths += [one.depth for model in outputs for one in model]
    every: list[RunRecord] = [one for seeds in ended for one in seeds]
    diverged = sum(not one.state.has_model for one in every)
    return Compared(system.name, ways, len(every), diverged, list(dict.fromkeys(depths)))


def _digest(compared: Sequence[Compared]) -> str:
    return digest([asdict(one) for one in compared])


def _references(study: Study, comparison: PlannedComparison) -> Path:
    return Path(study.folders.fill(study.claim.find_test(comparison).reference, study.claim))


def _checksum(study: Study, comparison: PlannedComparison) -> str:
    path = _references(study, comparison)
    return file_sha256(path) if path.is_file() else ""


def _path(study: Study, comparison: PlannedComparison) -> Path:
    return study.folders.kept(study.claim) / f"{comparison.name}.json"
