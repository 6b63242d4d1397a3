"""Builds the parts of a run from its recipe: objective, batches, validation, and the model folders at the end."""

from pathlib import Path
from typing import Any

import torch

from anydepth.artifact import saving
from anydepth.artifact.folder import WORD_DEPTHS, LanguagePair
from anydepth.config import DataConfig, Recipe, WordDepthsConfig
from anydepth.config.data import Task
from anydepth.data import (
    Batch,
    BatchStream,
    MaskedStream,
    PairStream,
    Prepared,
    PreparedPair,
    alike,
    mask_and_vocabulary,
    masked_batches,
)
from anydepth.data.augment import AugmentedStore, Augmenter
from anydepth.data.shards import PairEncoder
from anydepth.errors import UserError
from anydepth.objectives import OBJECTIVES, Finished, TranslationObjective, make_objective
from anydepth.training.checkpoint import average_checkpoints
from anydepth.training.plateau import Plateau
from anydepth.training.trainer import Stream
from anydepth.training.validation import ClassValidator, MaskedValidator, TranslationValidator, ValidationSet
from anydepth.word_depths.mutual_information import mi_depths
from anydepth.word_depths.table import DepthStream, TokenDepths, WordDepths

VALIDATION_BATCH = 64
PRUNED = "pruned"
VALIDATION_SEED = 1
VALIDATORS: dict[Task, type[TranslationValidator]] = {
    "translation": TranslationValidator,
    "text": MaskedValidator,
    "labels": ClassValidator,
}


def adapt_model(recipe: Recipe) -> Recipe:
    """The recipe with a model that has the parts that its objective needs."""
    objective = OBJECTIVES[recipe.objective.name]
    return recipe.model_copy(update={"model": objective.adapt_model(recipe.objective, recipe.model)})


def make_recipe_objective(recipe: Recipe) -> TranslationObjective:
    """The recipe's objective; its validation depths must be among the objective's."""
    config, corpora = recipe.train, recipe.data.corpora
    pairs = [pair.name for pair in corpora] if len(corpora) > 1 else [""]
    objective = make_objective(
        recipe.objective, recipe.model, config.label_smoothing, config.seed, pairs, recipe.data.is_labelled
    )
    objective.sampled_softmax = config.sampled_softmax
    names = objective.validated().of_pair(corpora[0].name).names
    for depth in config.valid_depths:
        if depth not in names:
            raise UserError(f"train.valid_depths: this model has no depth {depth}; it has: {', '.join(names)}")
    return objective


def load_word_depths(recipe: Recipe, run: Path) -> WordDepths | None:
    """The table of word depths, if the objective uses one that exists already. A copy stays with the run."""
    config, kept = recipe.objective, run / WORD_DEPTHS
    if not isinstance(config, WordDepthsConfig) or (config.depths == "mi" and not kept.exists()):
        return None
    table = WordDepths.load(kept if kept.exists() else Path(config.depths))
    cut, limit = table.facts.get("max_tokens"), recipe.data.max_tokens
    if table.texts and cut not in (None, limit):  # texts are identified by their tokens
        raise UserError(
            f"{config.depths} has depths of single occurrences, in texts cut at {cut} subwords, "
            f"and data.max_tokens is {limit}: make them the same"
        )
    return table


def make_token_depths(recipe: Recipe, prepared: Prepared, table: WordDepths | None) -> TokenDepths | None:
    """The depth of each token, if the objective uses it: by the table or, without one, by mutual information."""
    config = recipe.objective
    if not isinstance(config, WordDepthsConfig):
        return None
    if table is None:
        table = mi_depths(prepared.training_text(), recipe.model.encoder_layers)
    found = TokenDepths(
        table, prepared.tokenizer, config.special, config.scale, config.lambda_, config.unseen
    ).changed()
    found.check_layers(recipe.model.encoder_layers)
    return found


def make_stream(recipe: Recipe, prepared: Prepared, token_depths: TokenDepths | None) -> Stream:
    """The batches to train on."""
    data, tokens, seed = recipe.data, recipe.train.batch_tokens, recipe.train.seed
    stores = [part.train if data.augment is None else _augmented(data, prepared, part, seed) for part in prepared.parts]
    streams = [
        BatchStream(store, tokens, seed, data.is_labelled, part.spans)
        for store, part in zip(stores, prepared.parts, strict=True)
    ]
    sizes = [round(sum(span.pairs * span.weight for span in part.spans)) for part in prepared.parts]
    stream = streams[0] if len(streams) == 1 else PairStream(streams, sizes, data.sampling, data.temperature, seed)
    if token_depths is not None:
        assert isinstance(recipe.objective, WordDepthsConfig)
        choices = [token_depths.changed(scale) for scale in recipe.objective.scales] or [token_depths]
        return DepthStream(stream, choices, seed)
    if not data.is_text:
        return stream
    return MaskedStream(stream, data.masked, *mask_and_vocabulary(prepared.tokenizer), seed)


def _augmented(data: DataConfig, prepared: Prepared, part: PreparedPair, seed: int) -> AugmentedStore:
    assert data.augment is not None
    augmenter = Augmenter(data.augment, part.languages, seed)
    return AugmentedStore(part.train, augmenter, _encoding(data, prepared, part))


def _encoding(data: DataConfig, prepared: Prepared, part: PreparedPair) -> PairEncoder:
    symbol = None if part.tag is None else prepared.tokenizer.symbol_id(part.tag)
    first = [*prepared.tokenizer.opening, *([] if symbol is None else [symbol])]
    target = None if part.target_tag is None else prepared.tokenizer.symbol_id(part.target_tag)
    return PairEncoder(prepared.tokenizer, first, data.max_tokens, prepared.labels, () if target is None else (target,))


def make_validator(
    recipe: Recipe,
    prepared: Prepared,
    objective: TranslationObjective,
    device: torch.device,
    token_depths: TokenDepths | None,
) -> TranslationValidator:
    """What the trainer validates with, by the recipe's task."""
    depths = list(recipe.train.valid_depths)
    sets = [_validation_set(recipe, prepared, part, token_depths, device) for part in prepared.parts]
    return VALIDATORS[recipe.data.task](sets, prepared.tokenizer, objective.validated, depths, token_depths)


def _validation_set(
    recipe: Recipe,
    prepared: Prepared,
    part: PreparedPair,
    token_depths: TokenDepths | None,
    device: torch.device,
) -> ValidationSet:
    tokenizer = prepared.tokenizer
    pairs = part.valid_pairs[: recipe.train.valid_sentences]
    encoding = _encoding(recipe.data, prepared, part)
    sources = [encoding.first + ids for ids in encoding.sources([source for source, _ in pairs])]
    targets = [[*encoding.first_target, *ids] for ids in encoding.targets([target for _, target in pairs])]
    if recipe.data.is_text:
        batches = masked_batches(tokenizer, sources, recipe.data.masked, VALIDATION_SEED, VALIDATION_BATCH)
    else:
        labelled = recipe.data.is_labelled
        groups = alike([len(ids) for ids in (sources if labelled else targets)], VALIDATION_BATCH)
        batches = (
            Batch.from_rows([sources[i] for i in chosen], [targets[i] for i in chosen], labelled=labelled)
            for chosen in groups
        )
    if token_depths is not None:
        batches = map(token_depths.on, batches)
    return ValidationSet(part.name, pairs, [batch.to(device) for batch in batches], part.tag, part.target_tag)


def write_models(
    recipe: Recipe,
    run: Path,
    prepared: Prepared,
    objective: TranslationObjective,
    steps: list[int],
    token_depths: TokenDepths | None,
    plateau: Plateau | None = None,
) -> Finished:
    """Write the finished model, the mean of some checkpoints, to RUN/model, and pruned models to RUN/pruned."""
    if objective.state_dict():
        objective.load_state_dict(average_checkpoints(run, steps, "objective"))
    finished = objective.finish(average_checkpoints(run, steps), steps[-1])
    facts = {"data": _data_facts(recipe.data, prepared), "recipe": _recipe_facts(recipe)}
    about = [recipe.about.strip()] if recipe.about else []
    if plateau is not None:
        about.append(f"Warning: {plateau}.")
    if about:
        facts["about"] = {"text": "\n\n".join(about)}
    pairs = {part.name: LanguagePair(*part.languages, part.tag, part.target_tag) for part in prepared.parts}

    def write(folder: Path, model: Finished, pair: str = "") -> None:
        own = [pairs[pair]] if pair else list(pairs.values())
        languages = (own[0].source, own[0].target) if pair else recipe.data.languages
        content = saving.ModelContent(
            model.config,
            model.tensors,
            prepared.tokenizer,
            model.menu,
            languages,
            pairs=own,
            labels=prepared.labels,
            token_depths=token_depths,
            max_tokens=recipe.data.max_tokens if prepared.labels else None,
            lowercase_capitals=recipe.data.lowercase_capitals,
        )
        saving.save(folder, content, facts)

    for pair, smaller in finished.cut_out.items():
        write(run / PRUNED / pair, smaller, pair)
    write(run / "model", finished)
    return finished


def _recipe_facts(recipe: Recipe) -> dict[str, Any]:
    """For the model card: how it was trained, without paths, which are private."""
    how = recipe.model_dump(mode="json", exclude={"data", "about"}, exclude_none=True)
    if recipe.init_from is not None:
        how["init_from"] = recipe.init_from.name
    if isinstance(recipe.objective, WordDepthsConfig):
        how["objective"]["depths"] = Path(recipe.objective.depths).name
    if recipe.teacher is not None:
        how["teacher"]["model"] = Path(recipe.teacher.model).name
    return how


def _data_facts(data: DataConfig, prepared: Prepared) -> dict[str, Any]:
    """For the model card: where the text is from, and what cleaning left."""
    train = prepared.counts["train"]
    counts = list(train.values()) if len(prepared.parts) > 1 else [train]
    items = {"translation": "pairs", "text": "sentences", "labels": "texts"}[data.task]
    return {
        "corpus": "; ".join(corpus.title for pair in data.corpora for corpus in pair.training),
        "licence": data.licence or "not recorded",
        f"{items}_read": sum(count["read"] for count in counts),
        f"{items}_trained_on": sum(count["kept"] for count in counts),
    }
