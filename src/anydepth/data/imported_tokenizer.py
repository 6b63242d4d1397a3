"""The tokenizers of translation models of Hugging Face transformers, as they are, with our numbers.

Marian has a SentencePiece model for each side and a list of subwords, vocab.json; M2M100 one model and such a list;
NLLB and mBART one model, whose subwords are numbered from 1 more.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anydepth.data.sentencepiece_file import SPECIALS, Kind, Piece, read_pieces, with_pieces
from anydepth.data.tokenizer import Tokenizer
from anydepth.errors import UserError

SPM = "sentencepiece.bpe.model"
FAIRSEQ_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # numbers 0 to 3 of M2M100, NLLB and mBART
MBART_LANGUAGES = [  # of the first mBART, whose folders do not name them
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX", "kk_KZ",
    "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN",
]  # fmt: skip


@dataclass(frozen=True)
class ImportedTokenizer:
    """A tokenizer, and for each of its subwords the number that it has in the tables of source and target of the model.

    -1 is a subword that the model has no output for. `languages` are the tokens of languages, by their codes.
    """

    tokenizer: Tokenizer
    source_rows: list[int]
    target_rows: list[int]
    languages: dict[str, str]


def read_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"there is no {path.name} in {path.parent}: give the whole folder of the model") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged: copy the model again") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} is damaged: copy the model again")
    return found


def read_marian(folder: Path, start: int, *, separate: bool) -> ImportedTokenizer:
    """`start` is the number of the token that outputs begin with; `separate`: the target has subwords of its own."""
    source, target = (_read_bytes(folder / f"{side}.spm") for side in ("source", "target"))
    numbers = _numbers(folder / "vocab.json")
    target_numbers = _numbers(folder / "target_vocab.json") if separate else numbers
    pieces = {side: read_pieces(data, f"{side}.spm") for side, data in (("source", source), ("target", target))}
    names = [*numbers, *(name for name in target_numbers if name not in numbers)]
    texts = [piece.text for side in pieces.values() for piece in side if piece.kind not in (Kind.UNKNOWN, Kind.CONTROL)]
    known = set(names)
    specials = {piece.text for piece in SPECIALS}
    # Those that SentencePiece knows and the model does not are unknown to it.
    names += [name for name in dict.fromkeys(texts) if name not in known]
    names = [name for name in names if name not in specials]
    of_specials = [_number(numbers, name, folder) for name in ("<pad>", "<unk>", "</s>")]
    pad, unknown, end = of_specials
    target_pad, target_unknown, target_end = (
        _number(target_numbers, name, folder) for name in ("<pad>", "<unk>", "</s>")
    )
    languages = {name[2:-2]: name for name in names if name.startswith(">>") and name.endswith("<<")}
    built = [_with_names(pieces[side], names, set(languages.values())) for side in ("source", "target")]
    other = with_pieces(target, built[1])
    return ImportedTokenizer(
        Tokenizer.from_bytes(with_pieces(source, built[0], other)),
        [pad, unknown, start, end, *(numbers.get(name, unknown) for name in names)],
        [target_pad, target_unknown, start, target_end, *(target_numbers.get(name, -1) for name in names)],
        languages,
    )


def read_fairseq(folder: Path, start: int, vocabulary: int) -> ImportedTokenizer:
    """Of M2M100, NLLB or mBART; `vocabulary` is how many subwords the model has."""
    model = _read_bytes(folder / SPM)
    pieces = read_pieces(model, SPM)
    texts = [piece.text for piece in pieces if piece.kind not in (Kind.UNKNOWN, Kind.CONTROL)]
    listed = (folder / "vocab.json").is_file()
    if listed:
        numbers = _numbers(folder / "vocab.json")
    else:
        numbers = {name: number for number, name in enumerate(FAIRSEQ_SPECIALS)}
        numbers |= {piece.text: number + 1 for number, piece in enumerate(pieces) if number >= 3}
    after = max(numbers.values()) + 1
    tokens = _added_tokens(folder, after)
    if not tokens and not listed:
        tokens = {name: after + number for number, name in enumerate(MBART_LANGUAGES)}
    control = [name for name, number in tokens.items() if name not in numbers and 0 <= number < vocabulary]
    numbers |= {name: tokens[name] for name in control}
    names = [name for name in numbers if name not in FAIRSEQ_SPECIALS and numbers[name] < vocabulary]
    known = set(names)
    names += [name for name in texts if name not in known and name not in FAIRSEQ_SPECIALS]
    pad, unknown, end = (_number(numbers, name, folder) for name in ("<pad>", "<unk>", "</s>"))
    of_languages = [name for name in control if name != "<mask>" and not name.startswith("<")]
    return ImportedTokenizer(
        Tokenizer.from_bytes(with_pieces(model, _with_names(pieces, names, set(control)))),
        [pad, unknown, start, end, *(numbers.get(name, unknown) for name in names)],
        [pad, unknown, start, end, *(numbers.get(name, -1) for name in names)],
        {name.strip("_") if name.startswith("__") else name: name for name in of_languages},
    )


def _with_names(own: Sequence[Piece], names: Sequence[str], control: set[str]) -> list[Piece]:
    """Pieces in our order; those that this side never splits text into are unused."""
    there = {piece.text: piece for piece in own}
    unused = Piece("", 0.0, Kind.UNUSED)
    found = []
    for name in names:
        kind = Kind.CONTROL if name in control else there.get(name, unused).kind
        found.append(Piece(name, there.get(name, unused).score, kind))
    return [*SPECIALS, *found]


def _added_tokens(folder: Path, after: int) -> dict[str, int]:
    """The tokens that are no text, such as those of languages, with their numbers: from the first file that has them.

    Where none has numbers, they follow the others.
    """
    if (path := folder / "tokenizer_config.json").is_file():
        added = read_object(path).get("added_tokens_decoder", {})
        if found := {token["content"]: int(number) for number, token in added.items()}:
            return found
    if (path := folder / "tokenizer.json").is_file():
        added = read_object(path).get("added_tokens", [])
        if found := {token["content"]: int(token["id"]) for token in added}:
            return found
    if (path := folder / "added_tokens.json").is_file():
        return {name: int(number) for name, number in read_object(path).items()}
    if (path := folder / "special_tokens_map.json").is_file():
        listed = read_object(path).get("additional_special_tokens", [])
        return {name if isinstance(name, str) else name["content"]: after + i for i, name in enumerate(listed)}
    return {}


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(
            f"there is no {path.name} in {path.parent}, the SentencePiece model of its tokenizer: copy it there"
        ) from error


def _numbers(path: Path) -> dict[str, int]:
    found = read_object(path)
    if not all(isinstance(number, int) for number in found.values()):
        raise UserError(f"{path} is damaged: copy the model again")
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _number(numbers: Mapping[str, int], name: str, folder: Path) -> int:
    if name not in numbers:
        raise UserError(f"the vocabulary in {folder} has no {name}: copy the model again")
    return numbers[name]
