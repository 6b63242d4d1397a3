"""Export to Hugging Face transformers: one depth as a folder that AutoModelForSeq2SeqLM loads, without remote code.

Imported models go back to their own family. Our pre-norm models are Pegasus there, post-norm ones without a norm after
the embeddings Marian: these have the same layers and, with the features in another order, the same positions.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anydepth.config import ModelConfig
from anydepth.data.sentencepiece_file import SPECIALS, Kind, read_pieces, target_model, with_pieces
from anydepth.data.tokenizer import PretrainedTokenizer, Tokenizer
from anydepth.depth import SubNetwork
from anydepth.engines.base import SearchBatch, SearchOptions, SearchResult
from anydepth.engines.search import never, run_search
from anydepth.errors import UserError
from anydepth.export.importing import float32
from anydepth.infer.translator import Translator
from anydepth.model.hf import quiet_transformers
from anydepth.model.hf_translation import ACTIVATIONS, BIAS, FAMILIES, reorder, their_feature_order, their_names
from anydepth.model.pruning import cut, fold
from anydepth.tensors import stream_tensors
from anydepth.word_depths.table import TokenDepths

OUR_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
FAIRSEQ_IDS = (1, 3, 0, 2)  # those of pad, unk, bos and eos in M2M100, NLLB and mBART; ours are 0 to 3
EPSILON = 1e-5  # of their norms; they cannot be given another


def choose_family(config: ModelConfig) -> str:
    """The model type that these layers are, or why there is none."""
    reasons = {
        f"residual {config.residual}": config.residual != "plain",
        "halting": config.halting,
        "token types": config.token_types > 0,
        f"norm_epsilon {config.norm_epsilon}": config.norm_epsilon != EPSILON,
        f"norm {config.norm}": config.norm == "none",
    }
    found = next(
        (
            kind
            for kind, family in FAMILIES.items()
            if (family.norm, family.positions) == (config.norm, config.positions)
            and family.embedding_norm == config.norms_embeddings
            and (family.positions == "learned") == config.target_positions
        ),
        None,
    )
    if found is None:
        norm = "an embedding norm" if config.norms_embeddings else "no embedding norm"
        reasons[f"norm {config.norm} and {config.positions} positions with {norm}"] = True
    if config.share_embeddings != "all" and not (config.share_embeddings == "target" and found == "marian"):
        reasons[f"share_embeddings {config.share_embeddings}"] = True
    if found == "m2m_100" and config.output_bias:
        reasons["an output bias with positions of fairseq"] = True
    if reason := next((reason for reason, there in reasons.items() if there), None):
        raise UserError(f"transformers has no model with {reason}: export to ctranslate2, onnx or anydepth")
    assert found is not None
    return found


def export_transformers(translator: Translator, sub: SubNetwork, folder: Path) -> "TransformersEngine":
    """Write the folder, and load it with transformers."""
    if sub.by_word:
        raise UserError("each word has its own depth here, which transformers cannot run: choose another depth")
    tokenizer, model = translator.tokenizer, translator.model
    if isinstance(tokenizer, PretrainedTokenizer):
        raise UserError("the tokenizer of this model is a tokenizer.json: export to anydepth")
    kind = choose_family(model.config)
    config, tensors = cut(model.config, {name: value.detach() for name, value in model.named_parameters()}, sub)
    alone = SubNetwork(
        tuple(range(len(sub.encoder))), tuple(range(len(sub.decoder))), sub.encoder_weights, sub.decoder_weights
    )
    tensors = fold(config, tensors, alone)
    fairseq = FAMILIES[kind].positions in ("fairseq", "learned")
    ids = _fairseq_ids(tokenizer) if fairseq else list(range(tokenizer.vocabulary_size))
    _write_weights(folder / "model.safetensors", kind, config, tensors, ids)
    pair = translator.pairs[0]
    first = translator.loaded.first_output
    _write_config(folder, kind, config, ids, None if first is None else ids[first])
    if fairseq:
        _write_fairseq_tokenizer(folder, kind, tokenizer, ids, translator)
    else:
        _write_marian_tokenizer(folder, tokenizer, (pair.source, pair.target))
    return TransformersEngine(folder, ids)


def _write_weights(path: Path, kind: str, config: ModelConfig, tensors: dict[str, Tensor], ids: Sequence[int]) -> None:
    family = FAMILIES[kind]
    order = None if family.positions == "learned" else their_feature_order(config.width)
    rows = torch.argsort(torch.tensor(ids))
    theirs: dict[str, Tensor] = {}
    for stack, pattern in (("encoder", config.encoder_pattern), ("decoder", config.decoder_pattern)):
        for layer, own in enumerate(pattern):  # shared ones become copies
            place = f"{stack}.layers.{pattern.index(own)}."
            for name in [name for name in tensors if name.startswith(place)]:
                _put(theirs, f"{stack}.layers.{layer}.{name.removeprefix(place)}", reorder(name, tensors[name], order))
    for name, tensor in tensors.items():
        part = name.rpartition(".")[0]
        if ".layers." in name:
            continue
        value = reorder(name, tensor, order)
        if name == "output.bias":
            theirs[BIAS] = value[rows][None]
        elif part in ("positions", "target_positions"):
            theirs[their_names(name)[0]] = torch.cat([value.new_zeros(family.offset, config.width), value])
        elif name == "target_embedding.weight":
            shared = config.share_embeddings == "all"
            theirs["model.shared.weight" if shared else "model.decoder.embed_tokens.weight"] = value[rows]
        elif name == "source_embedding.weight":
            theirs["model.encoder.embed_tokens.weight"] = value[rows]
        else:
            _put(theirs, name, value)
    if kind != "m2m_100" and BIAS not in theirs:
        theirs[BIAS] = torch.zeros(1, len(ids))
    shapes = {name: tuple(tensor.shape) for name, tensor in theirs.items()}
    stream_tensors(path, "F32", shapes, lambda name: [theirs[name].float().cpu()], {"format": "pt"})


def _put(theirs: dict[str, Tensor], ours: str, tensor: Tensor) -> None:
    names = their_names(ours)
    theirs.update(zip(names, tensor.chunk(len(names)), strict=True))


def _write_config(folder: Path, kind: str, config: ModelConfig, ids: Sequence[int], first: int | None) -> None:
    pad, unknown, start, end = ids[:4]
    family = FAMILIES[kind]
    sizes = {"attention_heads": config.heads, "ffn_dim": config.ffn}
    special = {"pad_token_id": pad, "bos_token_id": start, "eos_token_id": end, "decoder_start_token_id": start}
    settings = {
        "model_type": kind,
        "architectures": [family.architecture],
        "is_encoder_decoder": True,
        "vocab_size": len(ids),
        "d_model": config.width,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()},
        "max_position_embeddings": config.max_length + (family.positions != "learned"),
        "activation_function": OUR_ACTIVATIONS[config.activation],
        "scale_embedding": config.scales_embeddings,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": 0.0,
        "tie_word_embeddings": True,
        "forced_eos_token_id": None,
        "dtype": "float32",
        **special,
    }
    if kind == "marian":
        shared = config.share_embeddings == "all"
        settings |= {"share_encoder_decoder_embeddings": shared, "decoder_vocab_size": len(ids)}
    generation = {
        **special,
        "num_beams": 1,
        "max_length": config.max_length,
        "min_new_tokens": 1 + (first is not None),
        "suppress_tokens": [pad, unknown, start],
        **({} if first is None else {"forced_bos_token_id": first}),
    }
    _write_json(folder / "config.json", settings)
    _write_json(folder / "generation_config.json", generation)


def _write_marian_tokenizer(folder: Path, tokenizer: Tokenizer, languages: tuple[str, str]) -> None:
    """MarianTokenizer reads SentencePiece models as they are, with a list of numbers: ours."""
    data = tokenizer.to_bytes()
    target = target_model(data)
    pieces = read_pieces(data, tokenizer.file_name)
    source = with_pieces(data, pieces)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(source if target is None else target)
    _write_json(folder / "vocab.json", {piece.text: i for i, piece in enumerate(pieces)})
    names = dict(zip(("source_lang", "target_lang"), languages, strict=True))
    _write_json(folder / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer", **names})


def _fairseq_ids(tokenizer: Tokenizer) -> list[int]:
    return [*FAIRSEQ_IDS, *range(4, tokenizer.vocabulary_size)]


def _write_fairseq_tokenizer(
    folder: Path, kind: str, tokenizer: Tokenizer, ids: Sequence[int], translator: Translator
) -> None:
    """The SentencePiece model as fairseq has it, whose numbers are one less, and the tokens that are no text."""
    data = tokenizer.to_bytes()
    pieces = read_pieces(data, tokenizer.file_name)
    control = {i: piece.text for i, piece in enumerate(pieces) if i > 3 and piece.kind == Kind.CONTROL}
    text = [piece for i, piece in enumerate(pieces) if i > 3 and i not in control]
    _, unknown, begin, end = SPECIALS
    (folder / "sentencepiece.bpe.model").write_bytes(with_pieces(data, [unknown, begin, end, *text]))
    pair = translator.pairs[0]
    about: dict[str, Any] = {"src_lang": pair.source, "tgt_lang": pair.target}
    listed = all(name.startswith("__") for name in control.values() if name != "<mask>") and bool(control)
    if listed:
        numbers = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
        numbers |= {piece.text: ids[i] for i, piece in enumerate(pieces) if i > 3 and i not in control}
        _write_json(folder / "vocab.json", numbers)
        about["tokenizer_class"] = "M2M100Tokenizer"
    else:
        about["added_tokens_decoder"] = {str(ids[i]): {"content": name, "special": True} for i, name in control.items()}
        prefixed = {"m2m_100": "NllbTokenizer", "mbart": "MBartTokenizer" if pair.tag_last else "MBart50Tokenizer"}
        about["tokenizer_class"] = prefixed[kind]
        if kind == "m2m_100":
            about["legacy_behaviour"] = pair.tag_last
    languages = [name for name in control.values() if name != "<mask>"]
    if kind == "m2m_100" and not listed:
        about["additional_special_tokens"] = languages
    if not pair.tag_last or kind == "m2m_100":
        _write_json(folder / "special_tokens_map.json", {"additional_special_tokens": languages})
    _write_json(folder / "tokenizer_config.json", about)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


class TransformersEngine:
    """Our search over the logits of an exported model, to compare its tokens with those of its source."""

    name, compute_type = "transformers", "float32"
    search_shortlist = False
    why_no_exits: str | None = "a model of transformers has one depth"

    def __init__(self, folder: Path, ids: Sequence[int]) -> None:
        with quiet_transformers() as transformers:
            try:
                self.model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                    str(folder), local_files_only=True, trust_remote_code=False, **float32(transformers)
                ).eval()
            except Exception as error:  # transformers has no one type for what it cannot load
                raise UserError(f"transformers cannot load the export ({error}): please report this") from error
        self.ids = torch.tensor(ids)

    @property
    def threads(self) -> int:
        return torch.get_num_threads()

    def prepare(self, subs: Iterable[SubNetwork]) -> None:
        pass

    def search(
        self,
        subs: Sequence[SubNetwork],
        batches: Iterable[SearchBatch],
        options: SearchOptions,
        token_depths: TokenDepths | None = None,
    ) -> Iterator[list[SearchResult]]:
        for sources, limits in batches:
            with torch.inference_mode():
                yield [run_search(_TheirSteps(self, sources), limits, options) for _ in subs]


class _TheirSteps:
    """`Steps` of search, in the plainest way: each computes the whole target again."""

    device = torch.device("cpu")

    def __init__(self, engine: TransformersEngine, sources: list[list[int]]) -> None:
        self._model, self._ids = engine.model, engine.ids
        longest = max(map(len, sources))
        own_bs = torch.tensor([row + [Tokenizer.PAD] * (longest - len(row)) for row in sources])
        self._mask_bs = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in sources])
        encoded = self._model.get_encoder()(input_ids=self._ids[own_bs], attention_mask=self._mask_bs)
        self._memory = encoded.last_hidden_state
        self._target_rt = torch.empty(len(sources), 0, dtype=torch.long)
        self.ran: list[int] = []

    def step(self, tokens_r: Tensor) -> Tensor:
        beams = len(tokens_r) // len(self._memory)
        self._target_rt = self._target_rt.repeat_interleave(len(tokens_r) // len(self._target_rt), 0)
        self._target_rt = torch.cat([self._target_rt, self._ids[tokens_r][:, None]], dim=1)
        logits = self._model(
            encoder_outputs=(self._memory.repeat_interleave(beams, 0),),
            attention_mask=self._mask_bs.repeat_interleave(beams, 0),
            decoder_input_ids=self._target_rt,
        ).logits[:, -1]
        self.ran = [self._model.config.decoder_layers] * len(tokens_r)
        found: Tensor = never(logits[:, self._ids].clone())
        return found

    def keep_rows(self, rows: Tensor) -> None:
        self._target_rt = self._target_rt[rows]

    def keep_sentences(self, sentences: Tensor) -> None:
        self._memory, self._mask_bs = self._memory[sentences], self._mask_bs[sentences]
