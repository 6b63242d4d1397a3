"""From a recipe to a finished model: prepares the data, trains, and writes the model folder."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from anydepth.artifact import saving
from anydepth.artifact.folder import WORD_DEPTHS
from anydepth.config import Recipe
from anydepth.config.reading import check_same_recipe, check_sections
from anydepth.data import Prepared, Tokenizer, prepare
from anydepth.errors import UserError
from anydepth.files import only_process, write_atomically
from anydepth.model import Transformer
from anydepth.objectives import TranslationObjective, make_distillation
from anydepth.training.base_models import BaseModels
from anydepth.training.build import (
    PRUNED,
    adapt_model,
    load_word_depths,
    make_recipe_objective,
    make_stream,
    make_token_depths,
    make_validator,
    write_models,
)
from anydepth.training.distributed import World, init_distributed
from anydepth.training.optim import check_precision
from anydepth.training.plateau import Plateau, find_plateau, plateau_advice, unigram_entropy
from anydepth.training.run_log import FINISHED
from anydepth.training.trainer import Trainer, TrainingData

log = logging.getLogger(__name__)


def train(recipe: Recipe, run: Path) -> Path:
    """Train by a recipe in the folder `run`, or resume where it stopped; return the finished model's folder."""
    config = recipe.train
    check_precision(config)
    world, device = init_distributed(config.device, config.shard)
    models = BaseModels.load(recipe, run, device, finished=_has_finished(run, config.steps))
    recipe = adapt_model(models.complete(recipe, run))
    check_sections(recipe)
    objective = make_recipe_objective(recipe)
    models.check_teacher(recipe, run)
    if recipe.teacher is not None and (models.teacher is not None or recipe.teacher.model == "self"):
        teacher = None if models.teacher is None else (models.teacher.model, models.teacher.menu)
        objective.teaching = make_distillation(recipe.teacher, teacher, objective)
    for warning in [*objective.warnings(config.steps), *models.warnings(recipe)]:
        log.info("note: %s", warning)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    with _lock(run) if world.is_main else nullcontext():
        if world.is_main:
            check_same_recipe(recipe, run)
        if world.broadcast(world.is_main and _has_finished(run, config.steps)):
            log.info("this run has finished; its model is %s", run / "model")
            if plateau := _read_record(run).get("plateau"):
                log.warning("warning: %s", Plateau(**plateau))
        else:
            models.check_unchanged(run, save=world.is_main)
            _fit(recipe, run, models, objective, world, device)
    world.wait_for_exit()
    return run / "model"


def _fit(
    recipe: Recipe,
    run: Path,
    models: BaseModels,
    objective: TranslationObjective,
    world: World,
    device: torch.device,
) -> None:
    """Prepare the data, train the model, and write it."""
    config, table = recipe.train, load_word_depths(recipe, run)
    prepared = _prepare(recipe, run, None if models.start is None else models.start.tokenizer, world)
    token_depths = make_token_depths(recipe, prepared, table)  # may fail, so before recipe.json is written
    if world.is_main:
        write_atomically(run / "recipe.json", json.dumps(recipe.model_dump(mode="json"), indent=1) + "\n")
        if token_depths is not None:
            token_depths.table.save(run / WORD_DEPTHS)
    _report(prepared)

    torch.manual_seed(config.seed)
    model = Transformer(recipe.model, prepared.tokenizer.vocabulary_size, len(prepared.labels))
    if models.start is not None:
        models.start.copy_to(model, prepared.labels)
    world.place(model, device)
    model.configure_layers(
        checkpointing=config.activation_checkpointing, compiled=config.compile, int4=config.quantize == "int4"
    )
    data = TrainingData(
        make_stream(recipe, prepared, token_depths),
        make_validator(recipe, prepared, objective, device, token_depths),
        prepared.fingerprint,
        "texts" if recipe.data.is_labelled else "tokens",
        unigram_entropy([part.train for part in prepared.parts], recipe.data.task),
    )
    steps = Trainer(model, objective.to(device), data, config, run, world).fit()
    if world.is_main:
        assert data.entropy is not None
        plateau = find_plateau(run, data.entropy, plateau_advice(recipe.model.norm, objective.remedy))
        finished = write_models(recipe, run, prepared, objective, steps, token_depths, plateau)
        record = {"steps": config.steps, "averaged": steps, "plateau": None if plateau is None else asdict(plateau)}
        write_atomically(run / FINISHED, json.dumps(record) + "\n")
        plural = "s" if len(steps) > 1 else ""
        log.info("finished: %s (the mean of %d checkpoint%s)", run / "model", len(steps), plural)
        for pair, one in finished.cut_out.items():
            log.info("pruned: %s (%s)", run / PRUNED / pair, one.menu.default.name)
        for note in finished.notes:
            log.info("note: %s", note)
        if plateau is not None:
            log.warning("warning: %s", plateau)
    world.broadcast()  # the others wait until the model is there


def _prepare(recipe: Recipe, run: Path, tokenizer: Tokenizer | None, world: World) -> Prepared:
    """Rank 0 prepares the data, the others read it."""
    folder, seed = run / "data", recipe.train.seed
    found = prepare(recipe.data, folder, seed, tokenizer=tokenizer) if world.is_main else None
    expected = world.broadcast(None if found is None else found.fingerprint)
    if not folder.is_dir():
        raise UserError(f"this machine cannot find {run}: give a folder on a disk that all machines share")
    found = found or prepare(recipe.data, folder, seed, tokenizer=tokenizer, verify=False)
    differs = world.all_reduce(  # so that all processes stop, and none waits for the others
        [float(rank == world.rank and found.fingerprint != expected) for rank in range(world.size)]
    )
    if any(differs):
        raise UserError(
            f"process {differs.index(1.0)} finds other data in {folder} than process 0 prepared: delete it on that "
            "machine, and give a folder on a disk that all machines share"
        )
    return found


@contextmanager
def _lock(run: Path) -> Iterator[None]:
    """Hold the run's folder, after checking that it may be one."""
    if run.exists() and not run.is_dir():
        raise UserError(f"{run} is a file: give a folder for the run")
    if run.is_dir() and any(run.iterdir()) and not (run / "recipe.json").exists() and not (run / ".lock").exists():
        raise UserError(f"{run} is not empty and not a run: give another folder with out=…")
    with only_process(run, "training"):
        yield


def _has_finished(run: Path, steps: int) -> bool:
    """Whether the run has reached this step and its model is intact; if not, the model is made again."""
    try:
        return int(_read_record(run)["steps"]) >= steps and saving.is_intact(run / "model")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _read_record(run: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run / FINISHED).read_text("utf-8"))
    return record


def _report(prepared: Prepared) -> None:
    for kind in ("train", "valid"):
        for part in prepared.parts:
            several = len(prepared.parts) > 1
            counted = prepared.counts[kind][part.name] if several else prepared.counts[kind]
            counts = {name.replace("_", " "): number for name, number in counted.items() if number}
            text = ", ".join(f"{name} {number:,}" for name, number in counts.items())
            log.info("%s: %s", f"{kind} {part.name}" if several else kind, text)
    if overlap := prepared.counts["valid_seen_in_train"]:
        log.info("note: %s validation sources also occur in train", f"{overlap:,}")
