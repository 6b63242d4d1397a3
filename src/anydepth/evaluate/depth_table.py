"""How good each translation of each sentence is, at every depth of a model, in memory and as a folder.

table.json           format, depths, number of sentences, checksums of the two files below
scores.safetensors   chrf_nk, bleu_nks and, where it was asked for, likelihood_nk
sentences.jsonl      a line for each sentence: source, reference, its distinct outputs, which of them each depth gave
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU
from safetensors import SafetensorError
from safetensors.numpy import load_file

from anydepth.errors import UserError
from anydepth.evaluate.metrics import ORDER
from anydepth.files import atomic_folder, sha256_of
from anydepth.tensors import write_tensors

FORMAT = 1
TABLE, SCORES, SENTENCES = "table.json", "scores.safetensors", "sentences.jsonl"
STATISTICS = 2 * ORDER + 2
FINE = 2**20

Floats = NDArray[np.float32]
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
    chrf_nk: Floats
    bleu_nks: Ints
    likelihood_nk: Floats | None = None

    def __len__(self) -> int:
        return len(self.sources)

    def best(self) -> NDArray[np.intp]:
        """The oracle: for each sentence the depth of the best chrF, the fastest of them where several are."""
        best: NDArray[np.intp] = np.argmax(self.chrf_nk, axis=1)
        return best

    def bleu(self, chosen_n: Chosen) -> float:
        """BLEU if each sentence is translated at the depth chosen for it."""
        return _bleu(self.bleu_nks[np.arange(len(self)), np.asarray(chosen_n)].sum(0, dtype=np.int64))

    def bleu_of_mixture(self, weights_k: Sequence[float] | NDArray[np.floating[Any]]) -> float:
        """BLEU if the depth of each sentence is drawn at random with these weights, which need not add up to 1."""
        weights = np.asarray(weights_k, dtype=np.float64)
        return _bleu(weights / weights.sum() @ self.bleu_nks.sum(0, dtype=np.int64))

    def chrf(self, chosen_n: Chosen) -> float:
        """Mean over the sentences if each is translated at the depth chosen for it."""
        return float(self.chrf_nk[np.arange(len(self)), np.asarray(chosen_n)].mean(dtype=np.float64))

    def save(self, folder: Path) -> None:
        """Write the folder in one step. A folder of something else is not replaced."""
        if folder.exists() and not (folder / TABLE).is_file() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{folder} is there and holds something else: give another folder")
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
                "files": {name: sha256_of(temporary / name) for name in (SCORES, SENTENCES)},
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
        if sha256_of(folder / name) != record["files"][name]:
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
