"""From a recipe to a finished model: prepares the text, trains, and writes the artifact."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from rich.console import Console

from anydepth import artifact
from anydepth.config import DataConfig, ModelConfig, Recipe
from anydepth.errors import UserError
from anydepth.files import only_process, read_json, write_atomically
from anydepth.infer.translator import Translator
from anydepth.model import Transformer
from anydepth.model.device import choose_device
from anydepth.objectives import TranslationObjective, make_objective, make_teaching
from anydepth.text import Batch, BatchStream, Prepared, Tokenizer, prepare
from anydepth.train import Trainer
from anydepth.train.checkpoint import average_checkpoints, read_state, saved_steps
from anydepth.train.trainer import model_tensors
from anydepth.train.validation import TranslationValidator

VALIDATION_BATCH = 64
FREE_TO_CHANGE = ("dropout", "max_length")  # of a model that training starts from


def train(recipe: Recipe, run: Path, console: Console) -> Path:
    """Carry out a recipe in the folder `run`, or go on where it stopped; return the finished model's folder."""
    start, teacher = _start(recipe, run), _teacher(recipe, run)
    recipe, config = _completed(recipe, start, run), recipe.train
    if recipe.data.max_tokens >= recipe.model.max_length:
        raise UserError("model.max_length must be larger than data.max_tokens: raise the one or lower the other")
    device = choose_device(config.device)
    objective = make_objective(recipe.objective, recipe.model, config.label_smoothing, config.seed)
    for depth in config.valid_depths:
        if depth not in objective.menu().names:
            names = ", ".join(objective.menu().names)
            raise UserError(f"train.valid_depths: there is no depth {depth} in this model; it has: {names}")
    if teacher is not None:
        _check_teacher(teacher, recipe, run)
    if recipe.teacher is not None and (teacher is not None or recipe.teacher.model == "self"):
        known = None if teacher is None else (teacher.model, teacher.menu)
        objective.teaching = make_teaching(recipe.teacher, known, objective)
    for warning in [*objective.warnings(), *_idle_keys(recipe)]:
        console.print(f"note: {warning}", highlight=False, soft_wrap=True)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    with _only_process(run):
        _check_same(recipe, run)
        if _has_finished(run, config.steps):
            console.print(f"this run has finished; its model is {run / 'model'}", highlight=False, soft_wrap=True)
            return run / "model"
        _check_unchanged("init_from", start, run / "start.json")
        _check_unchanged("teacher.model", teacher, run / "teacher.json")
        prepared = prepare(recipe.data, run / "data", config.seed)
        write_atomically(run / "recipe.json", json.dumps(recipe.model_dump(mode="json"), indent=1) + "\n")
        _report(prepared, console)

        torch.manual_seed(config.seed)
        model = Transformer(recipe.model, prepared.tokenizer.vocabulary_size).to(device)
        if start is not None:
            model.load_state_dict(model_tensors(start.model), strict=False)  # a shared matrix is there once
        stream = BatchStream(prepared.train, config.batch_tokens, config.seed)
        validator = _validator(recipe, prepared, objective, device)
        trainer = Trainer(model, objective.to(device), stream, validator, config, run, prepared.fingerprint, console)
        steps = trainer.fit()

        _finish(recipe, run, prepared, objective, steps)
        write_atomically(run / "finished.json", json.dumps({"steps": config.steps, "averaged": steps}) + "\n")
    console.print(
        f"finished: {run / 'model'} (the mean of {len(steps)} checkpoint{'s' if len(steps) > 1 else ''})",
        highlight=False,
        soft_wrap=True,
    )
    return run / "model"


def _start(recipe: Recipe, run: Path) -> Translator | None:
    """The model to start from. A run that has finished, or has a checkpoint to go on from, needs no other."""
    if recipe.init_from is None or _has_finished(run, recipe.train.steps):
        return None
    if any(read_state(run, step) for step in saved_steps(run)):
        return None
    return artifact.load(recipe.init_from)


def _completed(recipe: Recipe, start: Translator | None, run: Path) -> Recipe:
    """A recipe with `init_from` has the model section and the tokenizer of the model it starts from; one with a
    teacher, and no tokenizer of its own, that of the teacher."""
    if recipe.init_from is None:
        if recipe.teacher is None or recipe.teacher.model == "self" or recipe.data.tokenizer is not None:
            return recipe
        data = recipe.data.model_copy(update={"tokenizer": recipe.teacher.model})
        return recipe.model_copy(update={"data": data})
    if recipe.data.tokenizer not in (None, recipe.init_from):
        raise UserError("init_from brings its own tokenizer: leave out data.tokenizer")
    data = recipe.data.model_copy(update={"tokenizer": recipe.init_from})
    there = _earlier_model(run) if start is None else start.model.config
    asked = recipe.model.model_dump(include=recipe.model.model_fields_set)
    for key, value in asked.items():
        if key not in FREE_TO_CHANGE and value != getattr(there, key):
            raise UserError(
                f"model.{key} is {value} but that of {recipe.init_from} is {getattr(there, key)}: "
                "leave out the section (--set 'model={}')"
            )
    return recipe.model_copy(update={"data": data, "model": there.model_copy(update=asked)})


def _earlier_model(run: Path) -> ModelConfig:
    advice = f"restore it, or give another folder than {run} with --out"
    try:
        return ModelConfig.model_validate(read_json(run / "recipe.json", advice).get("model"))
    except ValidationError as error:
        raise UserError(f"{run / 'recipe.json'} is damaged: {advice}") from error


def _teacher(recipe: Recipe, run: Path) -> Translator | None:
    """The model that teaches, if it is another one. A run that has finished needs none."""
    if recipe.teacher is None or recipe.teacher.model == "self" or _has_finished(run, recipe.train.steps):
        return None
    return artifact.load(recipe.teacher.model, recipe.train.device)


def _idle_keys(recipe: Recipe) -> list[str]:
    return [f"teacher.{key} has no effect here" for key in (recipe.teacher.idle_keys() if recipe.teacher else [])]


def _check_teacher(teacher: Translator, recipe: Recipe, run: Path) -> None:
    """Outputs can only be compared over the same sub-words, and states only where the text is split alike."""
    prepared = run / "data" / "tokenizer.model"  # a resumed run no longer needs what it began with
    used = prepared if prepared.exists() else recipe.data.tokenizer
    if used is not None and Tokenizer.load(used).to_bytes() != teacher.tokenizer.to_bytes():
        key = "data.tokenizer" if recipe.init_from is None else "init_from"
        raise UserError(f"the teacher has another vocabulary than {key}: leave that out, or choose another teacher")
    if teacher.longest_source < recipe.data.max_tokens:
        raise UserError(
            f"data.max_tokens is {recipe.data.max_tokens}, but the teacher takes {teacher.longest_source} sub-words: "
            f"set it to {teacher.longest_source}"
        )


def _check_unchanged(key: str, model: Translator | None, path: Path) -> None:
    """A run killed before its first checkpoint begins anew: from the same weights, and with text in their sub-words.
    Its teacher must stay the same all along."""
    if model is None:
        return
    found = {"fingerprint": model.fingerprint}
    if path.exists() and read_json(path, f"delete {path.parent} and give the same command again") != found:
        raise UserError(
            f"{key} is no longer the model that {path.parent} was begun with: restore it, or give another --out"
        )
    write_atomically(path, json.dumps(found) + "\n")


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
    changed = [key for key in _different_keys(old, recipe.model_dump(mode="json")) if key != "train.steps"]
    if changed:
        raise UserError(
            f"{run} was begun with another {', '.join(changed)}: give the same recipe to go on, or another --out"
        )


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
    for part in ("train", "valid"):
        counts = {name.replace("_", " "): number for name, number in prepared.counts[part].items() if number}
        text = ", ".join(f"{name} {number:,}" for name, number in counts.items())
        console.print(f"{part}: {text}", highlight=False, soft_wrap=True)
    if prepared.counts["valid_seen_in_train"]:
        seen = prepared.counts["valid_seen_in_train"]
        console.print(f"note: {seen:,} validation sources also occur in train", highlight=False)


def _validator(
    recipe: Recipe, prepared: Prepared, objective: TranslationObjective, device: torch.device
) -> TranslationValidator:
    pairs = prepared.valid_pairs[: recipe.train.valid_sentences]
    sources = prepared.tokenizer.encode_many([source for source, _ in pairs])
    targets = prepared.tokenizer.encode_many([target for _, target in pairs])
    by_length = sorted(range(len(pairs)), key=lambda i: len(targets[i]))
    batches = []
    for start in range(0, len(pairs), VALIDATION_BATCH):
        chosen = by_length[start : start + VALIDATION_BATCH]
        batches.append(Batch.from_rows([sources[i] for i in chosen], [targets[i] for i in chosen]).to(device))
    return TranslationValidator(pairs, batches, prepared.tokenizer, objective.menu(), recipe.train.valid_depths)


def _finish(recipe: Recipe, run: Path, prepared: Prepared, objective: TranslationObjective, steps: list[int]) -> None:
    data = recipe.data
    how = recipe.model_dump(mode="json", exclude={"data"}, exclude_none=True)
    if recipe.init_from is not None:
        how["init_from"] = recipe.init_from.name
    if recipe.teacher is not None:
        how["teacher"]["model"] = Path(recipe.teacher.model).name
    facts = {"data": _data_facts(data, prepared), "recipe": how}
    artifact.save(
        run / "model",
        recipe.model,
        average_checkpoints(run, steps),
        prepared.tokenizer,
        objective.menu(),
        (data.source_language, data.target_language),
        facts,
    )


def _data_facts(data: DataConfig, prepared: Prepared) -> dict[str, Any]:
    """For the card: file names without folders, which are nobody's business, and what cleaning left."""
    corpus = data.train
    names = [path.name for path in (corpus.source, corpus.target, corpus.tsv) if path is not None]
    return {
        "corpus": corpus.huggingface or ", ".join(names),
        "licence": data.licence or "not recorded",
        "pairs_read": prepared.counts["train"]["read"],
        "pairs_trained_on": prepared.counts["train"]["kept"],
    }
