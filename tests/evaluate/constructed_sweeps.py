"""Sweep results made by hand, for the parts that only compute, draw and write."""

from dataclasses import replace

from constructed_conditions import CONDITIONS

from anydepth.evaluate.depth_comparison import compare
from anydepth.evaluate.metrics import score
from anydepth.evaluate.sweep import DepthResult, ModelSweep, SweepResult

SOURCES = ("ein kleines Haus am Fluss", "<script>alert(1)</script> & mehr", "nein, nein, sagte er dann", "ja")
REFERENCES = ("a small house by the river", "<script>alert(1)</script> & more text here", "no, no, he said then", "yes")
GOOD = REFERENCES
FAIR = ("a small house by a river", "<script>alert(1)</script> & more", "no, no, he said", "yes")
POOR = ("a a a house", "more <b>here</b>", "he he said", "no")


def measurement(n: int, m: int, seconds: float, outputs: tuple[str, ...] = FAIR) -> DepthResult:
    return DepthResult(
        depth=f"{n}-{m}",
        encoder_layers=n,
        decoder_layers=m,
        quality=score(outputs, REFERENCES),
        seconds_of_passes=(seconds,),
        output_tokens=40,
        parameters=1_000_000 * (n + m),
        bytes=4_000_000 * (n + m),
        outputs=outputs,
    )


def make_result(*models: ModelSweep) -> SweepResult:
    conditions = replace(CONDITIONS, lines=len(SOURCES), beam=4)
    comparison = compare(models, REFERENCES, samples=50) if len(models) > 1 else None
    return SweepResult(tuple(models), SOURCES, REFERENCES, conditions, comparison)


def with_holes(label: str = "tied", best: tuple[str, ...] = GOOD) -> ModelSweep:
    """1-1 is fastest and poor, 2-2 slowest and best, 1-2 slower and no better than 2-1; there is no 3-2."""
    return ModelSweep(
        label,
        (
            measurement(1, 1, 1.0, POOR),
            measurement(1, 2, 3.0, FAIR),
            measurement(2, 1, 2.0, FAIR),
            measurement(2, 2, 4.0, best),
            measurement(3, 1, 2.5, POOR),
        ),
    )


def single(label: str = "vanilla") -> ModelSweep:
    return ModelSweep(label, (measurement(6, 6, 2.0, GOOD),))


def with_bleu(label: str, bleu: dict[tuple[int, int], float]) -> ModelSweep:
    """These BLEU scores at these depths, whatever its outputs, which are all the same."""
    measurements = []
    for (n, m), value in bleu.items():
        one = measurement(n, m, 1.0 + n + 2 * m)
        measurements.append(replace(one, quality=replace(one.quality, bleu=value)))
    return ModelSweep(label, tuple(measurements))
