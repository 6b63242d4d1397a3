"""Tiny translation models of transformers with random weights, in folders as they are on the hub."""

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch

LINES = [
    "le chat dort dans la cuisine.", "the cat sleeps in the kitchen.", "un grand chien voit le petit oiseau.",
    "a big dog sees the small bird.", "le petit oiseau mange ici, et le chien aussi.", "In 1987 it was 42 degrees!",
    "the bird eats here, and the dog does too.", "Ontem choveu muito em Lisboa.", "das Brot kostet 2,50 Mark.",
]  # fmt: skip
SIZES = {
    "d_model": 32, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64, "dropout": 0.0,
}  # fmt: skip
TEXTS = [*LINES, "Zut ! Ça, 42 € ?", "x", "日本 chat", "the the the the", "un chien, un oiseau."]


def train_pieces(lines: list[str], size: int, **options: Any) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 20),
        model_writer=model,
        vocab_size=size,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
        **options,
    )
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    return [processor.id_to_piece(i) for i in range(processor.vocab_size())]


def randomise(model: Any, seed: int = 1) -> Any:
    """Norms and biases too, which the library would start as ones and zeros."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:  # computed positions
                continue
            parameter.normal_(std=0.1 if parameter.ndim == 1 else 0.4)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1.0)
            if name.endswith(("shared.weight", "embed_tokens.weight", "lm_head.weight")):
                parameter.div_(parameter.norm(dim=1, keepdim=True))  # else one with a large norm is every output
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.2)
    return model.eval()


def save(model: Any, folder: Path, pickled: bool = False, **options: Any) -> None:
    """`pickled`: as older models are on the hub."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder, **options)
    if pickled:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")


def make_marian(
    folder: Path, *, languages: tuple[str, ...] = (), separate: bool = False, pickled: bool = False, **settings: Any
) -> Any:
    """The source and the target have pieces of their own, and vocab.json lacks one of each, and has more."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    source, target = train_pieces(LINES[::2], 90), train_pieces(LINES[1::2], 80, model_type="bpe")
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    tags = [f">>{name}<<" for name in languages]
    own = {side: pieces_of(model)[3:-2] for side, model in (("source", source), ("target", target))}
    if separate:
        vocabularies = [["</s>", "<unk>", *own[side], "<pad>"] for side in ("source", "target")]
        vocabularies[1].insert(3, vocabularies[1].pop())  # but the pad has the same number in both
        vocabularies[0].insert(3, vocabularies[0].pop())
    else:
        vocabularies = [["</s>", "<unk>", *tags, *dict.fromkeys([*own["target"], *own["source"]]), "▁never", "<pad>"]]
    for name, vocabulary in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=False):
        write_json(folder / name, {piece: i for i, piece in enumerate(vocabulary)})
    pad = vocabularies[0].index("<pad>")
    names = {"source_lang": "fr", "target_lang": "en", "tokenizer_class": "MarianTokenizer"}
    write_json(folder / "tokenizer_config.json", {**names, "separate_vocabs": separate})
    two = {"decoder_vocab_size": len(vocabularies[-1]), "share_encoder_decoder_embeddings": False}
    config = transformers.MarianConfig(
        **{
            **SIZES,
            "vocab_size": len(vocabularies[0]),
            "pad_token_id": pad,
            "decoder_start_token_id": pad,
            "eos_token_id": 0,
            "forced_eos_token_id": None,
            "activation_function": "swish",
            "scale_embedding": True,
            **(two if separate else {}),
            **settings,
        }
    )  # fmt: skip
    model = randomise(transformers.MarianMTModel(config))
    save(model, folder, pickled)
    return model


def make_m2m100(folder: Path, *, nllb: bool = False, pickled: bool = False, **settings: Any) -> Any:
    """M2M100 has a list of subwords; NLLB numbers those of SentencePiece."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    pieces = train_pieces(LINES, 120, model_type="bpe" if nllb else "unigram")
    (folder / "sentencepiece.bpe.model").write_bytes(pieces)
    listed = ["<s>", "<pad>", "</s>", "<unk>", *pieces_of(pieces)[3:]]
    if nllb:
        tokens = ["eng_Latn", "fra_Latn", "por_Latn"]
        write_json(folder / "special_tokens_map.json", {"additional_special_tokens": tokens})
        added = {i: {"content": token, "special": True} for i, token in enumerate([*tokens, "<mask>"], len(listed))}
        about = {"additional_special_tokens": tokens, "added_tokens_decoder": added}
        write_json(folder / "tokenizer_config.json", {"tokenizer_class": "NllbTokenizer", **about})
        size = len(listed) + len(tokens) + 1
    else:
        from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

        tokens = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
        write_json(folder / "vocab.json", {piece: i for i, piece in enumerate(listed)})
        write_json(folder / "special_tokens_map.json", {"additional_special_tokens": tokens})
        write_json(folder / "tokenizer_config.json", {"tokenizer_class": "M2M100Tokenizer"})
        size = len(listed) + len(tokens) + 8
    config = transformers.M2M100Config(
        **{**SIZES, "vocab_size": size, "activation_function": "relu", "scale_embedding": True, **settings}
    )
    model = randomise(transformers.M2M100ForConditionalGeneration(config))
    save(model, folder, pickled)
    return model


def make_mbart(folder: Path, *, old: bool = False, **settings: Any) -> Any:
    """mBART-50, or the first one."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    pieces = train_pieces(LINES, 120)
    (folder / "sentencepiece.bpe.model").write_bytes(pieces)
    kind = "MBartTokenizer" if old else "MBart50Tokenizer"
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": kind})
    if old:
        from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES as TOKENS
    else:
        from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as TOKENS

        write_json(folder / "special_tokens_map.json", {"additional_special_tokens": TOKENS})
    size = 1 + len(pieces_of(pieces)) + len(TOKENS) + 1
    own = {"vocab_size": size, "activation_function": "gelu", "scale_embedding": True}
    config = transformers.MBartConfig(**{**SIZES, **own, **settings})
    if not old:
        config.decoder_start_token_id = 2
    model = randomise(transformers.MBartForConditionalGeneration(config))
    with torch.no_grad():
        model.final_logits_bias.zero_()
    save(model, folder)
    return model
