"""From a recipe to a finished model: prepares the text, trains, and writes the artifact."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from rich.console import Console

from anydepth.artifact import model as artifact
from anydepth.artifact.folder import WORD_DEPTHS
from anydepth.config import Recipe, WordDepthsConfig
from anydepth.data import Prepared, Tokenizer, prepare
from anydepth.errors import UserError
from anydepth.files import only_process, read_json, write_atomically
from anydepth.model import Transformer
from anydepth.objectives import OBJECTIVES, make_objective, make_teaching
from anydepth.train import Trainer
from anydepth.train.base_models import Foundations
from anydepth.train.build import PRUNED, stream_of, table_of, token_depths_of, validator_of, write_models
from anydepth.train.distributed import Processes, join
from anydepth.train.precision import check_computing

# What may change when a run goes on: how long it is and what it runs on, not what it learns from.
FREE = ("about", "train.steps", "train.threads", "train.device", "train.shard", "train.recompute", "train.compile")


def train(recipe: Recipe, run: Path, console: Console) -> Path:
    """Carry out a recipe in the folder `run`, or go on where it stopped; return the finished model's folder."""
    check_computing(recipe.train)
    processes, device = join(recipe.train.device, recipe.train.shard)
    folder = _train(recipe, run, console, processes, device)
    processes.leave()
    return folder


def _train(recipe: Recipe, run: Path, console: Console, processes: Processes, device: torch.device) -> Path:
    config = recipe.train
    models = Foundations.load(recipe, run, device, finished=_has_finished(run, config.steps))
    recipe = _fitted(models.completed(recipe, run))
    _check_parts_fit(recipe)
    if not processes.is_first:
        console = Console(quiet=True)
    pairs = [pair.name for pair in recipe.data.corpora] if len(recipe.data.corpora) > 1 else [""]
    objective = make_objective(
        recipe.objective, recipe.model, config.label_smoothing, config.seed, pairs, recipe.data.is_labelled
    )
    validated = objective.validated().of_pair(recipe.data.corpora[0].name).names
    for depth in config.valid_depths:
        if depth not in validated:
            names = ", ".join(validated)
            raise UserError(f"train.valid_depths: there is no depth {depth} in this model; it has: {names}")
    models.check_teacher(recipe, run)
    if recipe.teacher is not None and (models.teacher is not None or recipe.teacher.model == "self"):
        teacher = None if models.teacher is None else (models.teacher.model, models.teacher.menu)
        objective.teaching = make_teaching(recipe.teacher, teacher, objective)
    for warning in [*objective.warnings(config.steps), *models.warnings(recipe)]:
        console.print(f"note: {warning}", highlight=False, soft_wrap=True)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    with _only_process(run) if processes.is_first else nullcontext():
        if processes.is_first:
            _check_same(recipe, run)
        if processes.told(processes.is_first and _has_finished(run, config.steps)):
            console.print(f"this run has finished; its model is {run / 'model'}", highlight=False, soft_wrap=True)
            return run / "model"
        models.check_unchanged(run, note=processes.is_first)
        given, table = None if models.start is None else models.start.tokenizer, table_of(recipe, run)
        prepared = _prepared(recipe, run, given, processes)
        depths = token_depths_of(recipe, prepared, table)  # refused, if it is, before the run has a recipe of its own
        if processes.is_first:
            write_atomically(run / "recipe.json", json.dumps(recipe.model_dump(mode="json"), indent=1) + "\n")
            if depths is not None:
                depths.table.save(run / WORD_DEPTHS)
        _report(prepared, console)

        torch.manual_seed(config.seed)
        model = Transformer(recipe.model, prepared.tokenizer.vocabulary_size, len(prepared.labels))
        if models.start is not None:
            models.start.give_to(model, prepared.labels)
        processes.placed(model, device)
        stream = stream_of(recipe, prepared, depths)
        validator = validator_of(recipe, prepared, objective, device, depths)
        unit = "texts" if recipe.data.is_labelled else "tokens"
        data = prepared.fingerprint
        model.run_with(recompute=config.recompute, compiled=config.compile)
        trainer = Trainer(model, objective.to(device), stream, validator, config, run, data, console, unit, processes)
        steps = trainer.fit()
        if not processes.is_first:
            processes.told()  # until the model is there
            return run / "model"

        finished = write_models(recipe, run, prepared, objective, steps, depths)
        write_atomically(run / "finished.json", json.dumps({"steps": config.steps, "averaged": steps}) + "\n")
        processes.told()
    said = [f"finished: {run / 'model'} (the mean of {len(steps)} checkpoint{'s' if len(steps) > 1 else ''})"]
    said += [f"pruned: {run / PRUNED / pair} ({one.menu.default.name})" for pair, one in finished.cut_out.items()]
    for line in [*said, *(f"note: {note}" for note in finished.notes)]:
        console.print(line, highlight=False, soft_wrap=True)
    return run / "model"


def _prepared(recipe: Recipe, run: Path, tokenizer: Tokenizer | None, processes: Processes) -> Prepared:
    """The first process prepares, the others read what it left."""
    folder, seed = run / "data", recipe.train.seed
    found = prepare(recipe.data, folder, seed, tokenizer=tokenizer) if processes.is_first else None
    of_first = processes.told(None if found is None else found.fingerprint)
    if not folder.is_dir():
        raise UserError(f"this machine does not see {run}: give a folder on a disk that all machines share")
    found = found or prepare(recipe.data, folder, seed, tokenizer=tokenizer, verify=False)  # as the first one did
    differs = processes.sum(  # so that all of them stop, and none waits for the others
        [float(rank == processes.rank and found.fingerprint != of_first) for rank in range(processes.count)]
    )
    if any(differs):
        raise UserError(
            f"what process {differs.index(1.0)} finds in {folder} is not what the first has prepared: delete it on "
            "that machine, and give a folder on a disk that all machines share"
        )
    return found


def _fitted(recipe: Recipe) -> Recipe:
    """With a model that has what its objective asks for."""
    return recipe.model_copy(update={"model": OBJECTIVES[recipe.objective.name].fitted(recipe.objective, recipe.model)})


def _check_parts_fit(recipe: Recipe) -> None:
    """Refuse sections that are fine by themselves and not together."""
    if recipe.data.max_tokens >= recipe.model.max_length:
        raise UserError("model.max_length must be larger than data.max_tokens: raise the one or lower the other")
    has_decoder = recipe.model.decoder_layers > 0
    by_mi = isinstance(recipe.objective, WordDepthsConfig) and recipe.objective.depths == "mi"
    if by_mi and not recipe.data.is_labelled:
        raise UserError(
            "mutual information needs labelled texts: for others set objective.depths to a file that `anydepth "
            "word-depths reconstruction` made"
        )
    by_word = recipe.objective.name in ("word-depths", "halting")
    if by_word and recipe.model.residual == "dlcl":
        raise UserError("with dense connections no word is done before the others: set model.residual to plain")
    if by_word and recipe.train.shard:
        raise UserError(
            "train.shard needs every process to run the same layers, which words with depths of their own do not: "
            "leave out train.shard"
        )
    if by_word and recipe.data.is_text:
        raise UserError(f"objective {recipe.objective.name} is not for masked text: give labels or translations")
    if recipe.data.is_labelled and has_decoder:
        raise UserError("labelled texts are for an encoder alone: set model.decoder_layers to 0")
    if recipe.data.is_text and has_decoder:
        raise UserError(
            "a text without translations is for masked language modelling, which has no decoder: "
            "set model.decoder_layers to 0, or give source and target"
        )
    if recipe.data.task == "translation" and not has_decoder:
        raise UserError(
            "a model without a decoder cannot translate: give a corpus with `text`, or set model.decoder_layers"
        )


@contextmanager
def _only_process(run: Path) -> Iterator[None]:
    """Hold the run's folder, once it is clear that it may be one."""
    if run.exists() and not run.is_dir():
        raise UserError(f"{run} is a file: give a folder for the run")
    if run.is_dir() and any(run.iterdir()) and not (run / "recipe.json").exists() and not (run / ".lock").exists():
        raise UserError(f"{run} is not empty and not a run: give another folder with --out")
    with only_process(run, "training"):
        yield


def _check_same(recipe: Recipe, run: Path) -> None:
    """Refuse to go on with another recipe: the result would be neither's."""
    if not (run / "recipe.json").exists():
        return
    old = read_json(run / "recipe.json", f"restore it, or give another folder than {run} with --out")
    with suppress(ValidationError):  # an earlier version knew fewer keys: what it did is what they are by default
        old = Recipe.model_validate(old).model_dump(mode="json")
    new = recipe.model_dump(mode="json")
    free = {*FREE, *_moved_teacher(old, new)}
    changed = [key for key in _different_keys(old, new) if key not in free]
    if changed:
        raise UserError(
            f"{run} was begun with another {', '.join(changed)}: give the same recipe to go on, or another --out"
        )


def _moved_teacher(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Where a teacher lies may change, if it is the same one, and the place of its tokenizer with it."""
    before, now = (recipe.get("teacher") or {"model": "self"} for recipe in (old, new))
    if "self" in (before["model"], now["model"]):
        return []
    brought = [recipe["data"]["tokenizer"] == teacher["model"] for recipe, teacher in ((old, before), (new, now))]
    return ["teacher.model", "data.tokenizer"] if all(brought) else ["teacher.model"]


def _has_finished(run: Path, steps: int) -> bool:
    """Whether the run has got that far and its model is there and whole; if it is not, it is made again."""
    try:
        record = json.loads((run / "finished.json").read_text("utf-8"))
        return int(record["steps"]) >= steps and artifact.is_whole(run / "model")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _different_keys(old: Any, new: Any, prefix: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*new, *(key for key in old if key not in new)]
        return [
            name
            for key in keys
            for name in _different_keys(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else key)
        ]
    return [] if old == new else [prefix]


def _report(prepared: Prepared, console: Console) -> None:
    for kind in ("train", "valid"):
        for part in prepared.parts:
            several = len(prepared.parts) > 1
            counted = prepared.counts[kind][part.name] if several else prepared.counts[kind]
            counts = {name.replace("_", " "): number for name, number in counted.items() if number}
            text = ", ".join(f"{name} {number:,}" for name, number in counts.items())
            label = f"{kind} {part.name}" if several else kind
            console.print(f"{label}: {text}", highlight=False, soft_wrap=True)
    if prepared.counts["valid_seen_in_train"]:
        seen = prepared.counts["valid_seen_in_train"]
        console.print(f"note: {seen:,} validation sources also occur in train", highlight=False)
