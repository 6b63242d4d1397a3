"""The tokenizer of the C++ core against sentencepiece itself, on texts of many scripts, and with damaged models."""

import io
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from anydepth.data.capitals import is_in_capitals, to_capitals, to_sentence_case

ROOT = Path(__file__).parents[2]
CORE = ROOT / "csrc"
MODELS = [
    ROOT / "models" / "pt-en" / "tokenizer.model",
    ROOT / "tests" / "golden" / "model" / "tokenizer.model",
    ROOT / "tests" / "golden" / "classifier" / "tokenizer.model",
]
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D_GLIBCXX_ASSERTIONS")
LINES, LINES_OF_TRAINED_MODELS, RANDOM_MODELS, DAMAGED = 10_000, 1500, 24, 1000
# Far from linear time, a megabyte without spaces would take hours.
LIMIT_IN_SECONDS = 600

SCRIPTS = (
    (0x20, 0x7E), (0x00, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0xEFF),
    (0x1000, 0x109F), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x20FF), (0x2100, 0x2BFF), (0x2580, 0x2582),
    (0x3000, 0x33FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xE010), (0xF900, 0xFAFF),
    (0xFB00, 0xFEFF), (0xFF00, 0xFFEF), (0xFFF0, 0xFFFF), (0x1D400, 0x1D7FF), (0x1F000, 0x1FAFF), (0x20000, 0x2A6DF),
    (0xE0000, 0xE01EF), (0x10FFF0, 0x10FFFF),
)  # fmt: skip
EMOJI = ("👨‍👩‍👧‍👦", "👩🏽‍🚀", "🏳️‍🌈", "🇫🇷", "❤️", "☺️", "👍🏿", "🧑‍🤝‍🧑")
OTHERS = (
    "\0", "\t", "\n", "\r\n", "\x01", "\u2028", "\xa0", "\u200b", "\u3000", "\ufeff", "\xad", "\ufffd", "\u2047", "ﬁ",
    "①", "<s>", "</s>", "<unk>", "<pad>", "<0x41>", "<2en>", "<name>", "<name", "<name1>", "ABC", "AB", "x y", "▁▁",
)  # fmt: skip
WORDS = (
    "le", "la", "un", "une", "chat", "chiens", "mange", "mangent", "petit", "petite", "grand", "rouge", "été", "où",
    "naïve", "l'eau", "aujourd'hui", "Straße", "größer", "the", "cats", "sleep", "sleeping", "here,", "there.",
    "2024", "1999", "3.14", "100000", "niño", "señor", "ação", "coração", "žluťoučký", "kůň",
)  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "anydepth": {"byte_fallback": True, "control_symbols": ["<2en>", "<mask>"]},
    "unknown": {},
    "identity": {"normalization_rule_name": "identity", "byte_fallback": True},
    "identity-unknown": {"normalization_rule_name": "identity"},
    "case-folded": {"normalization_rule_name": "nfkc_cf", "byte_fallback": True},
    "case-folded-unknown": {"normalization_rule_name": "nfkc_cf"},
    "digits": {"split_digits": True, "byte_fallback": True},
    "symbols": {
        "user_defined_symbols": ["<name>", "<name1>", "ABC", "AB", "▁▁", "ﬁ", "e", "x y"],
        "byte_fallback": True,
    },
    "symbols-unknown": {"user_defined_symbols": ["<name>", "é", "un"], "control_symbols": ["a", "le"]},
    "suffix": {"treat_whitespace_as_suffix": True},
    "no-prefix": {"add_dummy_prefix": False, "byte_fallback": True},
    "all-spaces": {"remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True, "byte_fallback": True},
    "bare": {"remove_extra_whitespaces": False, "add_dummy_prefix": False, "unk_surface": "?"},
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler"),
]


def make_texts(count: int, seed: int) -> list[bytes]:
    """Words, characters of all scripts, emoji, combining marks and spaces, some with broken UTF-8."""
    rng = random.Random(seed)

    def part() -> str:
        def characters(low: int, high: int, most: int) -> str:
            return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, most)))

        return rng.choice(
            (
                lambda: rng.choice(WORDS),
                lambda: rng.choice(WORDS) + rng.choice(".,;!?"),
                lambda: characters(*rng.choice(SCRIPTS), 8),
                lambda: characters(*rng.choice(SCRIPTS), 8),
                lambda: rng.choice(EMOJI),
                lambda: rng.choice(OTHERS),
                lambda: " " * rng.randint(1, 5),
                lambda: rng.choice("aeiouAENc") + characters(0x300, 0x36F, 3),
                lambda: str(rng.randrange(10 ** rng.randint(1, 8))),
            )
        )()

    texts = []
    for _ in range(count):
        text = bytearray(rng.choice(("", " ")).join(part() for _ in range(rng.randint(1, 14))).encode())
        if rng.random() < 0.15:
            for _ in range(rng.randint(1, 4)):
                at = rng.randint(0, len(text))
                text[at : at + rng.randint(0, 1)] = bytes([rng.randint(0x80, 0xFF)]) if rng.random() < 0.6 else b""
        texts.append(bytes(text))
    return texts


def long_texts() -> list[bytes]:
    rng = random.Random(4)
    words = [rng.choice(WORDS) for _ in range(4000)]
    return [" ".join(words).encode(), "".join(words).encode(), b"", b" ", "▁".encode(), b"\0", b"\x01 a"]


def compile_driver(folder: Path, *flags: str) -> Path:
    program = folder / "tokenize"
    sources = [CORE / "tokenizer.cpp", CORE / "tests" / "tokenize.cpp"]
    command = [COMPILER, "-std=c++17", "-w", *flags, f"-I{CORE}", *sources, "-o", program]
    subprocess.run([str(part) for part in command], check=True, timeout=1200)
    return program


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("tokenizer"), "-O2")


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("sanitized"), *SANITIZERS)


def framed(texts: Sequence[bytes]) -> bytes:
    return b"".join(b"%d\n%s\n" % (len(text), text) for text in texts)


def run(program: Path, model: Path, *arguments: object, given: bytes) -> bytes:
    done = subprocess.run(
        [str(program), str(model), *map(str, arguments)], input=given, capture_output=True, timeout=LIMIT_IN_SECONDS
    )
    assert done.returncode == 0, (done.stdout[:500], done.stderr[-2000:])
    return done.stdout


def encode(driver: Path, model: Path, texts: Sequence[bytes]) -> list[list[int]]:
    return [[int(i) for i in line.split()] for line in run(driver, model, "encode", given=framed(texts)).splitlines()]


def decode(driver: Path, model: Path, ids: Sequence[Sequence[int]]) -> list[str]:
    lines = "".join(f"{' '.join(map(str, sequence))}\n" for sequence in ids)
    return [text.decode() for text in unframed(run(driver, model, "decode", given=lines.encode()))]


def unframed(data: bytes) -> list[bytes]:
    output, texts = io.BytesIO(data), []
    while length := output.readline():
        texts.append(output.read(int(length)))
        output.read(1)
    return texts


def assert_identical(driver: Path, model: Path, texts: Sequence[bytes]) -> None:
    """The same ids, and the same text from these and from random ids."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    expected = [processor.encode(text) for text in texts]
    found = encode(driver, model, texts)
    assert len(found) == len(expected)
    for text, one, other in zip(texts, found, expected, strict=True):
        assert one == other, text
    rng, size = random.Random(1), processor.vocab_size()
    sequences = [*expected]
    for ids in expected[: len(expected) // 4]:
        changed = [*ids]
        for _ in range(3):
            changed.insert(rng.randint(0, len(changed)), rng.randrange(rng.choice((min(size, 300), size))))
        sequences.append(changed)
    sequences += [
        [rng.randrange(rng.choice((4, min(size, 260), size))) for _ in range(rng.randint(0, 12))] for _ in range(1000)
    ]
    for ids, text in zip(sequences, decode(driver, model, sequences), strict=True):
        assert text == processor.decode(ids), ids


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.parent.name)
def test_models_of_the_project(driver, model):
    assert_identical(driver, model, make_texts(LINES, 1) + long_texts())


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("options", OPTIONS)
def test_trained_models(driver, tmp_path, kind, options):
    model = tmp_path / "tokenizer.model"
    model.write_bytes(train(kind, **OPTIONS[options]))
    assert_identical(driver, model, make_texts(LINES_OF_TRAINED_MODELS, 2) + long_texts())


def train(kind: str, **options: Any) -> bytes:
    rng = random.Random(3)
    lines = [" ".join(rng.choice(WORDS) for _ in range(10)) for _ in range(400)]
    lines += [text.decode("utf-8", "replace").replace("\0", "") for text in make_texts(15, 5)]
    model = io.BytesIO()
    chosen = {"normalization_rule_name": "nmt_nfkc", "character_coverage": 0.98, "vocab_size": 520, **options}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=kind, hard_vocab_limit=False, minloglevel=2,
        pad_id=0, unk_id=1, bos_id=2, eos_id=3, num_threads=1, **chosen,
    )  # fmt: skip
    return model.getvalue()


def edit(model: bytes, change: Callable[[Any], None]) -> bytes:
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    change(proto)
    return bytes(proto.SerializeToString())


def test_text_is_denormalised(driver, tmp_path):
    rules = tmp_path / "rules.tsv"
    rules.write_text("61\t41\n62 62\t42\n", "utf-8")  # a to A, bb to B
    model = tmp_path / "tokenizer.model"
    model.write_bytes(train("unigram", byte_fallback=True, denormalization_rule_tsv=str(rules)))
    assert_identical(driver, model, make_texts(500, 6))
    (text,) = decode(driver, model, encode(driver, model, [b"la abbe chat"]))
    assert text == "lA ABe chAt"


def test_lines_are_joined_as_in_python(driver):
    rng = random.Random(9)
    breaks = (
        "\n",
        "\r",
        "\v",
        "\f",
        "\x1c",
        "\x1d",
        "\x1e",
        "\x85",
        "\u2028",
        "\u2029",
        "a",
        " ",
        "é",
        "\x1f",
        "\u2027",
    )
    texts = ["".join(rng.choices(breaks, k=rng.randint(0, 12))) for _ in range(3000)]
    joined = unframed(run(driver, MODELS[1], "join", given=framed([text.encode() for text in texts])))
    assert [text.decode() for text in joined] == [" ".join(text.splitlines()) for text in texts]


def test_capitals_are_lowered_as_in_python(driver):
    characters = [chr(c) for c in range(1, 0x2100) if chr(c) != "\n"] + ["\U0001f600", "文"]
    rng = random.Random(4)
    texts = [f"ABCDE{one}.{one}{one} {one}" for one in characters]
    texts += ["".join(rng.choices("ABÉ?!. 12ÇŽЖΩa😀", k=rng.randint(0, 14))) for _ in range(3000)]
    found = unframed(run(driver, MODELS[1], "capitals", given=framed([text.encode() for text in texts])))
    expected = [to_sentence_case(text) if is_in_capitals(text) else text for text in texts]
    assert [text.decode() for text in found[::2]] == expected
    assert [text.decode() for text in found[1::2]] == [to_capitals(text) for text in expected]
    assert sum(text != lower for text, lower in zip(texts, expected, strict=True)) > 1000


@pytest.mark.parametrize("seed", range(RANDOM_MODELS))
def test_ties_and_rare_options(driver, tmp_path, seed):
    """Random pieces with few distinct scores, unused and user-defined ones among them."""
    rng = random.Random(seed)
    letters = "abc▁é語"[: rng.randint(2, 6)]
    proto = sentencepiece_model_pb2.ModelProto()

    def add(text: str, score: float, kind: int) -> None:
        piece = proto.pieces.add()
        piece.piece, piece.score, piece.type = text, score, kind

    add("<unk>", 0, 2)
    add("<s>", 0, 3)
    spec, normaliser = proto.trainer_spec, proto.normalizer_spec
    spec.byte_fallback = rng.random() < 0.4
    for byte in range(256 if spec.byte_fallback else 0):
        add(f"<0x{byte:02X}>", 0, 6)
    kinds = rng.choice(([1], [1, 1, 1, 1, 1, 4], [1, 1, 1, 5]))
    for text in sorted({"".join(rng.choices(letters, k=rng.randint(1, 5))) for _ in range(rng.randint(3, 60))}):
        add(text, rng.choice((-rng.randint(1, 4), -0.1 * rng.randint(1, 90), rng.random())), rng.choice(kinds))
    spec.model_type = 1 + seed % 2
    spec.treat_whitespace_as_suffix = rng.random() < 0.2
    normaliser.add_dummy_prefix = rng.random() < 0.7
    normaliser.remove_extra_whitespaces = rng.random() < 0.7
    normaliser.escape_whitespaces = rng.random() < 0.9
    model = tmp_path / "tokenizer.model"
    model.write_bytes(proto.SerializeToString())
    assert_identical(
        driver,
        model,
        ["".join(rng.choices(letters + " x", k=rng.choice((5, 20, 60, 400)))).encode() for _ in range(300)],
    )


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_megabyte_without_spaces(driver, tmp_path, kind):
    model = tmp_path / "tokenizer.model"
    model.write_bytes(train(kind, byte_fallback=True))
    texts = [
        b"a" * (1 << 20),
        b"lechat" * 170_000,
        "été".encode() * 200_000,
        b"\xff" * (1 << 20),
        "▁".encode() * 300_000,
    ]
    ids = encode(driver, model, texts)
    assert all(ids[:4])
    assert decode(driver, model, ids[:3]) == [text.decode() for text in texts[:3]]


@pytest.mark.parametrize("kind", ["unigram", "bpe", "identity"])
def test_damaged_models_do_no_harm(sanitized, tmp_path, kind):
    model = tmp_path / "tokenizer.model"
    options = {"normalization_rule_name": "identity"} if kind == "identity" else OPTIONS["symbols"]
    model.write_bytes(train("unigram" if kind == "identity" else kind, **options))
    given = framed(make_texts(12, 7))
    refused, _, ran, _ = run(sanitized, model, "damage", DAMAGED, 8, given=given).split()
    assert int(refused) > DAMAGED // 10
    assert int(ran) > DAMAGED // 10


def test_models_are_refused_with_a_reason(driver, tmp_path):
    model = train("unigram", byte_fallback=True)

    def change_type(proto: Any) -> None:
        proto.trainer_spec.model_type = 4

    def repeat(proto: Any) -> None:
        last = proto.pieces[-1]
        proto.pieces.add().CopyFrom(last)

    def drop_byte(proto: Any) -> None:
        del proto.pieces[next(i for i, piece in enumerate(proto.pieces) if piece.type == 6)]

    def drop_unknown(proto: Any) -> None:
        del proto.pieces[1]

    def break_map(proto: Any) -> None:
        proto.normalizer_spec.precompiled_charsmap = b"\xff\xff\xff\xffabc"

    def lengthen_unknown(proto: Any) -> None:
        proto.trainer_spec.unk_surface = "?" * 8000

    for damaged, reason in (
        (b"", "has no pieces"),
        (edit(model, lengthen_unknown), "has a text for what is unknown that is too long"),
        (b"{}", "is damaged, or is not a SentencePiece model"),
        (model[: len(model) // 2], "is damaged, or is not a SentencePiece model"),
        (edit(model, change_type), "is neither unigram nor BPE"),
        (edit(model, repeat), "has a piece twice"),
        (edit(model, drop_byte), "lacks pieces for some bytes"),
        (edit(model, drop_unknown), "has no unknown piece"),
        (edit(model, break_map), "has a damaged normalisation map"),
    ):
        path = tmp_path / "damaged"
        path.write_bytes(damaged)
        done = subprocess.run(
            [str(driver), str(path), "encode"], input=b"", capture_output=True, timeout=LIMIT_IN_SECONDS
        )
        assert done.returncode == 1
        assert done.stdout.decode().startswith(f"refused: the tokenizer model {reason}")
