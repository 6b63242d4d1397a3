"""Distillation with a real trained model and real files."""

import io
import json
import logging

import pytest
import torch
from conftest import toy_pairs
from sacrebleu import sentence_chrf

import anydepth
from anydepth.config import CorpusConfig
from anydepth.data import Tokenizer
from anydepth.data.corpus import read_lines, read_pairs
from anydepth.errors import UserError
from anydepth.infer.distill import DistillCounts, DistillOptions, distill, distill_chunk, output_names

SOURCES, REFERENCES = (list(side) for side in zip(*toy_pairs(40, seed=7), strict=True))
LONG = "chat " * 200


@pytest.fixture(scope="module")
def translator(toy_run):
    return anydepth.load(toy_run, engine="torch")


def write(path, lines):
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def run(translator, folder, lines, references=None, **options):
    """Counts, pairs as training would read them, and what was said."""
    said = io.StringIO()
    source = write(folder / "source", lines)
    reference = None if references is None else write(folder / "reference", references)
    log, handler = logging.getLogger("anydepth.infer.distill"), logging.StreamHandler(said)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        counts = distill(translator, source, folder / "out", DistillOptions(**options), reference)
    finally:
        log.removeHandler(handler)
    corpus = CorpusConfig(source=folder / "out" / "distilled.fr", target=folder / "out" / "distilled.en")
    return counts, list(read_pairs(corpus)) if counts.kept else [], said.getvalue()


@pytest.mark.parametrize("options", [{"depth": "1-1", "beam": 1}, {"depth": "2-1", "beam": 3}, {"max_length": 30}])
def test_the_corpus_is_what_translate_gives(translator, tmp_path, options):
    counts, pairs, said = run(translator, tmp_path, SOURCES, chunk=7, batch_size=5, **options)
    outputs = translator.translate(SOURCES, **{"beam": 4, "length_penalty": 1.0, **options})
    assert pairs == list(zip(SOURCES, outputs, strict=True))
    assert counts == DistillCounts(read=40, kept=40)
    assert said == "40 read, 40 kept\n"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        ".lock", "distill.json", "distilled.en", "distilled.fr",
    ]  # fmt: skip


def test_a_chunk_is_a_function_of_its_lines(translator, tmp_path):
    lines = [*SOURCES[:5], "", LONG, *SOURCES[5:]]
    _, pairs, _ = run(translator, tmp_path, lines, chunk=16)
    options = DistillOptions(chunk=16)
    results = [
        distill_chunk(translator, (lines[start : start + 16], None), None, options=options)
        for start in range(0, 42, 16)
    ]
    assert [pair for result in results for pair in result.pairs] == pairs
    assert sum((result.counts for result in results), DistillCounts()) == DistillCounts(42, 40, 1, 1)


def closest_by_hand(candidates, reference):
    def chrf(one):
        return sentence_chrf(one.text, [reference]).score

    fine = [one for one in candidates if one.ended and one.text] or candidates
    return next(one for one in fine if chrf(one) == max(map(chrf, fine)))


@pytest.mark.parametrize(("beam", "nbest", "max_length"), [(4, None, None), (4, 2, None), (4, None, 7), (3, 3, 6)])
def test_interpolation_keeps_the_candidate_closest_to_the_reference(translator, tmp_path, beam, nbest, max_length):
    search = {"depth": "1-2", "beam": beam, "max_length": max_length, "length_penalty": 0.6}
    found = translator.hypotheses(SOURCES, nbest=nbest or beam, **search)
    # what the model likes least is the reference of every second line, so that there is something to choose
    references = [one[-1].text if i % 2 else REFERENCES[i] for i, one in enumerate(found)]
    expected = [closest_by_hand(*both) for both in zip(found, references, strict=True)]
    _, pairs, _ = run(translator, tmp_path, SOURCES, references, nbest=nbest, keep_all=True, chunk=16, **search)
    assert [target for _, target in pairs] == [one.text for one in expected]
    assert sum(one is not all_[0] for one, all_ in zip(expected, found, strict=True)) > 5
    if max_length:
        mixed = [one for one in found if len({candidate.ended for candidate in one}) == 2]
        assert mixed  # an ended candidate had to win against one cut off somewhere


def test_equally_close_candidates_are_left_to_the_model(translator):
    references = ["Ω"] * len(SOURCES)
    chosen = distill_chunk(translator, (SOURCES, references), None, options=DistillOptions(beam=3, nbest=3))
    assert [target for _, target in chosen.pairs] == translator.translate(SOURCES, beam=3, length_penalty=1.0)


def test_what_is_left_out_is_counted_by_kind(translator, tmp_path):
    lines = [SOURCES[0], "", "  \t ", LONG, SOURCES[1], LONG]
    counts, pairs, said = run(translator, tmp_path, lines)
    assert counts == DistillCounts(read=6, kept=2, source_empty=2, source_too_long=2)
    assert [source for source, _ in pairs] == SOURCES[:2]
    assert said == "6 read, 2 kept, left out: source empty 2, source too long 2\n"


def test_outputs_that_ran_into_the_limit_are_left_out(translator, tmp_path):
    lines = sorted(SOURCES, key=len)
    ended = [one[0].ended for one in translator.hypotheses(lines, beam=2, max_length=6)]
    counts, pairs, _ = run(translator, tmp_path, lines, beam=2, max_length=6)
    assert 0 < sum(ended) < len(ended)
    assert counts == DistillCounts(read=40, kept=sum(ended), output_cut_off=40 - sum(ended))
    assert [source for source, _ in pairs] == [line for line, whole in zip(lines, ended, strict=True) if whole]


def test_outputs_without_text_are_left_out(toy_run):
    """A model that writes the lone space of the vocabulary, since it must write something, and ends."""
    silent = anydepth.load(toy_run, engine="torch")
    space = next(i for i in range(4, silent.tokenizer.vocabulary_size) if silent.tokenizer.pieces([i]) == ["▁"])
    with torch.no_grad():
        silent.model.decoder.norm.weight.zero_()
        silent.model.decoder.norm.bias.zero_()[0] = 10
        silent.model.output.weight[Tokenizer.EOS].zero_()[0] = 100
        silent.model.output.weight[space].zero_()[0] = 90
    lines = [*SOURCES, ""]
    result = distill_chunk(silent, (lines, None), None, options=DistillOptions())
    assert (result.pairs, result.counts) == ([], DistillCounts(read=41, source_empty=1, output_empty=40))
    kept = distill_chunk(silent, (lines, None), None, options=DistillOptions(keep_all=True))
    assert kept.pairs == [(line, "") for line in lines]


def test_keep_all_gives_a_line_for_every_line(translator, tmp_path):
    lines = ["", *SOURCES[:3], LONG, " ", SOURCES[3]]
    counts, pairs, said = run(translator, tmp_path, lines, keep_all=True, chunk=3)
    assert pairs == list(
        zip(lines, translator.translate(lines, beam=4, length_penalty=1.0, cut_long=True), strict=True)
    )
    assert pairs[0] == ("", "")
    assert pairs[4][1] != ""
    assert (counts.read, counts.kept) == (7, 7)
    assert "7 kept, among them: source empty 2, source too long 1" in said


def test_odd_characters_neither_change_nor_shift_lines(translator, tmp_path):
    odd = ["\ufeffle chat.", "un\rchien.", "le chat.\r", "le\u2028chat\x85dort\x0bici.", "\x1f\r\r", "un chat."]
    source = tmp_path / "source"
    source.write_bytes("".join(f"{line}\r\n" for line in ["\ufeff", *odd]).encode())
    out = tmp_path / "out"
    distill(translator, source, out, DistillOptions(chunk=2), None)
    kept = [line for line in odd if line.strip("\x1f\r")]
    assert list(read_lines(out / "distilled.fr")) == kept
    assert len(list(read_lines(out / "distilled.en"))) == len(kept)


def test_killed_between_the_renames(translator, tmp_path):
    _, pairs, _ = run(translator, tmp_path, SOURCES)
    out, record = tmp_path / "out", json.loads((tmp_path / "out" / "distill.json").read_text())
    (out / "distill.json").write_text(json.dumps({**record, "finished": False}))
    (out / "distilled.en").rename(out / "distilled.en.part")
    (out / ".distill.json.tmp-1").write_text("{")
    assert run(translator, tmp_path, SOURCES)[1] == pairs
    assert json.loads((out / "distill.json").read_text()) == record
    assert not (out / ".distill.json.tmp-1").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beam": 1}, "a beam of 2 or more"),
        ({"nbest": 5}, "2 <= nbest <= beam"),
        ({"nbest": 1}, "2 <= nbest <= beam"),
        ({"chunk": 0}, "at least 1 line"),
        ({"batch_size": 0}, "batch_size"),
        ({"depth": "9-9"}, "no depth 9-9"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_written(translator, tmp_path, options, words):
    with pytest.raises(UserError, match=words):
        run(translator, tmp_path, SOURCES, REFERENCES, **options)
    assert not (tmp_path / "out").exists()


def test_nbest_is_for_references(translator, tmp_path):
    with pytest.raises(UserError, match="give references"):
        run(translator, tmp_path, SOURCES, nbest=2)


@pytest.mark.parametrize(
    ("source", "out", "words"),
    [
        ("none", "out", "none does not exist"),
        (".", "out", "is a folder"),
        ("/dev/null", "out", "not a regular file"),
        ("source", "source", "is a file"),
        ("source", ".", "not empty"),
    ],
)
def test_files_that_cannot_be_used_are_refused(translator, tmp_path, source, out, words):
    write(tmp_path / "source", SOURCES)
    with pytest.raises(UserError, match=words):
        distill(translator, tmp_path / source, tmp_path / out, DistillOptions(), None)
    assert list(read_lines(tmp_path / "source")) == SOURCES


@pytest.mark.parametrize(
    ("languages", "names"),
    [
        (("fr", "en"), ("distilled.fr", "distilled.en")),
        (("zh-Hans", "pt_BR"), ("distilled.zh-Hans", "distilled.pt_BR")),
        (("en", "EN"), ("distilled.source", "distilled.target")),
        (("", "en"), ("distilled.source", "distilled.target")),
        (("../../fr", "en.part"), ("distilled.fr", "distilled.en-part")),
    ],
)
def test_names_of_the_files(languages, names):
    assert output_names(languages) == names
