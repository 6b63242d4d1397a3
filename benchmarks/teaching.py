"""A training step with a teacher against the student's own step plus the teacher's forward pass.

python benchmarks/teaching.py [--repeats 9]
"""

from functools import partial

import torch
import typer
from common import interleaved, print_versions, random_batch, random_model

from anydepth.config import TeacherConfig, VanillaConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu
from anydepth.model import Transformer
from anydepth.objectives import TranslationObjective, make_distillation, make_objective

VOCABULARY, ROWS, LENGTH = 8000, 32, 24
METHODS = {
    "RKD": {"method": "rkd"},
    "PKD": {"method": "pkd"},
    "PKD + attention": {"method": "pkd", "attention": True},
    "CKD regular": {"method": "ckd", "map": "regular"},
    "CKD overlap": {"method": "ckd", "map": "overlap"},
    "CKD overlap, as in the paper": {"method": "ckd", "map": "overlap", "project": "teacher", "distance": "square"},
    "CKD attention": {"method": "ckd", "fusion": "attention"},
}


def main(repeats: int = 9) -> None:
    torch.set_num_threads(1)
    print_versions()
    for width in (256, 512):
        measure(width, repeats)


def measure(width: int, repeats: int) -> None:
    print(f"width {width}, 6-6 teaches 2-2, vocabulary {VOCABULARY}, {ROWS} x {LENGTH} tokens, all on 1 thread")
    teacher, student = random_model(width, 6, VOCABULARY).eval(), random_model(width, 2, VOCABULARY)
    batch = random_batch(ROWS, LENGTH, VOCABULARY)
    alone = make_objective(VanillaConfig(), student.config, 0.1, seed=1)
    ways = {"student": partial(step, alone, student, batch), "teacher": partial(forward, teacher, batch)}
    ways |= {
        name: partial(step, taught(student, teacher, options), student, batch) for name, options in METHODS.items()
    }
    seconds = interleaved(ways, repeats, after=student.zero_grad)
    both = seconds["student"] + seconds["teacher"]
    print(f"the teacher's forward pass: {seconds['teacher'] / seconds['student']:.2f}x the time of the student's step")
    for name in METHODS:
        bar = " (bar 1.15x)" if name.startswith("CKD") else ""
        print(f"{name}: {seconds[name] / both:.2f}x the time of both{bar}", flush=True)


def taught(student: Transformer, teacher: Transformer, options: dict[str, object]) -> TranslationObjective:
    objective = make_objective(VanillaConfig(), student.config, 0.1, seed=1)
    config = TeacherConfig.model_validate({"model": "random", **options})
    objective.teaching = make_distillation(config, (teacher, DepthMenu.of([teacher.full])), objective)
    return objective


def step(objective: TranslationObjective, student: Transformer, batch: Batch) -> None:
    objective(student, batch, 1).weighted(1, 1).backward()


@torch.no_grad()
def forward(teacher: Transformer, batch: Batch) -> None:
    """With its output distributions, which is what there is to learn from."""
    teacher(batch.source, batch.target_in, teacher.full, batch.source_padding).log_softmax(-1)


if __name__ == "__main__":
    typer.run(main)
