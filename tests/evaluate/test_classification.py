"""What an evaluation of models that classify finds, against figures worked out by hand."""

import io
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from labelled_texts import reconstruction_table, save_noisy
from matplotlib.colors import to_rgb
from rich.console import Console

from anydepth.artifact import saving
from anydepth.artifact.card import model_card
from anydepth.artifact.model import LoadedModel
from anydepth.config import ModelConfig
from anydepth.data import Tokenizer
from anydepth.data.tokenizer import TokenizerOptions
from anydepth.depth import DepthMenu
from anydepth.engines.torch import TorchEngine
from anydepth.errors import UserError
from anydepth.evaluate.classification import EvaluationOptions, at_full_depth, evaluate, sample_texts
from anydepth.evaluate.classification_data import LabelledTexts, find_members
from anydepth.evaluate.classification_report import evaluation_report, record_evaluation
from anydepth.evaluate.explain import explain
from anydepth.evaluate.figures import level_colours
from anydepth.evaluate.render import to_html, to_terminal
from anydepth.infer.classifier import Classifier
from anydepth.model import Transformer
from anydepth.word_depths.table import TokenDepths, WordDepths

pytest_plugins = ["made_classifiers"]

QUICK = {"batch_sizes": (1, 2), "timed": 3, "repeats": 1}


@pytest.fixture(scope="module")
def noisy(by_mi_run, tmp_path_factory) -> Path:
    return save_noisy(by_mi_run, tmp_path_factory.mktemp("noisy") / "model", 1.0)


@pytest.fixture(scope="module")
def found(by_mi_run, noisy, static_run, halting_run, labelled_file):
    """Two models by mutual information and one with a halting unit, against a static one; with three scales."""
    test = LabelledTexts.read(labelled_file)
    systems = {"mi": find_members([by_mi_run, noisy], test), "halting": find_members([halting_run], test)}
    options = EvaluationOptions(scales=(0.4, 1.0, 3.0), **QUICK)
    return evaluate(systems, options, static=("plain", find_members([static_run], test)))


def test_accuracy_and_deviation_are_those_worked_out_by_hand(found, by_mi_run, noisy, labelled_file):
    test = LabelledTexts.read(labelled_file)
    by_hand = []
    for path in (by_mi_run, noisy):
        labels = [one.label for one in Classifier.load(path, engine="torch", device="cpu").classify(test.texts)]
        by_hand.append(100 * sum(map(str.__eq__, labels, test.labels)) / len(labels))
    accuracy = found.systems[1].main.accuracy
    assert by_hand[0] != by_hand[1]
    assert accuracy.mean == pytest.approx(sum(by_hand) / 2)
    assert accuracy.deviation == pytest.approx(statistics.stdev(by_hand))
    assert found.systems[2].main.accuracy.deviation is None


def test_layers_of_tokens_are_those_of_the_table(found, by_mi_run, labelled_file):
    classifier = Classifier.load(by_mi_run, engine="torch", device="cpu")
    depths = [classifier.token_depths.of(ids) for ids in classifier.read(LabelledTexts.read(labelled_file).texts)]
    total, tokens = sum(map(sum, depths)), sum(map(len, depths))
    one = found.systems[1].main.models[0]
    assert (one.computed, one.tokens, one.layers) == (total, tokens, 3)
    assert one.depth == total / tokens
    assert one.share == pytest.approx(total / (3 * tokens))
    assert found.systems[1].main.allowed == pytest.approx(3 * tokens / total)


def test_a_larger_scale_is_deeper_and_that_of_training_changes_nothing(found):
    for system in found.systems[1:]:
        shallow, same, deep = system.curve
        assert shallow.depth.mean < same.depth.mean <= deep.depth.mean
        assert same.accuracy == system.main.accuracy
    static = found.systems[0]
    assert not static.curve
    assert static.main.depth.mean == 3


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_whole_texts_that_leave_early_are_points_of_the_curve(
    halting_run, by_mi_run, static_run, labelled_file, engine
):
    test = LabelledTexts.read(labelled_file)
    rules = ("confidence:0.5", "patience:2")
    options = EvaluationOptions(exits=rules, engine=engine, **QUICK)
    runs = {"halting": halting_run, "mi": by_mi_run, "plain": static_run}
    systems = evaluate({name: find_members([run], test) for name, run in runs.items()}, options).systems
    assert [len(system.curve) for system in systems] == [2, 2, 0]  # one exit is no choice
    for system, run in zip(systems, runs.values(), strict=True):
        classifier = Classifier.load(run, engine=engine, device="cpu")
        for point, rule in zip(system.curve, rules, strict=False):
            found = classifier.classify(test.texts, exit=rule)
            assert point.setting.name == f"exit {rule}"
            assert point.to_json()["exit"] == rule
            assert point.models[0].computed == sum(one.computed for one in found)
            assert point.models[0].right == sum(map(str.__eq__, (one.label for one in found), test.labels))
    again = evaluate({"halting": find_members([halting_run], test)}, options)
    assert again.conditions.engine == engine
    evaluation_report(again).figures()


def test_other_rules_for_words_are_tried(by_mi_run, labelled_file):
    (member,) = find_members([by_mi_run], LabelledTexts.read(labelled_file))
    deep, shallow = (
        evaluate({"mi": [replace(member, special=rule, unseen="subword")]}, EvaluationOptions(**QUICK)).systems[0]
        for rule in ("deepest", "shallowest")
    )
    assert shallow.main.depth.mean < deep.main.depth.mean


def test_times_are_of_all_models_and_those_of_a_curve_of_the_first(found):
    static, by_mi, _ = found.systems
    assert [len(one.seconds) for one in by_mi.main.models] == [2, 2]
    assert [len(one.seconds) for one in by_mi.curve[0].models] == [2, 0]
    assert static.main.speed_up[1].mean == 1
    one = by_mi.main.models[0]
    assert one.static_seconds == static.main.models[0].seconds
    assert one.speed_up[2] == static.main.models[0].seconds[2] / one.seconds[2]


def test_without_a_static_model_each_is_compared_with_its_own_weights(by_mi_run, static_run, labelled_file):
    test = LabelledTexts.read(labelled_file)
    systems = {"mi": find_members([by_mi_run], test), "plain": find_members([static_run], test)}
    by_mi, plain = evaluate(systems, EvaluationOptions(**QUICK)).systems
    assert by_mi.own_static.depth.mean == 3
    assert by_mi.own_static.share.mean == 1
    assert by_mi.main.models[0].static_seconds == by_mi.own_static.models[0].seconds
    assert plain.own_static is None
    assert plain.main.speed_up[1].mean == 1


def test_labels_are_counted(found, labelled_file):
    labels = LabelledTexts.read(labelled_file).labels
    for system in found.systems:
        times = len(system.main.models)
        assert sum(system.confusion.values()) == 90 * times
        good = sum(count for (true, _), count in system.confusion.items() if true == "good")
        assert good == labels.count("good") * times
        assert system.recall("good") == pytest.approx(100 * system.confusion[("good", "good")] / good)
    assert found.systems[0].recall("unheard of") is None


def test_mistakes_are_mistakes_the_surest_first(found, by_mi_run, labelled_file):
    test = LabelledTexts.read(labelled_file)
    truth = dict(zip(test.texts, test.labels, strict=True))
    assert found.mistakes_of == "mi"
    assert found.mistakes
    sure = [one.probability for _, one in found.mistakes]
    assert sure == sorted(sure, reverse=True)
    for label, one in found.mistakes:
        text = "".join(" " * word.spaced + word.text for word in one.words).strip()
        assert truth[text] == label != one.label


def test_the_page_has_the_figures_and_all_markup_is_closed(found):
    page = to_html(evaluation_report(found))
    for system in found.systems:
        assert f"{system.main.accuracy.shown(2)}" in page
    assert page.count("<table>") == page.count("</table>") == 1 + 1 + 2 + 3  # systems, models, curves, labels
    assert "Speed over batch size" not in page


def test_a_narrow_terminal_has_all_columns(found):
    stream = io.StringIO()
    to_terminal(evaluation_report(found), Console(file=stream, width=60))
    said = stream.getvalue()
    prose = ("accuracy: ", "computed: ", "ms at a batch size: ", "times at ")  # the terminal wraps it
    assert max(len(line) for line in said.splitlines() if not line.startswith(prose)) <= 60
    for header in ("depths by", "models", "accuracy %", "mean depth", "computed", "allows", "ms at 1", "ms at 2"):
        assert header in said
    assert "…" not in said


def test_lambdas_are_for_reconstruction(by_mi_run, labelled_file, tmp_path):
    test, folder = LabelledTexts.read(labelled_file), tmp_path / "reconstruction"
    there = Classifier.load(by_mi_run, engine="torch", device="cpu")
    table = WordDepths.load(reconstruction_table(by_mi_run, tmp_path / "table.json"))
    tensors = {name: p.detach() for name, p in there.model.named_parameters()}
    content = saving.ModelContent(
        there.model.config, tensors, there.tokenizer, there.menu, ("en", "en"),
        labels=there.labels, token_depths=TokenDepths(table, there.tokenizer),
    )  # fmt: skip
    saving.save(folder, content, {})
    options = EvaluationOptions(lambdas=(0.0, 0.2), **QUICK)
    systems = {"mi": find_members([by_mi_run], test), "reconstruction": find_members([folder], test)}
    by_mi, by_losses = evaluate(systems, options).systems
    assert not by_mi.curve
    assert [point.setting.name for point in by_losses.curve] == ["lambda 0", "lambda 0.2"]
    assert by_losses.curve[0].depth.mean > by_losses.main.depth.mean > by_losses.curve[1].depth.mean


def test_figures_of_other_conditions_leave_the_menu(halting_run, labelled_file, tmp_path):
    test = LabelledTexts.read(labelled_file)
    folder = save_noisy(halting_run, tmp_path / "model", 0.0)
    systems = {"halting": find_members([folder], test)}

    def record(**options: object) -> dict[str, float | None]:
        result = evaluate(systems, EvaluationOptions(**{**QUICK, **options}))
        assert record_evaluation(systems, result) == [folder]
        return {entry.name: entry.quality.get("accuracy") for entry in Classifier.load(folder, device="cpu").menu}

    first = record(depth="1-0")
    assert [name for name, accuracy in first.items() if accuracy is not None] == ["1-0", "3-0"]
    second = record()
    assert [name for name, accuracy in second.items() if accuracy is not None] == ["1-0", "3-0", "3-0-words"]
    third = record(timed=2)
    assert [name for name, accuracy in third.items() if accuracy is not None] == ["3-0", "3-0-words"]


def test_members_of_a_folder_come_by_their_numbers(by_mi_run, tmp_path, labelled_file):
    for number in (10, 2, 1):
        (tmp_path / "runs" / f"seed-{number}").mkdir(parents=True)
        (tmp_path / "runs" / f"seed-{number}" / "model").symlink_to(by_mi_run / "model")
    members = find_members([tmp_path / "runs"], LabelledTexts.read(labelled_file))
    assert [one.name for one in members] == ["seed-1", "seed-2", "seed-10"]
    (tmp_path / "runs" / "seed-3").mkdir()
    (tmp_path / "runs" / "seed-3" / "recipe.json").touch()
    with pytest.raises(UserError, match=r"seed-3 has not finished"):
        find_members([tmp_path / "runs"], None)


def test_the_sample_is_always_the_same():
    texts = [f"{'x' * (n % 7)}{n}" for n in range(50)]
    assert sample_texts(texts, 10) == sample_texts(iter(texts), 10)
    assert len(set(sample_texts(texts, 10))) == 10
    assert set(sample_texts(texts, 10)) != set(texts[:10])
    assert sorted(sample_texts(texts, 100)) == sorted(texts)


def test_at_full_depth_a_text_is_cut_at_the_same_place(by_mi_run):
    classifier = Classifier.load(by_mi_run, engine="torch", device="cpu")
    long = ["the film " * 100]
    assert at_full_depth(classifier).read(long) == classifier.read(long)
    assert len(classifier.read(long)[0]) < classifier.model.config.max_length


def test_words_that_share_a_sub_word_are_all_explained():
    lines = ["well... good...", "a film... dull..."]
    tokenizer = Tokenizer.train(iter(lines * 50), TokenizerOptions(275, sample=1000), seed=1)
    assert any(piece.strip("▁") == "..." for piece in tokenizer.pieces(tokenizer.encode(lines[0])))
    torch.manual_seed(1)
    config = ModelConfig(width=16, heads=2, ffn=24, encoder_layers=2, decoder_layers=0, max_length=64)
    model = Transformer(config, tokenizer.vocabulary_size, 2).eval()
    classifier = Classifier(
        LoadedModel(model, tokenizer, DepthMenu.of([model.full]), labels=("no", "yes")), TorchEngine(model)
    )
    for text in (*lines, "well ... good"):
        assert "".join(word.text for word in classifier.explain(text)[1]) == text
    assert classifier.explain(" ")[1] == []


def test_words_of_an_explanation_join_to_the_text(by_mi_run):
    classifier, text = Classifier.load(by_mi_run, engine="torch", device="cpu"), "the awful film, and a dog."
    one = explain(classifier, text, "mi")
    assert "".join(" " * word.spaced + word.text for word in one.words).strip() == text
    wanted = classifier.token_depths.table.depths(["the", "awful", "film", ",", "and", "a", "dog", "."])
    assert [word.depth for word in one.words] == wanted
    assert [word.text for word in one.first(2).words] == ["the", "awful", "…"]
    cut = explain(classifier, "the film " * 100, "mi")
    assert cut.words[-1].text == "…"
    assert cut.words[-1].depth == 0


@pytest.mark.parametrize("layers", [1, 2, 12])
def test_deeper_is_darker_and_letters_can_be_read(layers):
    def light(colour: str) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    grounds = [light(ground) for ground, _ in level_colours(layers)[1:]]
    assert len(grounds) == layers
    assert grounds == sorted(set(grounds), reverse=True)
    for ground, letters in level_colours(layers)[1:]:
        low, high = sorted((light(ground), light(letters)))
        assert (high + 0.05) / (low + 0.05) > 3


def test_the_card_of_a_classifier(by_mi_run, halting_run):
    for run, said in (
        (by_mi_run, "the table `word-depths.json` says"),
        (halting_run, "the model says after the first"),
    ):
        card = (run / "model" / "README.md").read_text("utf-8")
        for text in ("pipeline_tag: text-classification", "3 labels: bad, fine, good", ".classify(", said):
            assert text in card
        assert "Not measured yet" in card
        assert "language" not in card[: card.index("# Text")]


def test_many_labels_are_not_all_on_the_card(by_mi_run):
    record = {
        "facts": {}, "labels": [f"label-{n}" for n in range(30)], "vocabulary": 9, "languages": ["en", "en"],
        "model": {"encoder_layers": 3, "decoder_layers": 0, "width": 8},
    }  # fmt: skip
    card = model_card(record, Classifier.load(by_mi_run, engine="torch", device="cpu").menu)
    assert "label-19 and 10 more." in card
    assert "label-20" not in card
    assert "language:\n- en" in card


def test_words_may_have_depths_from_elsewhere(by_mi_run, halting_run, labelled_file):
    """A model that learnt with every exit runs with any table, and nothing of it is taken for the model's own."""
    test = LabelledTexts.read(labelled_file)
    table = by_mi_run / "model" / "word-depths.json"
    systems = {
        "own": find_members([halting_run], test),
        "given": find_members([halting_run], test, table),
        "mi": find_members([by_mi_run], test),
    }
    own, given, mi = evaluate(systems, EvaluationOptions(**QUICK)).systems
    assert [one.kind for one in (own, given, mi)] == ["halting unit", "MI", "MI"]
    assert given.main.depth.mean == pytest.approx(mi.main.depth.mean, abs=0.1)  # other subwords, the same words
    assert own.main.depth.mean != pytest.approx(given.main.depth.mean, abs=0.1)
    with pytest.raises(UserError, match="at depth 2-0 all words run all layers"):
        evaluate({"given": systems["given"]}, EvaluationOptions(depth="2-0", **QUICK))
