"""The table of every depth, from a real model and from hand."""

import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
from conftest import toy_pairs
from rich.console import Console
from sacrebleu.metrics import BLEU
from saved_models import REFERENCES, SOURCES, save_model

from anydepth.depth import DepthMenu, SubNetwork
from anydepth.errors import UserError
from anydepth.evaluate.every_depth import CHUNK, EveryDepth, translate_every_depth
from anydepth.evaluate.experiment import RunOptions
from anydepth.evaluate.metrics import score, sentence_chrf
from anydepth.infer.translator import Translator
from anydepth.progress import show_progress

# Longer than what the toy model was trained on, so that it errs, and at each depth in its own way.
LONG = [(f"{a[:-1]} {b}", f"{c[:-1]} {d}") for (a, c), (b, d) in zip(toy_pairs(60, 5), toy_pairs(60, 6), strict=True)]
FASTEST_FIRST = ("1-1", "2-1", "1-2", "2-2")


@pytest.fixture(scope="module")
def table(toy_run: Path) -> EveryDepth:
    sources, references = zip(*LONG, ("", ""), ("ici\u2028 et ici", "here\tand 'here'"), strict=True)
    return translate_every_depth([Translator.load(toy_run, engine="torch", device="cpu")], sources, references)


def made(chrf_nk: list[list[float]]) -> EveryDepth:
    """These chrF scores; the other fields are of no meaning."""
    n, k = len(chrf_nk), len(chrf_nk[0])
    texts = tuple("x" * n)
    depths = tuple(f"1-{m + 1}" for m in range(k))
    return EveryDepth(depths, texts, texts, (texts,) * k, np.array(chrf_nk, np.float32), np.ones((n, k, 10), np.int32))


def test_each_column_is_that_depth_alone_scored(table: EveryDepth, toy_run: Path) -> None:
    translator = Translator.load(toy_run, engine="torch", device="cpu")
    assert table.depths == FASTEST_FIRST
    for place, depth in enumerate(table.depths):
        assert list(table.outputs[place]) == translator.translate(table.sources, depth=depth)
        np.testing.assert_allclose(table.chrf_nk[:, place], sentence_chrf(table.outputs[place], table.references), 1e-6)
    assert len(set(table.outputs)) == 4  # or the tests below would hold for a table that confuses depths


def test_the_statistics_add_up_to_exactly_the_bleu_of_sacrebleu(table: EveryDepth) -> None:
    for place, outputs in enumerate(table.outputs):
        assert table.bleu([place] * len(table)) == score(outputs, table.references).bleu
    rng = random.Random(1)
    for _ in range(5):
        chosen = [rng.randrange(4) for _ in range(len(table))]
        mixed = [table.outputs[place][row] for row, place in enumerate(chosen)]
        assert table.bleu(chosen) == score(mixed, table.references).bleu
        assert table.chrf(chosen) == pytest.approx(np.mean(sentence_chrf(mixed, table.references)))


def test_without_a_match_bleu_is_zero_as_sacrebleu_has_it(tmp_path: Path) -> None:
    table = translate_every_depth([save_model(tmp_path / "untrained", 2)], SOURCES, REFERENCES)
    for place, outputs in enumerate(table.outputs):
        assert table.bleu([place] * len(table)) == score(outputs, REFERENCES).bleu


def test_a_mixture_of_one_depth_is_that_depth(table: EveryDepth) -> None:
    for place in range(4):
        assert table.mixed_bleu(np.eye(4)[place]) == pytest.approx(table.bleu([place] * len(table)), abs=1e-9)


def test_a_mixture_is_the_corpus_that_has_each_sentence_in_those_proportions(table: EveryDepth) -> None:
    times = (1, 0, 2, 3)
    outputs = [line for place, count in enumerate(times) for line in table.outputs[place] * count]
    expected = BLEU().corpus_score(outputs, [list(table.references) * sum(times)]).score
    assert table.mixed_bleu(times) == pytest.approx(expected, abs=1e-5)
    assert table.mixed_bleu([count / sum(times) for count in times]) == pytest.approx(expected, abs=1e-5)


def test_the_best_is_the_fastest_of_those_that_tie() -> None:
    table = made([[3, 9, 9], [5, 5, 5], [1, 2, 3], [7, 1, 7]])
    assert table.best().tolist() == [1, 0, 2, 0]
    assert table.chrf(table.best()) == (9 + 5 + 3 + 7) / 4


def test_no_choice_has_a_better_chrf_than_the_best(table: EveryDepth) -> None:
    best = table.chrf(table.best())
    singles = [table.chrf([place] * len(table)) for place in range(4)]
    assert best > max(singles)


def test_a_family_is_joined_fastest_first(tmp_path: Path) -> None:
    one = save_model(tmp_path / "one", 2, DepthMenu.of([SubNetwork.prefix(2, 1), SubNetwork.prefix(1, 2)]))
    other = save_model(tmp_path / "other", 1)
    table = translate_every_depth([one, other], SOURCES, REFERENCES)
    assert table.depths == ("1-1", "2-1", "1-2")
    assert list(table.outputs[0]) == other.translate(SOURCES)
    assert list(table.outputs[1]) == one.translate(SOURCES, depth="2-1")
    assert list(table.outputs[2]) == one.translate(SOURCES, depth="1-2")
    with pytest.raises(UserError, match=r"the family: .*other and .*other both have depth 1-1"):
        translate_every_depth([other, one, other], SOURCES, REFERENCES)


def test_many_sentences_come_in_chunks_and_in_order(toy_run: Path) -> None:
    translator = Translator.load(toy_run, engine="torch", device="cpu")
    sources, references = map(list, zip(*toy_pairs(CHUNK + 6, 8), strict=True))
    said = io.StringIO()
    options = RunOptions(batch_size=256)
    show_progress(Console(file=said, width=200))
    try:
        table = translate_every_depth([translator], sources, references, options, label="toy")
    finally:
        show_progress(Console(quiet=True))
    assert list(table.outputs[3][-6:]) == translator.translate(sources[-6:])
    assert table.chrf_nk[-6:, 3].tolist() == pytest.approx(sentence_chrf(table.outputs[3][-6:], references[-6:]))
    total = f"{4 * len(sources):,}"
    assert said.getvalue().splitlines()[-1] == f"toy: translations at 4 depths: {total} of {total}"
    sources[CHUNK + 2] = "le chat " * 100
    with pytest.raises(UserError, match=f"line {CHUNK + 3:,} has "):
        translate_every_depth([translator], sources, references, options)


@pytest.mark.parametrize(
    ("sources", "references", "said"),
    [(["a", "b"], ["a"], "source has 2 lines but the reference has 1"), ([], [], "no lines to translate")],
)
def test_texts_that_do_not_fit(toy_run: Path, sources: list[str], references: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        translate_every_depth([Translator.load(toy_run, engine="torch", device="cpu")], sources, references)


def test_saved_and_loaded_is_the_same(table: EveryDepth, tmp_path: Path) -> None:
    for _ in range(2):  # the second replaces the first
        table.save(tmp_path / "table")
    again = EveryDepth.load(tmp_path / "table")
    for name in ("depths", "sources", "references", "outputs"):
        assert getattr(again, name) == getattr(table, name)
    np.testing.assert_array_equal(again.chrf_nk, table.chrf_nk)
    np.testing.assert_array_equal(again.bleu_nks, table.bleu_nks)
    assert again.bleu(again.best()) == table.bleu(table.best())


def test_other_files_are_not_replaced(table: EveryDepth, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work", "utf-8")
    with pytest.raises(UserError, match="is not a folder of translations"):
        table.save(tmp_path)
    assert (tmp_path / "thesis.txt").exists()
    with pytest.raises(UserError, match="no translations at every depth"):
        EveryDepth.load(tmp_path)


def spoil_scores(folder: Path) -> None:
    content = bytearray((folder / "scores.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "scores.safetensors").write_bytes(content)


def cut_sentences(folder: Path) -> None:
    lines = (folder / "sentences.jsonl").read_text("utf-8").splitlines(keepends=True)
    (folder / "sentences.jsonl").write_text("".join(lines[:-1]), "utf-8")


def lose_scores(folder: Path) -> None:
    (folder / "scores.safetensors").unlink()


def cut_record(folder: Path) -> None:
    (folder / "table.json").write_text('{"format": 1, "depths"', "utf-8")


def another_record(folder: Path) -> None:
    (folder / "table.json").write_text('["a list"]', "utf-8")


def another_count(folder: Path) -> None:
    record = json.loads((folder / "table.json").read_text("utf-8"))
    (folder / "table.json").write_text(json.dumps(record | {"sentences": 3}), "utf-8")


@pytest.mark.parametrize(
    "damage", [spoil_scores, cut_sentences, lose_scores, cut_record, another_record, another_count]
)
def test_damage_is_noticed(table: EveryDepth, tmp_path: Path, damage) -> None:
    folder = tmp_path / "table"
    table.save(folder)
    damage(folder)
    with pytest.raises(UserError, match=r"is damaged .*: delete it and translate again"):
        EveryDepth.load(folder)


def test_a_newer_format_is_refused(table: EveryDepth, tmp_path: Path) -> None:
    table.save(tmp_path / "table")
    record = json.loads((tmp_path / "table/table.json").read_text("utf-8"))
    (tmp_path / "table/table.json").write_text(json.dumps(record | {"format": 99}), "utf-8")
    with pytest.raises(UserError, match="newer anydepth"):
        EveryDepth.load(tmp_path / "table")
