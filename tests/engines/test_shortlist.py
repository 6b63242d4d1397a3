"""Shortlists: what a source suggests is learnt from a corpus, kept with the model, and searched by both engines."""

import shutil

import numpy as np
import pytest
from conftest import toy_pairs

import anydepth
from anydepth.artifact.model import load_model
from anydepth.data import Tokenizer
from anydepth.engines.core import NativeModel
from anydepth.engines.shortlist import NAME, Shortlist, build_shortlist
from anydepth.errors import UserError
from anydepth.export.runtime import export_runtime
from anydepth.export.sample import SampleText
from anydepth.infer.translator import on_engine
from anydepth.serve.workers import ModelSource

PAIRS = toy_pairs(3000, seed=31)
TEXTS = [source for source, _ in toy_pairs(60, seed=77)]


@pytest.fixture(scope="module")
def listed(toy_run, tmp_path_factory):
    """A model folder with a shortlist in it."""
    folder = shutil.copytree(toy_run / "model", tmp_path_factory.mktemp("listed") / "model")
    made, covered = build_shortlist(load_model(folder), PAIRS, per_token=6, always=4)
    made.save(folder)
    return anydepth.load(folder, engine="torch"), made, covered


def test_words_suggest_their_translations(listed):
    translator, made, _ = listed
    tokenizer = translator.tokenizer
    for word, meaning in (("chat", "cat"), ("chien", "dog"), ("dort", "sleeps")):
        (token,), (wanted,) = (tokenizer.encode(one)[-1:] for one in (word, meaning))
        own = made.outputs[made.offsets[token] : made.offsets[token + 1]].tolist()
        assert wanted in own
        assert len(own) <= 6
    assert Tokenizer.EOS in made.always
    assert min(made.always) >= Tokenizer.EOS


def test_what_was_held_out_is_covered(listed):
    _, made, covered = listed
    assert covered.pairs == len(PAIRS) // 20
    assert 0.97 < covered.covered <= 1
    assert covered.mean_size < made.offsets.size - 1


@pytest.mark.parametrize("engine", ["native", "ctranslate2"])
@pytest.mark.parametrize("beam", [1, 3])
def test_engines_find_the_same_among_fewer(listed, engine, beam):
    translator, made, _ = listed
    whole, fewer = (on_engine(translator, engine, 1, shortlist=listed) for listed in (False, True))
    expected, found = (one.hypotheses(TEXTS, beam=beam, batch_size=1) for one in (whole, fewer))
    assert sum(a[0].text == b[0].text for a, b in zip(expected, found, strict=True)) >= len(TEXTS) - 3
    for text, hypotheses in zip(TEXTS, found, strict=True):
        allowed = made.candidates(translator.as_read(translator.tokenizer.encode(text)))
        assert all(token in allowed for one in hypotheses for token in one.tokens)


@pytest.mark.parametrize("beam", [1, 2])
def test_a_sentence_has_its_own_list_whatever_else_is_in_its_batch(listed, beam):
    native = on_engine(listed[0], "native", 1, shortlist=True)
    assert native.hypotheses(TEXTS, batch_size=1, beam=beam) == native.hypotheses(TEXTS, batch_size=60, beam=beam)


@pytest.fixture(scope="module")
def copying(toy_run, tmp_path_factory):
    """A model whose shortlists are the source's own subwords: it is seen whether it is used."""
    folder = shutil.copytree(toy_run / "model", tmp_path_factory.mktemp("copying") / "model")
    vocabulary = load_model(folder).tokenizer.vocabulary_size
    nothing = np.empty(0, np.int32)
    Shortlist(nothing, np.zeros(vocabulary + 1, np.int32), nothing).save(folder)
    return folder


def test_it_is_used_where_the_model_has_one_unless_it_is_switched_off(copying, toy_run, tmp_path):
    whole = anydepth.load(toy_run, engine="native").translate(TEXTS)
    fewer = anydepth.load(copying, shortlist=True).translate(TEXTS)
    assert fewer != whole
    assert anydepth.load(copying).translate(TEXTS) == fewer
    assert anydepth.load(copying, engine="native").translate(TEXTS, batch_size=1) == fewer
    assert anydepth.load(copying, shortlist=False).translate(TEXTS) == whole
    assert ModelSource(copying, engine="auto").load(1).translate(TEXTS) == fewer
    translator = anydepth.load(copying, engine="torch")
    assert on_engine(translator, "ctranslate2").translate(TEXTS) == on_engine(
        translator, "ctranslate2", shortlist=False
    ).translate(TEXTS)

    sample = SampleText(TEXTS, None, "these", True)
    for shortlist, expected in ((True, fewer), (False, whole)):
        file = tmp_path / f"{shortlist}.anydepth"
        export_runtime(translator, file, sample, 1, shortlist=shortlist)
        assert anydepth.load(file).translate(TEXTS) == expected
        native = NativeModel(file)
        assert native.has_shortlist is shortlist
        assert native.translate(TEXTS, translator.menu.default.name) == expected


def test_drafts_from_the_list_leave_the_output_as_it_is(listed):
    translator, _, _ = listed
    plain, drafting = (
        on_engine(translator, "native", 1, speculate=drafts, shortlist=False) for drafts in (False, True)
    )
    assert drafting.hypotheses(TEXTS, batch_size=1) == plain.hypotheses(TEXTS, batch_size=1)
    both = on_engine(translator, "native", 1, speculate=True, shortlist=True)
    listed_only = on_engine(translator, "native", 1, shortlist=True)
    assert both.hypotheses(TEXTS, batch_size=1) == listed_only.hypotheses(TEXTS, batch_size=1)


def test_the_vmap_of_an_export_has_the_same_lists(listed):
    translator, made, _ = listed
    names = translator.tokenizer.pieces(range(translator.tokenizer.vocabulary_size))
    lines = [line.split("\t") for line in made.vmap(names).splitlines()]
    of = {key: values.split() for key, values in lines}
    assert of[""] == [names[i] for i in made.always]
    token = translator.tokenizer.encode("chat")[-1]
    own = made.outputs[made.offsets[token] : made.offsets[token + 1]]
    assert of[names[token]] == [names[i] for i in sorted({token, *own.tolist()})]


def test_a_model_without_one_says_how_to_make_it(toy_run):
    with pytest.raises(UserError, match="make one with `anydepth shortlist`"):
        on_engine(anydepth.load(toy_run, engine="torch"), "native", shortlist=True)
    with pytest.raises(UserError, match="torch computes the whole vocabulary"):
        on_engine(anydepth.load(toy_run, engine="torch"), "torch", shortlist=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: Shortlist(s.always, s.offsets[:-1], s.outputs),
        lambda s: Shortlist(s.always, s.offsets[::-1].copy(), s.outputs),
        lambda s: Shortlist(s.always, s.offsets, s.outputs[:-1]),
        lambda s: Shortlist(np.array([9999], np.int32), s.offsets, s.outputs),
        lambda s: Shortlist(s.always, s.offsets, -s.outputs),
    ],
)
def test_one_that_does_not_fit_is_refused(listed, tmp_path, damage):
    translator, made, _ = listed
    folder = shutil.copytree(translator.folder, tmp_path / "model")
    damage(made).save(folder)
    with pytest.raises(UserError, match="make it again with `anydepth shortlist`"):
        on_engine(anydepth.load(folder, engine="torch"), "native", shortlist=True)


def test_a_torn_file_is_refused(listed, tmp_path):
    folder = shutil.copytree(listed[0].folder, tmp_path / "model")
    path = folder / NAME
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(UserError, match="is damaged"):
        on_engine(anydepth.load(folder, engine="torch"), "native", shortlist=True)
