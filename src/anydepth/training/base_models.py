"""The models that a recipe builds on: the one that training starts from (init_from), and the teacher."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from anydepth.artifact import model as artifact
from anydepth.artifact.folder import LanguagePair
from anydepth.config import DataConfig, ModelConfig, Recipe
from anydepth.data import Tokenizer
from anydepth.errors import UserError
from anydepth.files import read_json, write_atomically
from anydepth.infer.translator import Translator
from anydepth.model import Transformer
from anydepth.model.hf import is_pretrained, load_pretrained
from anydepth.training.checkpoint import read_state, saved_steps
from anydepth.training.trainer import model_tensors

LanguageTokens = dict[str, tuple[str | None, str | None]]  # by the name of a pair, of its sources and targets
HEAD = "output.weight"
# Model keys that need not be those of init_from; also max_length unless positions are learned, and fewer layers.
CHANGEABLE = ("dropout", "attention_dropout", "max_length", "init", "head", "halting", "halting_confidence")


@dataclass(frozen=True)
class StartModel:
    """What training starts from: a finished model, or a pre-trained encoder."""

    config: ModelConfig
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer
    fingerprint: str
    labels: tuple[str, ...] = ()
    language_tokens: LanguageTokens = field(default_factory=dict)  # of an imported model

    @classmethod
    def load(cls, path: Path) -> "StartModel":
        if is_pretrained(path):
            config, tensors, tokenizer = load_pretrained(path)
            digest = hashlib.sha256(tokenizer.to_bytes())
            for name in sorted(tensors):
                digest.update(name.encode() + tensors[name].contiguous().numpy().tobytes())
            return cls(config, tensors, tokenizer, digest.hexdigest())
        found = artifact.load_model(path)
        last = [pair for pair in found.pairs if pair.tag_last]
        if last:
            raise UserError(
                f"sources of {path} have the token of their language at the end ({last[0].tag}), which training does "
                "not put there: start from a model of OPUS-MT, M2M100, NLLB or mBART-50"
            )
        own = {pair.name: (pair.tag, pair.target_tag) for pair in found.pairs if _is_imported(pair)}
        tensors = model_tensors(found.model)
        return cls(found.model.config, tensors, found.tokenizer, found.fingerprint, found.labels, own)

    def copy_to(self, model: Transformer, labels: tuple[str, ...] = ()) -> None:
        """Copy all weights that fit. A head for other labels is not copied, even if it has the same size."""
        shapes = {name: p.shape for name, p in model.named_parameters() if name != HEAD or labels == self.labels}
        fitting = {name: value for name, value in self.tensors.items() if shapes.get(name) == value.shape}
        model.load_state_dict(fitting, strict=False)


@dataclass(frozen=True)
class BaseModels:
    """Each is None if the recipe has none, or if the run no longer needs it."""

    start: StartModel | None
    teacher: Translator | None

    @classmethod
    def load(cls, recipe: Recipe, run: Path, device: torch.device, *, finished: bool) -> "BaseModels":
        """A finished run needs neither; one that resumes from a checkpoint needs only its teacher."""
        if finished:
            return cls(None, None)
        start, teacher = None, None
        if recipe.init_from is not None and not any(read_state(run, step) for step in saved_steps(run)):
            start = StartModel.load(recipe.init_from)
        if recipe.teacher is not None and recipe.teacher.model != "self":
            teacher = Translator.load(recipe.teacher.model, engine="torch", device=str(device))
        return cls(start, teacher)

    def complete(self, recipe: Recipe, run: Path) -> Recipe:
        """Fill in the model section and the tokenizer of `init_from`; or the tokenizer of the teacher, if the recipe
        names none."""
        if recipe.init_from is not None:
            return self._complete_by_start(recipe, recipe.init_from, run)
        if recipe.teacher is None or recipe.teacher.model == "self" or recipe.data.tokenizer is not None:
            return recipe
        data = recipe.data.model_copy(update={"tokenizer": recipe.teacher.model})
        return recipe.model_copy(update={"data": data})

    def _complete_by_start(self, recipe: Recipe, init_from: Path, run: Path) -> Recipe:
        if recipe.data.tokenizer not in (None, init_from):
            raise UserError("init_from brings its own tokenizer: leave out data.tokenizer")
        data = recipe.data.model_copy(
            update={"tokenizer": init_from, "language_tokens": self._language_tokens(recipe.data, init_from, run)}
        )
        there = _saved_model_config(run) if self.start is None else self.start.config
        asked = recipe.model.model_dump(include=recipe.model.model_fields_set)
        for key, value in asked.items():
            if not _is_changeable(key, value, there) and value != getattr(there, key):
                raise UserError(
                    f"model.{key} is {value} but that of {init_from} is {getattr(there, key)}: "
                    "leave out the section, as model={} does"
                )
        return recipe.model_copy(update={"data": data, "model": there.model_copy(update=asked)})

    def _language_tokens(self, data: DataConfig, init_from: Path, run: Path) -> LanguageTokens:
        if self.start is None:
            return DataConfig.model_validate(_saved_section(run, "data")).language_tokens
        known, names = self.start.language_tokens, [pair.name for pair in data.corpora]
        if missing := [name for name in names if known and name not in known]:
            raise UserError(
                f"{init_from} translates {', '.join(known)}, not {missing[0]}: name the languages as it does, or "
                "import it with --pair for those"
            )
        return {name: known[name] for name in names if name in known}

    def check_teacher(self, recipe: Recipe, run: Path) -> None:
        """Outputs can only be compared over the same vocabulary, and states only over the same tokens."""
        if self.teacher is None:
            return
        prepared = run / "data"  # a resumed run has its tokenizer here
        used = prepared if prepared.exists() else recipe.data.tokenizer
        if used is not None and Tokenizer.load(used).to_bytes() != self.teacher.tokenizer.to_bytes():
            key = "data.tokenizer" if recipe.init_from is None else "init_from"
            raise UserError(f"the teacher has another vocabulary than {key}: leave that out, or choose another teacher")
        longest = self.teacher.longest_source
        if longest < recipe.data.max_tokens:
            raise UserError(
                f"data.max_tokens is {recipe.data.max_tokens}, but the teacher takes {longest} subwords: "
                f"set it to {longest}"
            )

    def warnings(self, recipe: Recipe) -> list[str]:
        """What a user should know about the teacher before a long run."""
        if recipe.teacher is None:
            return []
        found = [f"teacher.{key} has no effect here" for key in recipe.teacher.idle_keys()]
        if recipe.teacher.teaches_nothing or recipe.teacher.start_step >= recipe.train.steps:
            found.append("the teacher teaches nothing: teacher.eta and lambda are 0, or it begins after the last step")
        if recipe.teacher.leaves_nothing:
            found.append("eta and lambda together are 1: nothing is learned from the references")
        if self.teacher is not None and self._has_other_languages(recipe.data):
            there = " to ".join(self.teacher.languages)
            found.append(f"the teacher translates {there}: from another language pair there is little to learn")
        untrained = recipe.init_from is None and recipe.teacher.start_step == 0
        if recipe.teacher.model == "self" and recipe.teacher.matches_layers and untrained:
            found.append(
                "a model that teaches itself by its layers from the start may learn nothing else: "
                "set teacher.start_step, or start from a trained model with init_from"
            )
        return found

    def _has_other_languages(self, data: DataConfig) -> bool:
        """Whether the teacher has other languages, if both are known."""
        assert self.teacher is not None
        theirs, ours = self.teacher.languages, data.languages
        return theirs != ours and ("source", "target") not in (theirs, ours)

    def check_unchanged(self, run: Path, *, save: bool) -> None:
        """Compare the models with the fingerprints that the run has saved, or `save` them.

        A run killed before its first checkpoint starts again, from the same weights and tokenizer. Its teacher must
        stay the same throughout, wherever it is stored.
        """
        for key, model, name in (
            ("init_from", self.start, "start.json"),
            ("teacher.model", self.teacher, "teacher.json"),
        ):
            if model is None:
                continue
            path, found = run / name, {"fingerprint": model.fingerprint}
            if path.exists() and read_json(path, "delete that file and give the same command again") != found:
                raise UserError(
                    f"{key} is not the model that {run} was started with: restore it, or give another folder with out=…"
                )
            if save:
                write_atomically(path, json.dumps(found) + "\n")


def _is_changeable(key: str, value: object, there: ModelConfig) -> bool:
    if key == "max_length":
        return there.positions != "learned"
    if key in ("encoder_layers", "decoder_layers"):  # the first layers are copied
        unshared = (there.encoder_shared, there.decoder_shared) == ("none", "none") and there.residual == "plain"
        return unshared and isinstance(value, int) and min(1, getattr(there, key)) <= value <= getattr(there, key)
    return key in CHANGEABLE


def _is_imported(pair: LanguagePair) -> bool:
    """Whether it has tokens that are not those of our own models."""
    return pair.target_tag is not None or pair.tag not in (None, f"<2{pair.target}>")


def _saved_section(run: Path, section: str) -> Any:
    return read_json(run / "recipe.json", f"restore it, or give another folder than {run} with out=…").get(section)


def _saved_model_config(run: Path) -> ModelConfig:
    advice = f"restore it, or give another folder than {run} with out=…"
    try:
        return ModelConfig.model_validate(_saved_section(run, "model"))
    except ValidationError as error:
        raise UserError(f"{run / 'recipe.json'} is damaged: {advice}") from error
