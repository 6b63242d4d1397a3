"""How good each translation of each sentence is, at every depth of a model: made, in memory, in parts, as a folder.

table.json           format, depths, number of sentences, checksums of the two files below
scores.safetensors   chrf_nk, bleu_nks and, where it was asked for, likelihood_nk
sentences.jsonl      a line for each sentence: source, reference, its distinct outputs, which of them each depth gave
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU
from safetensors import SafetensorError
from safetensors.numpy import load_file

from anydepth.data.cleaning import digest
from anydepth.errors import UserError
from anydepth.evaluate.experiment import DepthRun, RunOptions, check_paired, make_runs
from anydepth.evaluate.metrics import ORDER, sentence_bleu_statistics, sentence_chrf
from anydepth.files import atomic_folder, file_sha256
from anydepth.infer.text_model import TooLongError
from anydepth.infer.translator import Translator
from anydepth.progress import progress_bar
from anydepth.tensors import write_tensors

FORMAT = 1
TABLE, SCORES, SENTENCES = "table.json", "scores.safetensors", "sentences.jsonl"
STATISTICS = 2 * ORDER + 2
FINE = 2**20
CHUNK = 1024  # sentences translated and scored together; memory does not grow with the corpus
SHARES = {"train": 0.6, "valid": 0.2, "test": 0.2}
DIGESTS = 2**64  # a digest is below this

Floats32 = NDArray[np.float32]
Ints = NDArray[np.int32]
Chosen = Sequence[int] | NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class EveryDepth:
    """A row for each of n sentences, a column for each of k depths.

    The depths are ordered as in Eq. 1 of Dabre, Rubino and Fujita 2020, fastest first: by decoder layers, then by
    encoder layers. `outputs` has the lines of the first depth, then those of the second, and so on. `bleu_nks` holds
    the sums that make up BLEU: 4 counts of correct n-grams, 4 of all n-grams, length of the output and the reference.
    `likelihood_nk` is the log-probability of the reference at each depth.
    """

    depths: tuple[str, ...]
    sources: tuple[str, ...]
    references: tuple[str, ...]
    outputs: tuple[tuple[str, ...], ...]
    chrf_nk: Floats32
    bleu_nks: Ints
    likelihood_nk: Floats32 | None = None

    def __len__(self) -> int:
        return len(self.sources)

    def best(self) -> NDArray[np.intp]:
        """The oracle: for each sentence the depth of the best chrF, the fastest of them where several are."""
        best: NDArray[np.intp] = np.argmax(self.chrf_nk, axis=1)
        return best

    def bleu(self, chosen_n: Chosen) -> float:
        """BLEU if each sentence is translated at the depth chosen for it."""
        return _bleu(self.bleu_nks[np.arange(len(self)), np.asarray(chosen_n)].sum(0, dtype=np.int64))

    def mixed_bleu(self, weights_k: Sequence[float] | NDArray[np.floating[Any]]) -> float:
        """BLEU if the depth of each sentence is drawn at random with these weights, which need not add up to 1."""
        weights = np.asarray(weights_k, dtype=np.float64)
        return _bleu(weights / weights.sum() @ self.bleu_nks.sum(0, dtype=np.int64))

    def chrf(self, chosen_n: Chosen) -> float:
        """Mean over the sentences if each is translated at the depth chosen for it."""
        return float(self.chrf_nk[np.arange(len(self)), np.asarray(chosen_n)].mean(dtype=np.float64))

    def save(self, folder: Path) -> None:
        """Write the folder in one step. A folder of something else is not replaced."""
        if folder.exists() and not (folder / TABLE).is_file() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{folder} exists and is not a folder of translations: give another folder")
        with atomic_folder(folder) as temporary:
            arrays = {"chrf_nk": torch.tensor(self.chrf_nk), "bleu_nks": torch.tensor(self.bleu_nks)}
            if self.likelihood_nk is not None:
                arrays["likelihood_nk"] = torch.tensor(self.likelihood_nk)
            write_tensors(temporary / SCORES, arrays)
            with open(temporary / SENTENCES, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(_lines(self))
            record = {
                "format": FORMAT,
                "depths": self.depths,
                "sentences": len(self),
                "files": {name: file_sha256(temporary / name) for name in (SCORES, SENTENCES)},
            }
            (temporary / TABLE).write_text(json.dumps(record, indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, folder: Path) -> "EveryDepth":
        if not (folder / TABLE).is_file():
            raise UserError(f"{folder} holds no translations at every depth: it has no {TABLE}")
        try:
            return _read(folder)
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, SafetensorError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"{folder} is damaged ({reason}): delete it and translate again") from error


def fastest_first(members: Sequence[Translator], label: str = "") -> list[DepthRun]:
    """The depths of a model, or of all the members of a family, in the order of Eq. 1."""
    runs = make_runs({label or "the family": tuple(members)}, None)
    return sorted(runs, key=lambda run: run.layers[::-1])


def translate_every_depth(
    members: Sequence[Translator],
    sources: Sequence[str],
    references: Sequence[str],
    options: RunOptions | None = None,
    label: str = "",
) -> EveryDepth:
    """Translate every sentence at every depth and score it. Several members are a family; its depths are joined."""
    if not members:
        raise UserError("give at least one model to evaluate")
    check_paired(sources, references)
    depths = len(fastest_first(members, label))
    with progress_bar(what_is_done(depths, label), len(sources) * depths) as advance:
        return score_every_depth(members, sources, references, (options or RunOptions()).search, advance, label)


def what_is_done(depths: int, label: str) -> str:
    """As a bar says it."""
    return f"{label + ': ' if label else ''}translations at {depths} depth{'s' if depths > 1 else ''}"


def score_every_depth(
    members: Sequence[Translator],
    sources: Sequence[str],
    references: Sequence[str],
    options: dict[str, Any],
    advance: Callable[[int], None],
    label: str = "",
) -> EveryDepth:
    """The same; `advance` is called with the number of translations that have become ready."""
    depths = tuple(run.entry.name for run in fastest_first(members, label))
    outputs: dict[str, list[str]] = {depth: [] for depth in depths}
    scores = []
    for start in range(0, len(sources), CHUNK):
        rows = slice(start, start + CHUNK)
        found: dict[str, list[str]] = {}
        for member in members:
            found |= _translate(member, sources, rows, options, advance)
        scores.append(_scores([found[depth] for depth in depths], references[rows]))
        for depth in depths:
            outputs[depth] += found[depth]
    chrf_nk, bleu_nks = (np.concatenate(parts) for parts in zip(*scores, strict=True))
    lines = tuple(tuple(outputs[depth]) for depth in depths)
    return EveryDepth(depths, tuple(sources), tuple(references), lines, chrf_nk, bleu_nks)


def _translate(
    member: Translator, sources: Sequence[str], rows: slice, options: dict[str, Any], advance: Callable[[int], None]
) -> dict[str, list[str]]:
    """The best translations at each of its depths."""
    depths = len(member.menu)
    try:
        found = member.every_depth(
            sources[rows], scores=False, progress=lambda count: advance(count * depths), **options
        )
    except TooLongError as error:
        raise TooLongError(rows.start + error.number, error.length, error.limit) from error
    return {depth: [best.text for best, *_ in lists] for depth, lists in found.items()}


def _scores(columns: Sequence[Sequence[str]], references: Sequence[str]) -> tuple[Floats32, Ints]:
    """Depths agree on most sentences, and scoring takes long: each distinct output is scored once."""
    pairs: dict[tuple[int, str], int] = {}
    place_nk = [
        [pairs.setdefault((row, output), len(pairs)) for output in outputs]
        for row, outputs in enumerate(zip(*columns, strict=True))
    ]
    distinct = [output for _, output in pairs]
    their_references = [references[row] for row, _ in pairs]
    chrf = np.array(sentence_chrf(distinct, their_references), np.float32)
    return chrf[place_nk], sentence_bleu_statistics(distinct, their_references)[place_nk]


def take_rows(table: EveryDepth, rows: Sequence[int] | NDArray[np.integer[Any]]) -> EveryDepth:
    """The table of these sentences alone, in this order."""
    chosen = np.asarray(rows, dtype=np.intp)
    texts = [tuple(lines[row] for row in chosen) for lines in (table.sources, table.references, *table.outputs)]
    arrays: list[Any] = [
        None if one is None else one[chosen] for one in (table.chrf_nk, table.bleu_nks, table.likelihood_nk)
    ]
    return EveryDepth(table.depths, texts[0], texts[1], tuple(texts[2:]), *arrays)


def join_tables(tables: Sequence[EveryDepth]) -> EveryDepth:
    """One below the other; all have the same depths."""
    outputs = zip(*(table.outputs for table in tables), strict=True)
    likelihoods = [table.likelihood_nk for table in tables if table.likelihood_nk is not None]
    return EveryDepth(
        tables[0].depths,
        tuple(text for table in tables for text in table.sources),
        tuple(text for table in tables for text in table.references),
        tuple(tuple(line for lines in pieces for line in lines) for pieces in outputs),
        np.concatenate([table.chrf_nk for table in tables]),
        np.concatenate([table.bleu_nks for table in tables]),
        None if len(likelihoods) < len(tables) else np.concatenate(likelihoods),
    )


def split_by_source(table: EveryDepth, seed: int) -> dict[str, EveryDepth]:
    return {name: take_rows(table, rows) for name, rows in split_rows(table.sources, seed).items()}


def split_rows(sources: Sequence[str], seed: int) -> dict[str, NDArray[np.intp]]:
    """About 60, 20 and 20 %. Where a sentence goes depends on its source and the seed, and on nothing else."""
    place_n = np.array([digest(source, b"%d" % seed) / DIGESTS for source in sources])
    borders = np.cumsum([0.0, *SHARES.values()])
    borders[-1] = np.inf
    parts = zip(SHARES, borders, borders[1:], strict=False)
    return {name: np.flatnonzero((low <= place_n) & (place_n < high)) for name, low, high in parts}


def _bleu(sums_s: NDArray[Any]) -> float:
    """In the settings of metrics.score."""
    correct, total, lengths = np.split(sums_s, [ORDER, 2 * ORDER])
    # sacreBLEU insists on whole lengths, which those of a mixture are not. Only their ratio counts.
    output_length, reference_length = (round(FINE * length) for length in lengths.tolist())
    score = BLEU.compute_bleu(correct.tolist(), total.tolist(), output_length, reference_length, smooth_method="exp")
    return float(score.score)


def _lines(table: EveryDepth) -> Iterator[str]:
    rows = zip(table.sources, table.references, zip(*table.outputs, strict=True), strict=True)
    for source, reference, outputs in rows:
        places = {output: place for place, output in enumerate(dict.fromkeys(outputs))}
        row = {
            "source": source,
            "reference": reference,
            "outputs": list(places),
            "of_depths": [places[output] for output in outputs],
        }
        yield json.dumps(row, ensure_ascii=False) + "\n"


def _read(folder: Path) -> EveryDepth:
    record = json.loads((folder / TABLE).read_text("utf-8"))
    if record["format"] > FORMAT:
        raise UserError(f"{folder} was written by a newer anydepth: upgrade anydepth to read it")
    for name in (SCORES, SENTENCES):
        if file_sha256(folder / name) != record["files"][name]:
            raise ValueError(f"{name} is not what was saved")
    rows = [json.loads(line) for line in (folder / SENTENCES).read_text("utf-8").split("\n") if line]
    outputs = [[row["outputs"][place] for place in row["of_depths"]] for row in rows]
    arrays = load_file(folder / SCORES)
    size = record["sentences"], len(record["depths"])
    expected = {"chrf_nk": (np.float32, size), "bleu_nks": (np.int32, (*size, STATISTICS))}
    if "likelihood_nk" in arrays:
        expected["likelihood_nk"] = (np.float32, size)
    for name, (kind, shape) in expected.items():
        if arrays[name].dtype != kind or arrays[name].shape != shape:
            raise ValueError(f"{SCORES} does not fit {TABLE}")
    if (len(rows), len(outputs[0])) != size:
        raise ValueError(f"{SENTENCES} does not fit {TABLE}")
    return EveryDepth(
        depths=tuple(record["depths"]),
        sources=tuple(row["source"] for row in rows),
        references=tuple(row["reference"] for row in rows),
        outputs=tuple(zip(*outputs, strict=True)),
        chrf_nk=arrays["chrf_nk"],
        bleu_nks=arrays["bleu_nks"],
        likelihood_nk=arrays.get("likelihood_nk"),
    )
