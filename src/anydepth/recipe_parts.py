"""What a recipe is made into: batches to train on, text to validate with, and the model folders at the end."""

from pathlib import Path
from typing import Any

import torch

from anydepth import artifact
from anydepth.config import DataConfig, Recipe
from anydepth.infer.languages import LanguagePair
from anydepth.objectives import Finished, TranslationObjective
from anydepth.text import (
    Batch,
    BatchStream,
    MaskedStream,
    PairStream,
    Prepared,
    PreparedPair,
    Tokenizer,
    alike,
    mask_and_vocabulary,
    masked_batches,
)
from anydepth.train.checkpoint import average_checkpoints
from anydepth.train.trainer import Stream
from anydepth.train.validation import MaskedValidator, TranslationValidator, ValidationSet

VALIDATION_BATCH = 64
PRUNED = "pruned"
VALIDATION_SEED = 1


def stream_of(recipe: Recipe, prepared: Prepared) -> Stream:
    data, tokens, seed = recipe.data, recipe.train.batch_tokens, recipe.train.seed
    streams = [BatchStream(part.train, tokens, seed) for part in prepared.parts]
    sizes = [len(part.train) for part in prepared.parts]
    stream = streams[0] if len(streams) == 1 else PairStream(streams, sizes, data.sampling, data.temperature, seed)
    if not data.is_text:
        return stream
    return MaskedStream(stream, data.masked, *mask_and_vocabulary(prepared.tokenizer), seed)


def validator_of(
    recipe: Recipe, prepared: Prepared, objective: TranslationObjective, device: torch.device
) -> TranslationValidator:
    tokenizer, depths = prepared.tokenizer, list(recipe.train.valid_depths)
    sets = [_validation_set(recipe, part, tokenizer, device) for part in prepared.parts]
    kind = MaskedValidator if recipe.data.is_text else TranslationValidator
    return kind(sets, tokenizer, objective.validated, depths)


def _validation_set(recipe: Recipe, part: PreparedPair, tokenizer: Tokenizer, device: torch.device) -> ValidationSet:
    pairs = part.valid_pairs[: recipe.train.valid_sentences]
    symbol = None if part.tag is None else tokenizer.id_of(part.tag)
    tag = [] if symbol is None else [symbol]
    sources = [[*tag, *ids] for ids in tokenizer.encode_many([source for source, _ in pairs])]
    targets = tokenizer.encode_many([target for _, target in pairs])
    if recipe.data.is_text:
        batches = masked_batches(tokenizer, sources, recipe.data.masked, VALIDATION_SEED, VALIDATION_BATCH)
    else:
        places = alike([len(target) for target in targets], VALIDATION_BATCH)
        batches = (Batch.from_rows([sources[i] for i in chosen], [targets[i] for i in chosen]) for chosen in places)
    return ValidationSet(part.name, pairs, [batch.to(device) for batch in batches], part.tag)


def write_models(
    recipe: Recipe, run: Path, prepared: Prepared, objective: TranslationObjective, steps: list[int]
) -> Finished:
    """The finished model, the mean of some checkpoints, in RUN/model; what is cut out of it in RUN/pruned."""
    if objective.state_dict():
        objective.load_state_dict(average_checkpoints(run, steps, "objective"))
    finished = objective.finish(average_checkpoints(run, steps), steps[-1])
    facts = {"data": _data_facts(recipe.data, prepared), "recipe": _recipe_facts(recipe)}
    pairs = {part.name: LanguagePair(*part.languages, part.tag) for part in prepared.parts}

    def write(folder: Path, model: Finished, pair: str = "") -> None:
        own = [pairs[pair]] if pair else list(pairs.values())
        languages = (own[0].source, own[0].target) if pair else recipe.data.languages
        artifact.save(folder, model.config, model.tensors, prepared.tokenizer, model.menu, languages, facts, own)

    for pair, smaller in finished.cut_out.items():
        write(run / PRUNED / pair, smaller, pair)
    write(run / "model", finished)
    return finished


def _recipe_facts(recipe: Recipe) -> dict[str, Any]:
    """For the card: how it was trained, without folders, which are nobody's business."""
    how = recipe.model_dump(mode="json", exclude={"data"}, exclude_none=True)
    if recipe.init_from is not None:
        how["init_from"] = recipe.init_from.name
    if recipe.teacher is not None:
        how["teacher"]["model"] = Path(recipe.teacher.model).name
    return how


def _data_facts(data: DataConfig, prepared: Prepared) -> dict[str, Any]:
    """For the card: where the text is from, and what cleaning left."""
    train = prepared.counts["train"]
    counts = list(train.values()) if len(prepared.parts) > 1 else [train]
    items = "sentences" if data.is_text else "pairs"
    return {
        "corpus": "; ".join(pair.train.title for pair in data.corpora),
        "licence": data.licence or "not recorded",
        f"{items}_read": sum(count["read"] for count in counts),
        f"{items}_trained_on": sum(count["kept"] for count in counts),
    }
