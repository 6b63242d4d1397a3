"""The native engine classifies as PyTorch does, up to int8; and to the bit as it does itself in another way."""

import math
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import anydepth
from labelled_texts import toy_texts
from without_imports import run_without_torch

import anydepth as api
from anydepth.artifact.model_file import FileSection, ModelFile, build_model_file
from anydepth.config import ModelConfig
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.base import Classified, ClassifierDepths, ExitRule
from anydepth.engines.core import NativeModel, kernels
from anydepth.engines.native import NativeEngine
from anydepth.engines.native_format import packed
from anydepth.engines.packed import NAME
from anydepth.engines.torch import TorchEngine
from anydepth.errors import UserError
from anydepth.infer.classifier import Classification, Classifier
from anydepth.model import Transformer

pytest_plugins = ["made_classifiers"]

LAYERS, VOCABULARY, CLASSES = 4, 50, 3
SIZES = {"width": 64, "heads": 4, "ffn": 96, "encoder_layers": LAYERS, "decoder_layers": 0, "max_length": 64}
BERT = {"norm": "post", "activation": "gelu", "positions": "learned", "token_types": 2, "norm_epsilon": 1e-12}
KINDS = {
    "plain": {},
    "BERT": BERT,
    "halting": BERT | {"halting": True},
    "most probable": {"halting": True, "halting_confidence": 0.0},
    "no norms": {"norm": "none", "residual": "rezero"},
    "dense": {"residual": "dlcl"},
    "recurrent": {"encoder_shared": "all"},
    "odd sizes": {"width": 36, "heads": 6, "ffn": 50},
}
FAST = [name for name in ("avx512-vnni", "avx2", "neon-dot", "neon", "plain") if kernels(name)]
FULL, WORDS, PREFIX = SubNetwork.prefix(LAYERS, 0), SubNetwork.words(LAYERS, 0), SubNetwork.prefix(2, 0)
ALL_EXITS = tuple(range(1, LAYERS + 1))
TEXTS = [text for text, _ in toy_texts(200, seed=11)] + ["", "zzz 😀 unheard of"]


def random_classifier(**changes: object) -> Transformer:
    """Every parameter has some value of its own."""
    torch.manual_seed(3)
    model = Transformer(ModelConfig(**SIZES | changes), VOCABULARY, CLASSES).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def sources_of(seed: int, lengths: tuple[int, ...] = (1, 4, 9, 17, 30, 64)) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[*rng.integers(4, VOCABULARY, length - 1).tolist(), 3] for length in lengths]


def engines(model: Transformer, name: str | None = None, threads: int = 1) -> tuple[NativeEngine, TorchEngine]:
    native = NativeModel(packed(model), name)
    return NativeEngine(native, model.config, DepthMenu.of([FULL]), threads), TorchEngine(model)


def logits(found: list[Classified]) -> np.ndarray:
    """Up to a constant of each text."""
    values = np.log([one.probabilities for one in found])
    return values - values.mean(axis=1, keepdims=True)


def error(found: list[Classified], expected: list[Classified]) -> float:
    return float(np.linalg.norm(logits(found) - logits(expected)) / np.linalg.norm(logits(expected)))


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_the_logits_of_torch(kind, name):
    native, ref = engines(random_classifier(**KINDS[kind]), name)
    for sub in (FULL, PREFIX, SubNetwork((0, 2), ()), SubNetwork((0, 1, 3), (), (1.0, 0.5, 0.25))):
        found, expected = (one.classify(sub, sources_of(1), ClassifierDepths()) for one in (native, ref))
        assert error(found, expected) < 0.04, sub.name
        assert [one.depths.tolist() for one in found] == [one.depths.tolist() for one in expected]
        assert all(math.isclose(sum(one.probabilities), 1.0, abs_tol=1e-5) for one in found)


class ByTable:
    """Depths as a table of words would give them: here each token's is a number of its own."""

    def of(self, ids):
        return [1 + (7 * i + token) % LAYERS for i, token in enumerate(ids)]

    def of_many(self, sources):
        return [self.of(source) for source in sources]

    def tensor(self, source_bs):
        rows = [[0 if token == 0 else depth for token, depth in zip(row, self.of(row), strict=True)] for row in
                source_bs.tolist()]  # fmt: skip
        return torch.tensor(rows)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("kind", ["plain", "BERT", "recurrent", "odd sizes"])
def test_every_word_runs_its_own_layers_and_then_keeps_its_state(kind, name):
    native, ref = engines(random_classifier(**KINDS[kind]), name)
    depths = ClassifierDepths(table=ByTable())
    found, expected = (one.classify(WORDS, sources_of(1), depths) for one in (native, ref))
    assert error(found, expected) < 0.04
    assert [one.depths.tolist() for one in found] == [one.depths.tolist() for one in expected]
    full = ref.classify(FULL, sources_of(1), ClassifierDepths())
    assert error(full, expected) > 0.1  # or nothing was tried


@pytest.mark.parametrize("kind", ["plain", "BERT", "dense", "recurrent"])
@pytest.mark.parametrize("rule", [("confidence", 0.5), ("confidence", 0.6), ("patience", 2), ("patience", 3)])
def test_a_text_leaves_by_the_rule_of_its_own_exits(kind, rule):
    """The exits themselves are compared with torch above; which of them is taken must follow from what they say."""
    native, ref = engines(random_classifier(**KINDS[kind]))
    sources = sources_of(2, (3, 5, 8, 13, 21, 34, 55) * 4)
    at_exits = [native.classify(SubNetwork.prefix(n, 0), sources, ClassifierDepths()) for n in ALL_EXITS]
    left = []
    for exits in (ALL_EXITS, (2, 4)):
        depths = ClassifierDepths(exit_rule=ExitRule(*rule, exits))
        found = native.classify(FULL, sources, depths)
        for number, one in enumerate(found):
            (depth,) = set(one.depths.tolist())
            assert depth == first_exit(rule, exits, [each[number].probabilities for each in at_exits])
            if kind != "dense":  # whose exits read all layers up to them, and so do those of the whole
                assert one.probabilities == at_exits[depth - 1][number].probabilities
            left.append(depth)
        alike = [
            one.depths[0] == other.depths[0]
            for one, other in zip(found, ref.classify(FULL, sources, depths), strict=True)
        ]
        assert sum(alike) >= 0.9 * len(alike)
    if kind == "plain":
        assert len(set(left)) > 1


def first_exit(rule, exits, at_exits):
    """By hand."""
    kind, value = rule
    labels: list[int] = []
    for layers in exits:
        found = at_exits[layers - 1]
        labels.append(int(np.argmax(found)))
        if kind == "confidence" and max(found) >= np.float32(value):
            return layers
        if kind == "patience" and labels[-int(value) :] == [labels[-1]] * int(value):
            return layers
    return LAYERS


@pytest.mark.parametrize("kind", ["halting", "most probable"])
@pytest.mark.parametrize("scale", [1.0, 0.5, 2.0])
def test_the_halting_unit_says_what_it_says_to_torch(kind, scale):
    native, ref = engines(random_classifier(**KINDS[kind]))
    sources = sources_of(3, (5, 17, 40, 64) * 3)
    found, expected = (one.classify(WORDS, sources, ClassifierDepths(halting_scale=scale)) for one in (native, ref))
    ours, theirs = (np.concatenate([one.depths for one in each]) for each in (found, expected))
    assert (ours == theirs).mean() > 0.97  # a unit that hardly prefers one depth may say another in int8
    assert len(set(ours.tolist())) > 1 or scale == 2.0


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("kind", ["BERT", "odd sizes"])
@pytest.mark.parametrize(
    ("sub", "depths"),
    [
        (FULL, ClassifierDepths()),
        (FULL, ClassifierDepths(exit_rule=ExitRule("confidence", 0.5, (1, 2)))),
        (WORDS, ClassifierDepths(table=ByTable())),
    ],
)
def test_a_text_does_not_depend_on_its_batch_or_on_threads(kind, sub, depths, name):
    model = random_classifier(**KINDS[kind])
    sources = sources_of(4, (3, 64, 9, 12, 1, 33, 64, 64, 64, 64, 64, 64, 20))  # more rows than the core takes at once
    one, three, six = (engines(model, name, threads=count)[0] for count in (1, 3, 6))
    alone = [one.classify(sub, [source], depths)[0] for source in sources]
    for engine in (one, three, six):
        for count in (len(sources), 4):  # threads share texts, or if there are too few layers
            together = engine.classify(sub, sources[:count], depths)
            assert [x.probabilities for x in together] == [x.probabilities for x in alone[:count]]
            assert [x.depths.tolist() for x in together] == [x.depths.tolist() for x in alone[:count]]
        assert engine.classify(sub, [], depths) == []


@pytest.fixture(scope="module", params=["static", "mi", "halting"])
def trained(request, static_run, by_mi_run, halting_run) -> tuple[Classifier, Classifier]:
    run = {"static": static_run, "mi": by_mi_run, "halting": halting_run}[request.param]
    return Classifier.load(run, engine="native", threads=1), Classifier.load(run, engine="torch", device="cpu")


def margin(found: Classification) -> float:
    *_, second, best = sorted(found.probabilities)
    return best - second


def test_a_trained_model_finds_the_same_labels_at_every_depth(trained):
    native, ref = trained
    for depth in ref.depths:
        found, expected = (one.classify(TEXTS, depth=depth) for one in trained)
        others = [two for one, two in zip(found, expected, strict=True) if one.label != two.label]
        assert len(others) <= 0.02 * len(TEXTS)
        assert all(margin(one) < 0.05 for one in others)  # torch itself was of two minds
        assert max(abs(one.probability - other.probability) for one, other in zip(found, expected, strict=True)) < 0.1
        if native.loaded.config.halting:
            continue
        assert [(one.depth, one.computed) for one in found] == [(one.depth, one.computed) for one in expected]


def test_options_of_a_trained_model_are_taken(by_mi_run, halting_run):
    for run, options in (
        (by_mi_run, {"scale": 0.5}),
        (halting_run, {"scale": 0.5}),
        (halting_run, {"exit": "patience:2"}),
    ):
        native, ref = (Classifier.load(run, engine=name, device="cpu") for name in ("native", "torch"))
        found, expected = (one.classify(TEXTS, **options) for one in (native, ref))
        assert sum(one.label == other.label for one, other in zip(found, expected, strict=True)) >= len(TEXTS) - 1
        layers = [np.mean([one.depth for one in each]) for each in (found, expected)]
        assert layers[0] == pytest.approx(layers[1], rel=0.02)
        assert layers[0] < np.mean([one.depth for one in native.classify(TEXTS, depth="3-0")])
        words = native.explain(TEXTS[0], **options)[1]
        assert [word.text for word in words] == [word.text for word in ref.explain(TEXTS[0], **options)[1]]


def test_threads_look_up_the_same_depths(by_mi_run):
    one, several = (Classifier.load(by_mi_run, engine="native", threads=n).classify(TEXTS) for n in (1, 6))
    assert one == several
    classifier = Classifier.load(by_mi_run, engine="native")
    sources = classifier.read(TEXTS)
    alone = [classifier.token_depths.of(source) for source in sources]
    assert classifier.token_depths.of_many(sources) == alone
    assert classifier.token_depths.of_many([]) == []


def test_auto_is_native_where_that_runs(static_run, tmp_path):
    fast = kernels() != "plain"
    assert Classifier.load(static_run).engine.name == ("native" if fast else "torch")
    assert isinstance(api.load(static_run, engine="native").engine, NativeEngine)
    assert "native int8, 2 threads" in repr(Classifier.load(static_run, engine="native", threads=2))
    with pytest.raises(UserError, match='takes models that translate; this one classifies: use engine="native"'):
        Classifier.load(static_run, engine="ctranslate2")


def test_the_verb_names_the_engine(static_run):
    given = "\n".join(TEXTS[:20]).encode()
    native, ref, auto = (
        anydepth("classify", static_run, "--engine", name, "--threads", 1, stdin=given)
        for name in ("native", "torch", "auto")
    )
    assert native.returncode == ref.returncode == 0, (native.stderr, ref.stderr)
    assert auto.stdout in (native.stdout, ref.stdout)
    labels = [[line.split(b"\t")[0] for line in one.stdout.splitlines()] for one in (native, ref)]
    assert labels[0] == labels[1]
    wrong = anydepth("classify", static_run, "--engine", "ctranslate2", stdin=given)
    assert wrong.returncode == 2
    assert wrong.stderr.count(b"\n") == 1


def test_the_native_engine_imports_no_torch(by_mi_run, tmp_path):
    """Neither at the first start, when it packs the model, nor later."""
    folder = tmp_path / "model"
    shutil.copytree(by_mi_run / "model", folder, ignore=shutil.ignore_patterns(NAME))
    text = TEXTS[0]
    expected = Classifier.load(by_mi_run, engine="native").classify(text)
    for _ in range(2):
        found = run_without_torch(
            f"from anydepth import Classifier\nc = Classifier.load({str(folder)!r}, engine='native')\n"
            f"found = c.classify({text!r})\nprint(found.label, found.probability, found.depth)",
            ("torch",),
        )
        assert found.split() == [expected.label, str(expected.probability), str(expected.depth)]
        assert (folder / NAME).is_file()


def test_the_verb_imports_no_torch_at_the_first_start(static_run, tmp_path):
    folder, source = tmp_path / "model", tmp_path / "texts"
    shutil.copytree(static_run / "model", folder, ignore=shutil.ignore_patterns(NAME))
    source.write_text(f"{TEXTS[0]}\n", "utf-8")
    argv = ["anydepth", "classify", str(folder), "--engine", "native", "--threads", "1"]
    found = run_without_torch(
        f"import os\nos.dup2(os.open({str(source)!r}, os.O_RDONLY), 0)\n"
        f"from anydepth.cli import main\nsys.argv = {argv!r}\nmain()",
        ("torch",),
    )
    assert found.split("\t")[0] == Classifier.load(static_run, engine="native").classify(TEXTS[0]).label


@pytest.fixture(scope="module")
def data() -> bytes:
    return packed(random_classifier(**KINDS["halting"]))


def with_core(data: bytes, folder: Path, **changes: object) -> bytes:
    """The file with other values in its header; None takes one out."""
    (folder / "file").write_bytes(data)
    file = ModelFile.open(folder / "file")
    sections = [FileSection(one.kind, one.index, data[one.offset : one.offset + one.size]) for one in file.places]
    core = {key: value for key, value in {**file.header["core"], **changes}.items() if value is not None}
    return build_model_file({**file.header, "core": core}, sections, struct.unpack_from("<I", data, 8)[0])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"classes": 4}, "shorter than its header says"),
        ({"classes": 2}, "does not|longer|not|shorter"),
        ({"classes": 0}, "out of range|whole number|number"),
        ({"classes": 1 << 30}, "."),
        ({"classes": None}, "out of range"),
        ({"halting": None}, "longer than its header says"),
        ({"halting": 2.0}, "no probability"),
        ({"tied_output": True}, "one table of subwords"),
        ({"shared_target": False}, "one table of subwords"),
        ({"decoder": [0]}, "out of range"),
        ({"encoder": []}, "out of range"),
    ],
)
def test_what_is_wrong_with_a_file_is_refused(data, tmp_path, changes, reason):
    with pytest.raises(UserError, match=reason):
        NativeModel(with_core(data, tmp_path, **changes))


def test_the_file_says_that_it_is_of_a_later_version(data, static_run):
    assert struct.unpack_from("<I", data, 8)[0] == 4
    assert struct.unpack_from("<I", packed(random_classifier(**KINDS["plain"])), 8)[0] == 5  # sinusoidal positions
    assert NativeModel(data).classes == CLASSES
    changed = bytearray(data)
    struct.pack_into("<I", changed, 8, 7)
    with pytest.raises(UserError, match="another version of anydepth"):
        NativeModel(bytes(changed))


def test_what_cannot_be_asked_is_refused(data):
    native, config = NativeModel(data), random_classifier(**KINDS["halting"]).config
    engine = NativeEngine(native, config, DepthMenu.of([FULL]), 1)
    for sub, sources, depths, reason in (
        (SubNetwork.prefix(5, 0), [[5, 3]], ClassifierDepths(), "no such layers"),
        (FULL, [[VOCABULARY, 3]], ClassifierDepths(), "not in the vocabulary"),
        (FULL, [[]], ClassifierDepths(), "a sentence is empty"),
        (FULL, [[5] * 65], ClassifierDepths(), "longer than the model takes"),
        (FULL, [[5, 3]], ClassifierDepths(exit_rule=ExitRule("patience", 2, (2, 1))), "ascend"),
        (FULL, [[5, 3]], ClassifierDepths(exit_rule=ExitRule("patience", 2, (5,))), "ascend"),
        (WORDS, [[5, 3]], ClassifierDepths(halting_scale=-1.0), "scale of depths"),
    ):
        with pytest.raises(UserError, match=reason):
            engine.classify(sub, sources, depths)
    plain = NativeModel(packed(random_classifier()))
    with pytest.raises(UserError, match="has no halting unit"):
        plain.classify(WORDS, [[5, 3]], ClassifierDepths())
