"""Import: a translation model of Hugging Face transformers as a model folder, and whether it is the same model.

No code of the folder runs. If transformers is installed, both translate some sentences.
"""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anydepth.artifact.folder import LanguagePair, parameter_shapes
from anydepth.artifact.saving import ModelContent, save
from anydepth.config import ModelConfig
from anydepth.data.imported_tokenizer import ImportedTokenizer, read_fairseq, read_marian, read_object
from anydepth.data.tokenizer import Tokenizer
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.errors import UserError
from anydepth.files import atomic_folder
from anydepth.infer.translator import Translator
from anydepth.model.checkpoint_file import CheckpointFile
from anydepth.model.hf import check_hub, quiet_transformers
from anydepth.model.hf_translation import BIAS, TABLES, TensorMaker, check_settings, our_config, their_names
from anydepth.tensors import stream_tensors

HUB_FILES = ("*.json", "*.spm", "*.model", "README.md")
STEPS = 16  # of the outputs that are compared
CLOSE = 1e-4  # the largest difference of logits of the same model
SENTENCES = (
    "The cat sleeps.",
    "Le chat dort dans la cuisine, et le chien aussi.",
    "Ontem choveu muito em Lisboa.",
    "In 1987 kostete ein Brot noch 2,50 Mark!",
)


@dataclass(frozen=True)
class ImportCheck:
    """The model and its import, on the same sentences: the largest difference of logits, outputs with the same tokens,
    and sources with the same subwords, if transformers could load the tokenizer."""

    difference: float
    sentences: int
    same: int
    same_subwords: int | None

    @property
    def is_same(self) -> bool:
        return self.difference <= CLOSE and self.same == self.sentences


@dataclass(frozen=True)
class _Source:
    """A folder with a model, its settings, and what outputs begin with."""

    name: str
    folder: Path
    settings: dict[str, Any]
    tokenizer: ImportedTokenizer
    pairs: tuple[LanguagePair, ...]

    def config(self, names: Sequence[str], weights: CheckpointFile) -> ModelConfig:
        biased = BIAS in names and bool((weights.read(BIAS) != 0).any())
        return our_config(self.name, self.settings, output_bias=biased or min(self.tokenizer.target_rows) < 0)


def import_model(
    name: str, out: Path, pairs: Sequence[str] = (), *, check: bool = True, sentences: Sequence[str] = SENTENCES
) -> ImportCheck | None:
    """Write a model folder; `name` is a folder, or a model on the hub. `pairs` are language pairs such as fr-en.

    Returns how it compares with transformers, or None if that is not installed or not asked for. What differs is not
    kept.
    """
    folder = Path(name) if Path(name).exists() else _download(name)
    if not folder.is_dir():
        raise UserError(f"{name} is a file: give the folder of a Hugging Face model")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists already: choose another folder")
    if out.resolve() == folder.resolve():
        raise UserError(f"{out} is where the model itself is: choose another folder")
    source = _read_source(name, folder, pairs)
    reference = None
    if check and find_spec("transformers") is not None:
        reference = _Reference.load(source, sentences)
    result = None
    with atomic_folder(out.resolve()) as work:
        _write(source, work / "model")
        if reference is not None:
            result = reference.compare(work / "model")
        if result is not None and not result.is_same:
            raise UserError(
                f"the import does not translate as transformers does (logits differ by up to {result.difference:.1e}, "
                f"{result.same} of {result.sentences} outputs are the same); nothing was written: please report this"
            )
        for path in (work / "model").iterdir():
            path.rename(work / path.name)
        (work / "model").rmdir()
    return result


def _download(name: str) -> Path:
    """The files of a model on the hub that are needed, and no program."""
    check_hub(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        found = Path(snapshot_download(name, allow_patterns=[*HUB_FILES, "*.safetensors"]))
        if not any(found.glob("*.safetensors")):
            found = Path(snapshot_download(name, allow_patterns=[*HUB_FILES, "pytorch_model*.bin"]))
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise UserError(f"{name} cannot be downloaded from the hub: check the network") from error
    return found


def _read_source(name: str, folder: Path, asked: Sequence[str]) -> _Source:
    settings = read_object(folder / "config.json")
    if "model_type" not in settings:
        raise UserError(f"{name} has a config.json without model_type: give the folder of a Hugging Face model")
    check_settings(name, settings)
    options = folder / "tokenizer_config.json"
    about = read_object(options) if options.is_file() else {}
    generation = folder / "generation_config.json"
    start = settings.get("decoder_start_token_id")
    if start is None and generation.is_file():
        start = read_object(generation).get("decoder_start_token_id")
    kind = settings["model_type"]
    if kind == "marian" or (folder / "source.spm").is_file():
        if start is None:
            start = settings.get("pad_token_id")
        if not isinstance(start, int):
            raise UserError(f"the config.json of {name} lacks decoder_start_token_id: copy the model again")
        separate = bool(about.get("separate_vocabs", False)) or not settings.get(
            "share_encoder_decoder_embeddings", True
        )
        tokenizer = read_marian(folder, start, separate=separate and (folder / "target_vocab.json").is_file())
        names = (about.get("source_lang") or "source", about.get("target_lang") or "target")
        return _Source(name, folder, settings, tokenizer, _marian_pairs(name, tokenizer, asked, names))
    if kind == "pegasus":
        raise UserError(
            f"{name} has no source.spm: of Pegasus models only those that anydepth exported can be imported"
        )
    tokenizer = read_fairseq(folder, 2 if start is None else start, int(settings["vocab_size"]))
    old = kind == "mbart" and not _is_mbart50(settings, about, tokenizer)
    pairs = _language_pairs(name, tokenizer, asked, last=old or bool(about.get("legacy_behaviour", False)))
    if old:
        if len(pairs) > 1:
            raise UserError(f"outputs of {name} begin with a token of their language: import one pair at a time")
        (pair,) = pairs
        place = tokenizer.tokenizer.symbol_id(str(pair.target_tag))
        assert place is not None
        for rows in (tokenizer.source_rows, tokenizer.target_rows):
            rows[Tokenizer.BOS] = tokenizer.target_rows[place]
        pairs = (LanguagePair(pair.source, pair.target, pair.tag, tag_last=True),)
    return _Source(name, folder, settings, tokenizer, pairs)


def _is_mbart50(settings: dict[str, Any], about: dict[str, Any], tokenizer: ImportedTokenizer) -> bool:
    named = str(about.get("tokenizer_class") or settings.get("tokenizer_class") or "")
    return "50" in named if named else len(tokenizer.languages) > 25


def _marian_pairs(
    name: str, tokenizer: ImportedTokenizer, asked: Sequence[str], names: tuple[str, str]
) -> tuple[LanguagePair, ...]:
    if not tokenizer.languages:
        if len(asked) > 1:
            raise UserError(f"{name} translates one pair of languages: name one with --pair, or none")
        return (LanguagePair(*(_split_pair(asked[0]) if asked else names)),)
    if not asked:
        raise UserError(_choose(name, tokenizer))
    found = [_split_pair(one) for one in asked]
    return tuple(LanguagePair(source, target, _tag(name, tokenizer, target)) for source, target in found)


def _language_pairs(
    name: str, tokenizer: ImportedTokenizer, asked: Sequence[str], *, last: bool
) -> tuple[LanguagePair, ...]:
    if not asked:
        raise UserError(_choose(name, tokenizer))
    return tuple(
        LanguagePair(source, target, _tag(name, tokenizer, source), _tag(name, tokenizer, target), last)
        for source, target in map(_split_pair, asked)
    )


def _choose(name: str, tokenizer: ImportedTokenizer) -> str:
    some = ", ".join(list(tokenizer.languages)[:8])
    return (
        f"{name} translates between {len(tokenizer.languages)} languages ({some}, ...): name the pairs that you need, "
        "such as --pair fr-en"
    )


def _split_pair(pair: str) -> tuple[str, str]:
    source, _, target = pair.partition("-")
    if not source or not target or "-" in target:
        raise UserError(f"{pair!r} is no language pair: write source-target, such as fr-en")
    return source, target


def _tag(name: str, tokenizer: ImportedTokenizer, language: str) -> str:
    if language not in tokenizer.languages:
        known = ", ".join(list(tokenizer.languages)[:300])
        raise UserError(f"{name} does not know the language {language}; it has: {known}")
    return tokenizer.languages[language]


def _write(source: _Source, out: Path) -> None:
    weights = CheckpointFile(source.folder)
    names, tokenizer = weights.names, source.tokenizer
    config = source.config(names, weights)
    kind = weights.kind
    maker = TensorMaker(
        check_settings(source.name, source.settings),
        config,
        weights.read,
        names,
        (tokenizer.source_rows, tokenizer.target_rows),
    )
    vocabulary = tokenizer.tokenizer.vocabulary_size
    shapes = parameter_shapes(config, vocabulary, 0)
    _check_weights(source, weights, maker, shapes)

    def write(path: Path) -> None:
        dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
        stream_tensors(path, kind, shapes, lambda name: (part.to(dtype) for part in maker(name)))

    full = SubNetwork.prefix(config.encoder_layers, config.decoder_layers)
    pairs = source.pairs
    sources, targets = (", ".join(sorted({getattr(pair, side) for pair in pairs})) for side in ("source", "target"))
    facts: dict[str, Any] = {
        "data": {"imported_from": source.name, "model_type": source.settings["model_type"]},
        "about": {"text": f"Imported from `{source.name}`, a model of Hugging Face transformers."},
    }
    if (license_name := _license(source.folder)) is not None:
        facts["license"] = license_name
    content = ModelContent(config, write, tokenizer.tokenizer, DepthMenu.of([full]), (sources, targets), pairs=pairs)
    save(out, content, facts)


def _check_weights(
    source: _Source, weights: CheckpointFile, maker: TensorMaker, shapes: dict[str, tuple[int, ...]]
) -> None:
    """Before anything is written: all tensors are there, and as large as config.json says."""
    there = set(weights.names)
    tables = [f"{name}.weight" for name in TABLES]
    needed = [name for ours in shapes if ours not in (*tables, "output.bias") for name in their_names(ours)]
    try:
        needed += [maker.table_name(ours.rpartition(".")[0]) for ours in shapes if ours in tables]
    except KeyError as error:
        needed.append(error.args[0])
    if lacking := next((name for name in needed if name not in there), None):
        raise UserError(f"the weights of {source.name} lack {lacking}: copy the whole model")
    for ours in shapes:
        part = ours.rpartition(".")[0]
        if ours in tables:
            rows = max(source.tokenizer.source_rows if part == "source_embedding" else source.tokenizer.target_rows)
            found = weights.read(maker.table_name(part)).shape
            fits = len(found) == 2 and found[0] > rows and found[1] == shapes[ours][1]
        elif ours == "output.bias":
            fits = BIAS not in there or weights.read(BIAS).numel() > max(source.tokenizer.target_rows)
        else:
            parts = [weights.read(name).shape for name in their_names(ours)]
            offset = maker.family.offset if part in ("positions", "target_positions") else 0
            fits = sum(one[0] for one in parts) - offset == shapes[ours][0] and parts[0][1:] == shapes[ours][1:]
        if not fits:
            raise UserError(
                f"the weights of {source.name} do not fit its config.json or tokenizer at {ours}: copy it again"
            )


def _license(folder: Path) -> str | None:
    """As the model's card has it."""
    import yaml

    card = folder / "README.md"
    if not card.is_file():
        return None
    parts = card.read_text("utf-8", "replace").split("---", 2)
    try:
        head = yaml.safe_load(parts[1]) if len(parts) == 3 and not parts[0].strip() else None
    except yaml.YAMLError:
        return None
    found = head.get("license") if isinstance(head, dict) else None
    return found if isinstance(found, str) else None


class _Reference:
    """What transformers makes of some sentences. It is done before the import is loaded: one model at a time."""

    def __init__(
        self,
        source: _Source,
        sources: list[list[int]],
        outputs: list[list[int]],
        logits: list[Tensor],
        texts: list[str],
        same_subwords: int | None,
    ) -> None:
        self.source, self.sources, self.outputs, self.logits = source, sources, outputs, logits
        self.texts, self.same_subwords = texts, same_subwords

    @classmethod
    def load(cls, source: _Source, sentences: Sequence[str]) -> "_Reference":
        tokenizer, pair = source.tokenizer.tokenizer, source.pairs[0]
        texts = [text for text in sentences if tokenizer.encode(text)]
        ids = [as_read(tokenizer, pair, tokenizer.encode(text)) for text in texts]
        first = None if pair.target_tag is None else tokenizer.symbol_id(pair.target_tag)
        with quiet_transformers() as transformers:
            try:
                model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                    str(source.folder), local_files_only=True, trust_remote_code=False, **float32(transformers)
                )
            except Exception as error:  # transformers has no one type for what it cannot load
                raise UserError(f"transformers cannot load {source.name}: copy it again, or use --no-check") from error
            model.eval()
            found = [_their_output(model, source.tokenizer, one, first) for one in ids]
            same = _same_subwords(transformers, source, texts, ids)
        del model
        gc.collect()
        return cls(source, ids, [tokens for tokens, _ in found], [logits for _, logits in found], texts, same)

    def compare(self, out: Path) -> ImportCheck:
        translator = Translator.load(out, engine="torch", device="cpu").choices[0]
        first = translator.loaded.first_output
        full = translator.menu.default.subnetwork
        difference, same = 0.0, 0
        for text, ids, tokens, theirs in zip(self.texts, self.sources, self.outputs, self.logits, strict=True):
            ((best, *_),) = translator.hypotheses([text], max_length=STEPS, scores=False)
            same += [*best.tokens, *([Tokenizer.EOS] if best.ended else [])] == tokens
            begin = [Tokenizer.BOS, *([] if first is None else [first])]
            with torch.inference_mode():
                logits = translator.model(torch.tensor([ids]), torch.tensor([[*begin, *tokens[:-1]]]), full)[0]
            ours = logits[len(begin) - 1 :, self.compared]
            difference = max(difference, float((ours - theirs).abs().max()))
        return ImportCheck(difference, len(self.texts), same, self.same_subwords)

    @property
    def compared(self) -> list[int]:
        return _outputs(self.source.tokenizer)


def float32(transformers: Any) -> dict[str, torch.dtype]:
    """For `from_pretrained`, which had another name for it before version 4.56."""
    old = tuple(int(part) for part in transformers.__version__.split(".")[:2]) < (4, 56)
    return {"torch_dtype" if old else "dtype": torch.float32}


def as_read(tokenizer: Tokenizer, pair: LanguagePair, ids: Sequence[int]) -> list[int]:
    """As `LoadedModel.as_read` has it."""
    tag = [] if pair.tag is None else [tokenizer.symbol_id(pair.tag) or 0]
    return [*ids, Tokenizer.EOS, *tag] if pair.tag_last else [*tag, *ids, Tokenizer.EOS]


def _outputs(tokenizer: ImportedTokenizer) -> list[int]:
    """Our numbers of what may be generated."""
    return [i for i, row in enumerate(tokenizer.target_rows) if i >= Tokenizer.EOS and row >= 0]


def _their_output(
    model: Any, tokenizer: ImportedTokenizer, ids: Sequence[int], first: int | None
) -> tuple[list[int], Tensor]:
    """Greedy search with transformers: our numbers of its tokens, and the logits of each step of what may be
    generated."""
    outputs = _outputs(tokenizer)
    columns = torch.tensor([tokenizer.target_rows[i] for i in outputs])
    prefix = [tokenizer.target_rows[i] for i in (Tokenizer.BOS, *([] if first is None else [first]))]
    source = torch.tensor([[tokenizer.source_rows[i] for i in ids]])
    tokens: list[int] = []
    logits: list[Tensor] = []
    with torch.inference_mode():
        encoded = model.get_encoder()(source)
        for step in range(STEPS):
            target = torch.tensor([prefix + [tokenizer.target_rows[token] for token in tokens]])
            found = model(encoder_outputs=encoded, attention_mask=torch.ones_like(source), decoder_input_ids=target)
            logits.append(found.logits[0, -1, columns])
            allowed = logits[-1].clone()
            if step == 0:
                allowed[outputs.index(Tokenizer.EOS)] = float("-inf")
            tokens.append(outputs[int(allowed.argmax())])
            if tokens[-1] == Tokenizer.EOS:
                break
    return tokens, torch.stack(logits)


def _same_subwords(transformers: Any, source: _Source, texts: list[str], ids: list[list[int]]) -> int | None:
    """How many sentences the tokenizer of transformers splits as ours does."""
    pair, tokenizer = source.pairs[0], source.tokenizer
    languages: dict[str, str] = {}
    if pair.target_tag is not None or pair.tag_last:
        languages = {"src_lang": pair.source, "tgt_lang": pair.target}
    try:
        theirs = transformers.AutoTokenizer.from_pretrained(
            str(source.folder), local_files_only=True, trust_remote_code=False, **languages
        )
        before = pair.tag + " " if pair.tag is not None and not languages else ""
        found = [theirs(before + text)["input_ids"] for text in texts]
    except Exception:  # such as a package that it needs and that is not here
        return None
    return sum(int(one == [tokenizer.source_rows[i] for i in own]) for one, own in zip(found, ids, strict=True))
