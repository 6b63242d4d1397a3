"""The few sentences of a test set that show best what depth changes."""

from collections.abc import Sequence
from dataclasses import dataclass

from anydepth.evaluate.measurement import Measurement, ModelSweep
from anydepth.evaluate.metrics import sentence_chrf

DEPTHS_SHOWN = 4
WORDS_TO_BE_TELLING = 5


@dataclass(frozen=True)
class Translation:
    depth: str
    text: str
    chrf: float


@dataclass(frozen=True)
class Example:
    line: int
    source: str
    reference: str
    translations: tuple[Translation, ...]

    @property
    def spread(self) -> float:
        scores = [one.chrf for one in self.translations]
        return max(scores) - min(scores)


def pick_examples(
    model: ModelSweep, sources: Sequence[str], references: Sequence[str], count: int = 6
) -> list[Example]:
    """The sentences on which a few depths, shallow to deep, differ most in chrF, in the order of the file.

    Very short ones come last whatever their spread: one wrong word of two says nothing.
    """
    shown = depths_to_show(model)
    scores = [sentence_chrf(one.outputs, references) for one in shown]
    examples = [
        Example(
            line=index + 1,
            source=source,
            reference=reference,
            translations=tuple(
                Translation(one.depth, one.outputs[index], chrf[index]) for one, chrf in zip(shown, scores, strict=True)
            ),
        )
        for index, (source, reference) in enumerate(zip(sources, references, strict=True))
    ]
    most_telling = sorted(examples, key=lambda example: (_is_short(example), -example.spread))[:count]
    return sorted(most_telling, key=lambda example: example.line)


def depths_to_show(model: ModelSweep) -> list[Measurement]:
    """Up to four depths spread evenly over the front, or over the whole menu where the front is too short."""
    front = model.front
    candidates = front if len(front) >= min(DEPTHS_SHOWN, len(model.measurements)) else list(model.measurements)
    candidates.sort(key=lambda one: (one.encoder_layers + one.decoder_layers, one.seconds))
    last = len(candidates) - 1
    indices = {round(step * last / (DEPTHS_SHOWN - 1)) for step in range(DEPTHS_SHOWN)}
    return [candidates[index] for index in sorted(indices)]


def _is_short(example: Example) -> bool:
    return len(example.reference.split()) < WORDS_TO_BE_TELLING
