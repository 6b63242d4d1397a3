"""The model folder: weights, config, tokenizer, depth menu and card. It has forgotten how it was trained.

config.json         format, sizes, languages and their pairs or labels, checksums of the files below, facts for the card
model.safetensors   the weights
tokenizer.model     sentencepiece; or tokenizer.json, which came with a pre-trained encoder
depths.json         the depth menu with measured cost and quality
word-depths.json    how deep each word goes, where that is known beforehand (word_depths/table.py)
README.md           the model card
selector/           the learned choice of a depth for each sentence, where one was trained (selectors/learned.py)
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from anydepth.artifact.folder import (
    FILES,
    WEIGHTS,
    WORD_DEPTHS,
    FolderConfig,
    LanguagePair,
    check_files,
    check_length,
    check_menu,
    check_pairs,
    parse_config,
    read_config,
    read_part,
)
from anydepth.artifact.model_file import Kind, ModelFile, is_model_file
from anydepth.artifact.weights import FileWeights, StoredWeights, damaged
from anydepth.config import ModelConfig
from anydepth.data.tokenizer import Tokenizer
from anydepth.depth import DepthMenu
from anydepth.device import choose_device, runs_on_cpu
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.artifact.arrays import ModelArrays
    from anydepth.model import Transformer
    from anydepth.selectors.learned import LearnedSelector
    from anydepth.word_depths.table import TokenDepths

BYTES_OF_FLOAT = 4
ENCODER_ALONE = "this is an encoder-only model (masked language model): it does not translate"


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model folder in memory: a model that translates, one that classifies, or an encoder alone.

    `Translator` and `Classifier` run it; `dataclasses.replace` makes a variant with the same weights.
    """

    weights: "Transformer | StoredWeights | FileWeights"
    tokenizer: Tokenizer
    menu: DepthMenu
    languages: tuple[str, str] = ("source", "target")
    folder: Path | None = None
    pairs: tuple[LanguagePair, ...] = ()
    pair: str | None = None  # the name of the one that was chosen among several
    tag: str | None = None  # what every source begins with, where there is such a symbol
    token_depths: "TokenDepths | None" = None  # where a table says how deep each word goes
    labels: tuple[str, ...] = ()  # of a model that classifies
    max_tokens: int | None = None  # at which texts were cut in training
    checksum: str | None = None  # of the weights' file
    lowercase_capitals: bool = False  # a text in capitals is read in lowercase, and its translation put in capitals

    def __post_init__(self) -> None:
        if not self.pairs:
            object.__setattr__(self, "pairs", (LanguagePair(*self.languages, self.tag),))

    @property
    def first_output(self) -> int | None:
        """What every output begins with: the tag of the target language, in models of others."""
        tag = self.pairs[0].target_tag if len(self.pairs) == 1 else None
        return None if tag is None else self._symbol(tag)

    @property
    def model(self) -> "Transformer":
        """In PyTorch."""
        return self.weights.model if isinstance(self.weights, StoredWeights | FileWeights) else self.weights

    @property
    def arrays(self) -> "ModelArrays":
        """In NumPy: of the model in memory or, where PyTorch's was not asked for, of the folder."""
        if isinstance(self.weights, StoredWeights) and not self.weights.is_in_memory:
            return self.weights.arrays
        from anydepth.artifact.arrays import ModelArrays  # NumPy, which many starts do without

        return ModelArrays.of_model(self.model)

    @property
    def config(self) -> ModelConfig:
        return self.weights.config

    @property
    def device(self) -> str:
        """Its type, such as cpu."""
        if isinstance(self.weights, StoredWeights | FileWeights) and runs_on_cpu(self.weights.device):
            return "cpu"
        return next(self.model.parameters()).device.type

    @property
    def kind(self) -> Literal["translator", "classifier", "encoder"]:
        if self.labels:
            return "classifier"
        return "translator" if self.config.decoder_layers > 0 else "encoder"

    @property
    def longest_source(self) -> int:
        """In subwords, leaving room for what begins and ends a text; no more than a classifier has learnt to read."""
        opening = len(self.tokenizer.opening)
        longest = self.config.max_length - 1 - opening - (0 if self.tag is None else 1)
        return longest if self.max_tokens is None else min(longest, self.max_tokens - opening)

    def as_read(self, ids: Sequence[int]) -> list[int]:
        """The subwords of a text as the encoder reads them. An empty text has no tag: it needs no search."""
        opening = list(self.tokenizer.opening)
        if self.tag is None or not ids:
            return [*opening, *ids, Tokenizer.EOS]
        tag = self._symbol(self.tag)
        if len(self.pairs) == 1 and self.pairs[0].tag_last:
            return [*opening, *ids, Tokenizer.EOS, tag]
        return [*opening, tag, *ids, Tokenizer.EOS]

    def _symbol(self, tag: str) -> int:
        found = self.tokenizer.symbol_id(tag)
        if found is None:
            raise UserError(f"the tokenizer does not know {tag}: take the one that the model was trained with")
        return found

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of weights, tokenizer and word depths: two models with the same give the same output at the same
        layers."""
        if isinstance(self.weights, FileWeights):
            return str(self.weights.file.header["fingerprint"])
        if isinstance(self.weights, StoredWeights) and self.text_parts in self.weights.fingerprints:
            return self.weights.fingerprints[self.text_parts]
        digest = hashlib.sha256(self.tokenizer.to_bytes())
        config, arrays = self.config, self.arrays
        if (config.encoder_shared, config.decoder_shared) != ("none", "none"):
            digest.update(repr((config.encoder_pattern, config.decoder_pattern)).encode())
        if config.halting:
            digest.update(repr(config.halting_confidence).encode())
        for name in arrays.names:
            digest.update(name.encode())
            digest.update(arrays[name].reshape(-1).view("u1").data)
        if self.token_depths is not None:
            digest.update(self.token_depths.to_bytes())
        return digest.hexdigest()

    @cached_property
    def text_parts(self) -> str:
        """A checksum of what the fingerprint covers besides the weights."""
        words = b"" if self.token_depths is None else self.token_depths.to_bytes()
        return hashlib.sha256(self.tokenizer.to_bytes() + words).hexdigest()

    def parameters(self, depth: str | None = None) -> int | None:
        """How many parameters a depth uses, each counted once. A model file does not say."""
        sub = self.menu[depth].subnetwork
        if isinstance(self.weights, FileWeights):
            return None
        if isinstance(self.weights, StoredWeights):
            return self.weights.parameters(sub)
        return sum(p.numel() for p in self.model.used_parameters(sub))

    def bytes(self, depth: str | None = None) -> int:
        """How much memory those take: of a model file as it is, otherwise in float32."""
        if isinstance(self.weights, FileWeights):
            sub = self.menu[depth].subnetwork
            return self.weights.file.weights_size(sub.encoder, sub.decoder)
        return BYTES_OF_FLOAT * (self.parameters(depth) or 0)

    @property
    def must_choose(self) -> bool:
        """Whether it matters which of its language pairs a text is of: with a tag or with layers of its own."""
        return len(self.pairs) > 1 and (_have_tags(self.pairs) or any(entry.pair for entry in self.menu))

    def choose_pair(self, source: str | None = None, target: str | None = None) -> "LoadedModel":
        """The same model for one of its language pairs: with the depths of that, under short names, and its tag.

        Where it does not matter which one a text is of, as in a model of one pair, there is nothing to choose.
        """
        found = [pair for pair in self.pairs if source in (None, pair.source) and target in (None, pair.target)]
        if not found:
            raise self._unknown_pair(source, target)
        if len(found) > 1 and self.must_choose:
            raise ambiguous_pair(found)
        if len(found) > 1 or len(self.pairs) == 1:
            return self
        (pair,) = found
        menu, languages = self.menu.of_pair(pair.name), (pair.source, pair.target)
        return replace(self, menu=menu, languages=languages, pairs=(pair,), pair=pair.name, tag=pair.tag)

    def _unknown_pair(self, source: str | None, target: str | None) -> UserError:
        if self.kind == "encoder":
            if target is not None:
                return UserError(ENCODER_ALONE)
            there = ", ".join(pair.source for pair in self.pairs)
            return UserError(f"this model was not trained on {source!r}; it has: {there}")
        wanted = " ".join(f"{word} {name!r}" for word, name in (("from", source), ("to", target)) if name is not None)
        return UserError(f"this model does not translate {wanted}; it has: {_names(self.pairs)}")

    @cached_property
    def selector(self) -> "LearnedSelector | None":
        """The learned selector in its folder, if there is one."""
        if self.folder is None or not (self.folder / "selector").exists():
            return None
        from anydepth.selectors.learned import load_selector

        return load_selector(self.folder, self.model, self.tokenizer, self.menu.whole, self.checksum)

    def why_no_selector(self) -> str | None:
        """If none can be trained for it, the reason."""
        weighted = [entry.name for entry in self.menu if entry.subnetwork.is_weighted]
        if self.kind == "encoder":
            return "this is an encoder-only model: a selector is for models that translate"
        if len(self.menu) == 1:
            return f"this model has one depth only, {self.menu.deepest.name}: there is nothing to choose"
        if self.must_choose or self.tag is not None or any(entry.pair for entry in self.menu.whole):
            return "a selector cannot be trained for a model of several language pairs yet: name a depth instead"
        if any(entry.subnetwork.by_word for entry in self.menu):
            return "a selector cannot be trained where each word has its own depth: name a depth instead"
        if weighted:
            return (
                f"a selector cannot be trained for depths whose layers have weights, such as {weighted[0]}: "
                "it is for models with several plain depths, such as tied-multi"
            )
        return None


def ambiguous_pair(pairs: Sequence[LanguagePair]) -> UserError:
    example = pairs[0]
    chosen = f'target_language="{example.target}"' if _have_tags(pairs) else f'source_language="{example.source}"'
    return UserError(f"this model has several language pairs, {_names(pairs)}: choose one, for instance with {chosen}")


def _have_tags(pairs: Sequence[LanguagePair]) -> bool:
    return len({(pair.tag, pair.target_tag) for pair in pairs}) > 1


def _names(pairs: Sequence[LanguagePair]) -> str:
    return ", ".join(pair.name for pair in pairs)


def resolve(path: Path | str) -> Path:
    """The model folder that a user means by naming it or the run it came from; a model file is itself."""
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"{path!r} is not a path: give the place of a model as a string or a Path")
    path = Path(path)
    if is_model_file(path):
        return path
    if (path / "config.json").is_file():
        return path
    if (path / "model" / "config.json").is_file():
        return path / "model"
    if not path.exists():
        raise UserError(f"there is no model at {path}: give a model folder, a model file (.anydepth) or a finished run")
    if (path / "recipe.json").is_file():
        raise UserError(f"the run {path} has not finished: give its training command again and it goes on")
    inside = sorted(config.parent.name for config in path.glob("*/config.json"))
    if inside:
        raise UserError(f"{path} is not a model but has some: choose one of {', '.join(inside)} in it")
    if path.is_file():
        raise UserError(
            f"{path} is no model: give a model folder or a model file (.anydepth); text comes from `< FILE`"
        )
    raise UserError(f"{path} is not a model folder: it has no config.json")


def load_model(path: Path | str, device: str = "cpu", *, defer: bool = False) -> LoadedModel:
    """A model folder, or that of a finished run, whatever kind of model it holds; or a model file.

    With `defer`, weights are not read before they are asked for.
    """
    folder = resolve(path)
    if is_model_file(folder):
        return _load_file(folder, device)
    if not runs_on_cpu(device):
        choose_device(device)
    with damaged(folder):
        config = read_config(folder)
        check_files(folder, config, set(FILES) - {WEIGHTS})
        check_length(folder / WEIGHTS)
        weights = StoredWeights(folder, config, device)
        if not defer:
            _ = weights.model
        menu = DepthMenu.from_json(read_part(folder / "depths.json"))
        words = folder / WORD_DEPTHS if config.words is not None else None
        return _assemble(weights, config, (folder / config.tokenizer).read_bytes(), menu, words, folder)


def _load_file(path: Path, device: str) -> LoadedModel:
    if device not in ("auto", "cpu"):
        raise UserError(f"the native engine runs {path} on CPUs, not on {device}: leave out the device")
    file = ModelFile.open(path)
    tokenizer, words = file.read(Kind.TOKENIZER), file.read(Kind.WORD_DEPTHS)
    if tokenizer is None or not {"config", "depths"} <= file.header.keys():
        raise UserError(
            f"{path} has weights but no tokenizer or menu: give its model folder, or a file of "
            "`anydepth export --to runtime`"
        )
    with damaged(path, "file"):
        config = parse_config(file.header["config"], path)
        menu = DepthMenu.from_json(file.header["depths"])
        table = None if words is None else json.loads(words)
        return _assemble(FileWeights(file, config.model), config, tokenizer, menu, table, None)


def _assemble(
    weights: StoredWeights | FileWeights,
    config: FolderConfig,
    tokenizer_bytes: bytes,
    menu: DepthMenu,
    words: Any,
    folder: Path | None,
) -> LoadedModel:
    """`words` is the table of word depths: where it is, or its JSON."""
    tokenizer = Tokenizer.from_bytes(tokenizer_bytes)
    check_menu(menu, config.model)
    check_pairs(config, menu, tokenizer)
    return LoadedModel(
        weights,
        tokenizer,
        menu,
        config.languages,
        folder,
        config.pairs,
        tag=config.pairs[0].tag if len(config.pairs) == 1 else None,
        token_depths=_token_depths(words, config, menu, tokenizer),
        labels=config.labels,
        max_tokens=config.max_tokens,
        checksum=config.files[WEIGHTS],
        lowercase_capitals=config.lowercase_capitals,
    )


def _token_depths(words: Any, config: FolderConfig, menu: DepthMenu, tokenizer: Tokenizer) -> "TokenDepths | None":
    by_word = any(entry.subnetwork.by_word for entry in menu)
    if by_word and config.words is None and not config.model.halting:
        raise ValueError("nothing says how deep each word goes")
    if config.words is None:
        return None
    from anydepth.word_depths.table import TokenDepths, WordDepths

    rule = config.words
    table = WordDepths.load(words) if isinstance(words, Path) else WordDepths.from_json(words)
    found = TokenDepths(table, tokenizer, rule.special, rule.scale, rule.lambda_, rule.unseen)
    found.check_layers(config.model.encoder_layers)
    return found
