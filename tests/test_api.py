"""The public API: what `from anydepth import ...` gives, its errors and its defaults; user_program.py has its types."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

import anydepth
from anydepth import Classifier, Translator, UserError, load, train
from anydepth.cli.classify import classify as classify_verb
from anydepth.cli.translate import translate as translate_verb
from anydepth.infer.classifier import Classification
from anydepth.infer.options import HypothesesKeywords, TranslateKeywords, TranslationOptions
from anydepth.selectors.budget import BudgetSelector
from anydepth.selectors.calibration import LengthCost

GOLDEN = Path(__file__).parent / "golden"
TEXTS = ["le chat dort.", "un chien mange.", ""]


@pytest.fixture(scope="module")
def translator(toy_run: Path) -> Translator:
    return Translator.load(toy_run, engine="torch")


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return Classifier.load(GOLDEN / "classifier")


def test_one_text_gives_one_and_any_iterable_a_list(translator: Translator, classifier: Classifier) -> None:
    found = translator.translate(TEXTS)
    assert found == ["the cat sleeps.", "a dog eats.", ""]
    assert translator.translate(TEXTS[0]) == found[0]
    assert translator.translate("") == ""
    assert translator.translate(text for text in TEXTS) == translator.translate(tuple(TEXTS)) == found
    assert [best.text for best, *_ in translator.hypotheses(iter(TEXTS))] == found
    assert [best.text for best, *_ in translator.stream(iter(TEXTS), chunk=2)] == found
    labels = classifier.classify(TEXTS)
    assert isinstance(classifier.classify(TEXTS[0]), Classification)
    assert classifier.classify(iter(TEXTS)) == list(classifier.stream(iter(TEXTS))) == labels
    assert classifier.classify(TEXTS[0]).label == labels[0].label


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([3], "text 1 is an int, not a string"),
        (["le chat.", None], "text 2 is None, not a string"),
        ([b"le chat."], "text 1 is bytes, not a string"),
        (3, "texts is an int: give a string"),
        (None, "texts is None: give a string"),
        (b"le chat.", "texts is bytes: give a string"),
    ],
)
def test_what_is_no_text_is_refused(translator: Translator, classifier: Classifier, texts: object, said: str) -> None:
    for method in (translator.translate, translator.hypotheses, translator.every_depth, classifier.classify):
        with pytest.raises(UserError, match=said):
            method(texts)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beam": 0}, "^beam is 0: use at least 1$"),
        ({"beam": "4"}, "^beam is '4': use a whole number$"),
        ({"batch_size": 1.5}, "^batch_size is 1.5: use a whole number$"),
        ({"max_length": -3}, "^max_length is -3: use at least 1$"),
        ({"length_penalty": 99}, "^length_penalty is 99, out of range: use 0 to 10$"),
        ({"source_prefix": 3}, "^source_prefix is 3: use a string$"),
        ({"cut_long": "no"}, "^cut_long is 'no': use True or False$"),
        ({"progress": 3}, "^progress is 3: use a function"),
        ({"depth": "9-9"}, "^this model has no depth 9-9; it has: "),
        ({"depth": 6}, "^6 is not a depth"),
        ({"depth": (2, 1)}, r"^\(2, 1\) is not a depth: write encoder-decoder, '2-1'$"),
        ({"beam": 100_000}, "^beam is 100000: use at most 1,024$"),
        ({"depth": "auto"}, "^this model has no selector for `auto`"),
        ({"scale": 2.0}, "^this model has no depths of words"),
    ],
)
def test_wrong_values_are_refused_in_the_library_s_own_words(
    translator: Translator, options: dict[str, object], said: str
) -> None:
    for method in (translator.translate, translator.hypotheses, translator.stream):
        with pytest.raises(UserError, match=said) as caught:
            method(["le chat."], **options)
        assert "--" not in str(caught.value)


def test_as_many_depths_as_texts(translator: Translator) -> None:
    with pytest.raises(UserError, match=r"^1 text but 2 depths: give one for all, such as '2-2', or one for "):
        translator.translate("le chat.", depth=["2-1", "2-2"])
    with pytest.raises(UserError, match=r"^2 texts but 1 depth: "):
        translator.translate(["le chat.", "un chien."], depth=["2-1"])


def test_misspelt_names_are_refused(translator: Translator, classifier: Classifier) -> None:
    for method in (translator.translate, classifier.classify):
        with pytest.raises(TypeError, match="'beem'"):
            method(["le chat."], beem=4)
    for method in (translator.hypotheses, translator.every_depth, translator.stream):
        with pytest.raises(UserError, match=r"^there is no option beem: did you mean beam\?$"):
            method(["le chat."], beem=4)
    with pytest.raises(TypeError, match="'engin'"):
        Translator.load(engin="torch")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine": "tensorrt"}, "^there is no engine 'tensorrt'; choose one of auto, native, ctranslate2, torch$"),
        ({"device": "tpu"}, "^there is no device 'tpu': use auto, cpu or cuda$"),
        ({"engine": "native", "threads": 0}, "^threads is 0: use a whole number, at least 1$"),
        ({"engine": "torch", "quantize": "int8"}, '^quantize="int8" is for engine="native" or engine="ctranslate2"'),
        ({"engine": "torch", "speculate": True}, '^speculate=True is for engine="native"'),
        ({"shortlist": "yes"}, "^shortlist is 'yes': use True or False$"),
        ({"engine": "torch", "shortlist": True}, '^shortlist=True is for engine="native" or engine="ctranslate2"'),
        ({"target_language": "es"}, "^this model does not translate to 'es'; it has: fr-en$"),
    ],
)
def test_what_cannot_be_loaded(toy_run: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        Translator.load(toy_run, **options)
    assert "--" not in str(caught.value)


def test_each_class_refuses_the_other_s_models(toy_run: Path) -> None:
    with pytest.raises(UserError, match=r"classifies texts: .*Classifier\.load$"):
        Translator.load(GOLDEN / "classifier")
    with pytest.raises(UserError, match="does not classify texts"):
        Classifier.load(toy_run)
    with pytest.raises(UserError, match=r'ctranslate2 takes models that translate; .* use engine="native" or "torch"'):
        Classifier.load(GOLDEN / "classifier", engine="ctranslate2")
    with pytest.raises(UserError, match=r'ctranslate2 takes models that translate; .* use engine="native" or "torch"'):
        load(GOLDEN / "classifier", engine="ctranslate2")
    assert isinstance(load(toy_run), Translator)
    assert isinstance(load(GOLDEN / "classifier"), Classifier)
    for open_it in (Translator.load, Classifier.load, load):
        with pytest.raises(UserError, match=r"^3 is not a path: "):
            open_it(3)
        with pytest.raises(UserError, match=r"no model at pt-en.anydepth: .*, a model file \(.anydepth\)"):
            open_it("pt-en.anydepth")


def test_a_language_pair_can_be_chosen_when_loading(two_targets_run: Path) -> None:
    loud = Translator.load(two_targets_run, engine="torch", target_language="loud")
    assert (loud.languages, loud.translate("le chat dort.")) == (("fr", "loud"), "THE CAT SLEEPS.")


def test_repr(toy_run: Path, classifier: Classifier, two_targets_run: Path) -> None:
    loaded = Translator.load(toy_run, engine="ctranslate2", quantize="int8", threads=2)
    depths = "4 depths 1-1..2-2, default 2-2"
    assert repr(loaded) == f"Translator(fr-en, {depths}, engine ctranslate2 int8, 2 threads)"
    native = Translator.load(toy_run, engine="native", threads=1)
    assert repr(native) == f"Translator(fr-en, {depths}, engine native int8, 1 thread)"
    assert repr(load(two_targets_run, engine="torch", threads=1)) == (
        f"Translator(fr-en, fr-loud, {depths}, engine torch float32, 1 thread)"
    )
    assert repr(classifier).startswith(f"Classifier({len(classifier.labels)} labels, ")
    assert repr(native.menu) == "DepthMenu(1-1, 1-2, 2-1, 2-2; default 2-2)"
    costs = {"1-1": LengthCost(0.001, 0.0), "1-2": LengthCost(0.002, 0.0)}
    selector = BudgetSelector(costs, {"1-1": 90.0, "1-2": 91.0}, 0.03)
    assert repr(selector) == "BudgetSelector(30 ms per sentence, of 1-1, 1-2)"
    native.translate(TEXTS, depth=selector)
    assert repr(selector) == "BudgetSelector(30 ms per sentence, of 1-1, 1-2, depth 1-2)"


def test_the_defaults_are_those_of_the_command_line() -> None:
    """Of `anydepth translate` and `anydepth classify`, wherever both have a parameter of the same name."""
    common = {"device", "threads", "depth", "scale", "lambda_", "batch_size"}
    for verb, methods, names in (
        (
            translate_verb,
            (Translator.load, Translator.translate),
            common
            | {*TranslateKeywords.__annotations__, "engine", "quantize", "speculate", "shortlist"} - {"progress"},
        ),
        (classify_verb, (Classifier.load, Classifier.classify), common | {"engine", "exit"}),
    ):
        there, ours = defaults(verb), {name: value for method in methods for name, value in defaults(method).items()}
        assert {name: ours[name] for name in names} == {name: there[name] for name in names}
    of_translate = defaults(Translator.translate)
    assert of_translate == {name: getattr(TranslationOptions, name, None) for name in of_translate}


def defaults(function: Callable[..., object]) -> dict[str, object]:
    given = inspect.signature(function).parameters.items()
    return {name: one.default for name, one in given if one.default is not inspect.Parameter.empty}


def test_options_are_listed_alike() -> None:
    fields = set(TranslationOptions.__dataclass_fields__)
    assert set(HypothesesKeywords.__annotations__) == fields
    assert set(TranslateKeywords.__annotations__) == fields - {"nbest", "scores"}
    assert set(inspect.signature(Translator.translate).parameters) == {
        *TranslateKeywords.__annotations__, "self", "texts", "depth",
    }  # fmt: skip


def test_what_can_be_imported() -> None:
    assert set(anydepth.__all__) == {"Classifier", "Translator", "UserError", "__version__", "load", "train"}
    assert anydepth.__version__ == version("anydepth")
    with pytest.raises(AttributeError, match="no attribute 'Translater'"):
        _ = anydepth.Translater


def test_importing_is_cheap() -> None:
    script = (
        "import sys, anydepth; anydepth.load, anydepth.UserError; print({'torch', 'rich', 'numpy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_training_starts_from_a_recipe_file_or_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no recipe"):
        train(tmp_path / "none.yaml", tmp_path / "run")
