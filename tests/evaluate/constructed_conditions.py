"""The conditions of results made by hand."""

from anydepth.evaluate.experiment import Conditions

CONDITIONS = Conditions(
    source_file="test.de",
    reference_file="test.en",
    lines=4,
    beam=1,
    length_penalty=0.6,
    batch_size=32,
    cut_long=False,
    repeats=1,
    device="cpu",
    threads=2,
    machine="x86_64",
    date="2025-01-02T03:04:05+00:00",
)
