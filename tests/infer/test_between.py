"""Models of several language pairs: the choice of one, its tag, its depths. The toy one speaks English, and loudly."""

import json
import shutil

import pytest
import torch
from conftest import python

import anydepth
from anydepth.artifact import saving
from anydepth.artifact.folder import LanguagePair
from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.base import SearchOptions
from anydepth.engines.torch import search
from anydepth.errors import UserError

TEXTS = ["le chat dort.", "", "un grand chien voit le petit oiseau.", "le chat."]
SOFT = SubNetwork((0, 1), (0, 1), decoder_weights=(1.0, 0.75))
WHOLE = SubNetwork.prefix(2, 2)


def save_again(there, folder, menu=None, pairs=None):
    """The same model with another menu or other pairs."""
    tensors = {name: value.detach().clone() for name, value in there.model.named_parameters()}
    pairs = there.pairs if pairs is None else pairs
    config, menu = there.model.config, menu or there.menu
    content = saving.ModelContent(config, tensors, there.tokenizer, menu, there.languages, pairs)
    saving.save(folder, content, {})
    return anydepth.load(folder, engine="torch")


@pytest.fixture
def both(two_targets_run):
    return anydepth.load(two_targets_run, engine="torch")


@pytest.mark.slow
def test_a_pair_is_a_translator_with_its_languages_and_tag(both):
    assert [pair.name for pair in both.pairs] == ["fr-en", "fr-loud"]
    assert (both.languages, both.pair, both.tag) == (("fr", "en, loud"), None, None)
    loud = both.between(target="loud")
    assert (loud.languages, loud.pair, loud.tag) == (("fr", "loud"), "fr-loud", "<2loud>")
    assert loud.between("fr", "loud").tag == "<2loud>"
    assert loud.model is both.model
    assert both.tag is None  # it is a copy


@pytest.mark.slow
def test_a_tag_decides_the_language(both):
    quiet, loud = (both.between(target=target).translate(TEXTS) for target in ("en", "loud"))
    assert (quiet[0], loud[0]) == ("the cat sleeps.", "THE CAT SLEEPS.")
    assert quiet[1] == loud[1] == ""
    assert quiet == [line.lower() for line in quiet]
    assert loud == [line.upper() for line in loud]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.slow
def test_decoding_with_a_tag_is_decoding_with_it_put_in_by_hand(both, beam):
    tag = both.tokenizer.symbol_id("<2loud>")
    sources = [[tag, *both.tokenizer.encode(text), Tokenizer.EOS] for text in TEXTS if text]
    options = SearchOptions(beam=beam, nbest=beam, length_penalty=0.6)
    loud = both.between(target="loud")
    for depth in both.menu.names:
        limits = [2 * len(source) + 10 for source in sources]
        expected = search(both.model, both.menu[depth].subnetwork, sources, limits, options)
        found = loud.hypotheses([text for text in TEXTS if text], depth=depth, beam=beam, nbest=beam)
        assert [[one.tokens for one in best] for best in found] == [[one.tokens for one in best] for best in expected]


@pytest.mark.slow
def test_the_tag_takes_one_place_of_the_longest_source(both):
    loud = both.between(target="loud")
    fits = "chat " * 80
    assert (both.longest_source, loud.longest_source) == (63, 62)
    with pytest.raises(UserError, match="the limit is 62"):
        loud.translate([fits])
    assert loud.translate([fits], cut_long=True, max_length=5)[0].startswith("CAT")
    assert loud.as_read([]) == [Tokenizer.EOS]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"target": "es"}, "does not translate to 'es'; it has: fr-en, fr-loud"),
        ({"source": "en", "target": "fr"}, "does not translate from 'en' to 'fr'; it has"),
        ({"target": ""}, "does not translate to ''; it has"),
        (
            {"source": "fr"},
            r"several language pairs, fr-en, fr-loud: choose one, for instance with target_language=.en.",
        ),
        ({}, r"several language pairs, fr-en, fr-loud: choose one, for instance with target_language=.en."),
    ],
)
@pytest.mark.slow
def test_what_is_not_there_or_not_clear_is_refused(both, wanted, words):
    with pytest.raises(UserError, match=words):
        both.between(**wanted)


@pytest.mark.slow
def test_without_a_choice_nothing_is_translated(both):
    for attempt in (both.translate, both.every_depth, lambda texts: next(both.stream(texts))):
        with pytest.raises(UserError, match="several language pairs, fr-en, fr-loud: choose one"):
            attempt(["le chat."])


def test_a_model_of_one_pair_is_that_pair(toy_run):
    plain = anydepth.load(toy_run, engine="torch")
    assert plain.between() is plain.between("fr", "en") is plain
    assert not plain.must_choose
    with pytest.raises(UserError, match="does not translate to 'loud'; it has: fr-en"):
        plain.between(target="loud")
    config = json.loads((toy_run / "model" / "config.json").read_text())
    assert config["format"] == 1
    assert "pairs" not in config


@pytest.mark.slow
def test_depths_of_their_own(both, tmp_path):
    """Each pair has its layers; a soft entry weighs them and is no default."""
    menu = DepthMenu([*DepthMenu.of([SubNetwork((0,), (0, 1)), SOFT], "fr-en"), *DepthMenu.of([WHOLE], "fr-loud")])
    again = save_again(both, tmp_path / "model", menu)
    quiet, loud = again.between(target="en"), again.between(target="loud")
    assert (quiet.menu.names, loud.menu.names) == (["1-2", "2-2-soft"], ["2-2"])
    assert quiet.hypotheses(["le chat."])[0][0].depth == "1-2"
    assert quiet.translate(TEXTS) == both.between(target="en").translate(TEXTS, depth="1-2")
    with pytest.raises(UserError, match="no depth 2-2-soft; it has: 2-2"):
        loud.translate(TEXTS, depth="2-2-soft")


@pytest.mark.slow
def test_a_soft_entry_decodes_as_without_a_cache(both, tmp_path):
    soft = save_again(both, tmp_path / "model", DepthMenu.of([SOFT])).between(target="en")
    plain = both.between(target="en")
    source = soft.as_read(soft.tokenizer.encode(TEXTS[2]))
    target = [Tokenizer.BOS]
    with torch.no_grad():
        while target[-1] != Tokenizer.EOS:
            logits_tv = soft.model(torch.tensor([source]), torch.tensor([target]), SOFT)[0]
            plain_tv = plain.model(torch.tensor([source]), torch.tensor([target]), WHOLE)[0]
            target.append(int(logits_tv[-1, Tokenizer.EOS :].argmax()) + Tokenizer.EOS)
    assert soft.hypotheses([TEXTS[2]], depth="2-2-soft")[0][0].tokens == tuple(target[1:-1])
    assert not torch.allclose(logits_tv, plain_tv)  # the weights do count
    best, *_ = soft.hypotheses([TEXTS[2]], length_penalty=0.0)[0]
    logits_tv[:, : Tokenizer.EOS] = -torch.inf
    by_hand = logits_tv.log_softmax(-1)[range(len(target) - 1), target[1:]].sum()
    assert best.score == pytest.approx(float(by_hand), abs=1e-4)


def test_many_into_one_needs_no_choice_where_all_is_shared(toy_run, tmp_path):
    pairs = [LanguagePair("fr", "en"), LanguagePair("es", "en")]
    plain = anydepth.load(toy_run, engine="torch")
    again = save_again(plain, tmp_path / "model", pairs=pairs)
    assert again.translate(TEXTS) == plain.translate(TEXTS)
    assert again.between(target="en") is again
    assert again.between("es").pair == "es-en"
    assert again.between("es").translate(TEXTS) == plain.translate(TEXTS)
    own = save_again(plain, tmp_path / "own", DepthMenu([*DepthMenu.of([WHOLE], "fr-en"), *plain.menu]), pairs)
    with pytest.raises(UserError, match=r"fr-en, es-en: choose one, for instance with source_language=.fr."):
        own.translate(TEXTS)
    assert own.between("fr").translate(TEXTS) == plain.translate(TEXTS)


@pytest.mark.slow
def test_one_pair_cut_out_keeps_its_tag(both, tmp_path):
    loud = save_again(both.between(target="loud"), tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["format"] == 2
    assert (loud.tag, loud.pair, loud.languages, loud.longest_source) == ("<2loud>", None, ("fr", "loud"), 62)
    assert loud.translate(TEXTS) == both.between(target="loud").translate(TEXTS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda pairs: pairs + pairs[:1], "some occur twice"),
        (lambda pairs: [{**pairs[0], "tag": None}, pairs[1]], "no tag for fr-en"),
        (lambda pairs: [pairs[0], {**pairs[1], "tag": "<2es>"}], "no tag for fr-loud"),
        (lambda pairs: [{**pairs[0], "tag": "le"}, pairs[1]], "no tag for fr-en"),
        (lambda pairs: [{"source": "fr"}, pairs[1]], "config.json, pairs.0.target"),
        (lambda pairs: [{**pairs[0], "target": "es"}, pairs[1]], "fr-en, which is none of the model's"),
    ],
)
@pytest.mark.slow
def test_damaged_pairs_are_refused(both, tmp_path, change, words):
    save_again(both, tmp_path / "model", DepthMenu([*DepthMenu.of([WHOLE], "fr-en"), *both.menu]))
    path = tmp_path / "model" / "config.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "pairs": change(record["pairs"])}))
    with pytest.raises(UserError, match=words):
        anydepth.load(tmp_path / "model", engine="torch")


def test_a_depth_without_a_decoder_is_refused_where_the_model_has_one(toy_run, tmp_path):
    folder = shutil.copytree(toy_run / "model", tmp_path / "model")
    menu = DepthMenu([*DepthMenu.of([SubNetwork((0, 1), ())]), *anydepth.load(folder, engine="torch").menu])
    (folder / "depths.json").write_text(json.dumps(menu.to_json()))
    with pytest.raises(UserError, match="depth 2-0 does not fit the model"):
        anydepth.load(folder, engine="torch")


@pytest.mark.slow
def test_pairs_and_weights_decode_with_objectives_and_training_unimportable(both, tmp_path):
    menu = DepthMenu([*DepthMenu.of([SOFT], "fr-loud"), *both.menu])
    save_again(both, tmp_path / "model", menu)
    script = f"""
import sys
rooms = ["objectives", "training", "selectors.training", "selectors.select", "selectors.data"]
for room in (*rooms, "word_depths.reconstruction"):
    sys.modules["anydepth." + room] = None
import anydepth
loud = anydepth.load({str(tmp_path / "model")!r}, engine="torch").between(target="loud")
print(loud.translate(["le chat dort."], depth="2-2-soft")[0])
"""
    done = python(script)
    assert done.returncode == 0, done.stderr
    here = anydepth.load(tmp_path / "model", engine="torch").between(target="loud")
    assert done.stdout.splitlines() == here.translate(["le chat dort."], depth="2-2-soft")
