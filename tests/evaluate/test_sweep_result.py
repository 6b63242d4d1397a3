import io
import json
import os

import pytest
from constructed_sweeps import FAIR, GOOD, POOR, REFERENCES, make_result, measurement, single, with_holes
from rich.console import Console

from anydepth.evaluate.depth_comparison import compare
from anydepth.evaluate.metrics import score
from anydepth.evaluate.render import to_terminal, write_report
from anydepth.evaluate.sweep import ModelSweep
from anydepth.evaluate.sweep_report import depths_to_show, pick_examples, sweep_report

BLEU = {outputs: score(outputs, REFERENCES).bleu for outputs in (GOOD, FAIR, POOR)}


def test_speed_follows_from_time() -> None:
    one = measurement(1, 1, seconds=2.0)  # 4 sentences, 40 tokens
    assert (one.seconds_per_sentence, one.sentences_per_second, one.tokens_per_second) == (0.5, 2.0, 20.0)


def test_front_leaves_out_what_another_depth_beats_or_equals() -> None:
    assert with_holes().front_depths == ["1-1", "2-1", "2-2"]


def test_front_keeps_both_of_two_equals() -> None:
    model = ModelSweep("twins", (measurement(1, 2, 1.0), measurement(2, 1, 1.0), measurement(2, 2, 1.5)))
    assert model.front_depths == ["1-2", "2-1"]


def test_means_over_rows_columns_and_all() -> None:
    model = with_holes()
    assert model.means.seconds == pytest.approx((1 + 3 + 2 + 4 + 2.5) / 5)
    assert model.means_by_encoder[1].bleu == pytest.approx((BLEU[POOR] + BLEU[FAIR]) / 2)
    assert model.means_by_encoder[3].seconds == 2.5
    assert model.means_by_decoder[2].bleu == pytest.approx((BLEU[FAIR] + BLEU[GOOD]) / 2)
    assert model.means_by_decoder[1].seconds == pytest.approx((1 + 2 + 2.5) / 3)


def test_grid_has_holes_and_shows_the_better_of_two_of_a_size() -> None:
    model = ModelSweep("latent", (measurement(1, 1, 1.0, POOR), measurement(1, 1, 1.0, GOOD), measurement(2, 2, 2.0)))
    assert model.cells[1, 1].outputs == GOOD
    assert set(model.cells) == {(1, 1), (2, 2)}


def test_json_is_complete_and_names_no_folder() -> None:
    data = json.loads(json.dumps(make_result(with_holes(), single()).to_json(), allow_nan=False))
    assert data["conditions"]["source_file"] == "test.de"
    assert set(data["conditions"]["versions"]) == {"anydepth", "torch", "sacrebleu", "python"}
    assert "tok:13a" in data["signatures"]["BLEU"]
    assert data["models"][0]["pareto_front"] == ["1-1", "2-1", "2-2"]
    assert [row["depth"] for row in data["models"][0]["depths"]] == ["1-1", "1-2", "2-1", "2-2", "3-1"]


def test_comparison_finds_winners_differences_and_chance() -> None:
    better, worse = with_holes("better"), with_holes("worse", best=POOR)
    comparison = compare([worse, better], REFERENCES, samples=50)
    by_depth = {row.depth: row for row in comparison.shared}
    assert by_depth["2-2"].winner == "better"
    assert by_depth["2-2"].differences == {"better": pytest.approx(BLEU[GOOD] - BLEU[POOR])}
    assert by_depth["1-1"].winner is None
    assert by_depth["1-1"].p_values == {"better": 1.0}  # the same outputs
    assert comparison.wins == {"worse": 0, "better": 1}
    assert comparison.mean_differences["better"] == pytest.approx((BLEU[GOOD] - BLEU[POOR]) / 5)


def test_two_models_that_score_nothing_do_not_differ() -> None:
    nonsense = [ModelSweep(label, (measurement(1, 1, 1.0, (label,) * 4),)) for label in ("x", "y")]
    comparison = compare(nonsense, REFERENCES, samples=50)
    assert comparison.shared[0].p_values == {"y": 1.0}
    assert comparison.verdict == "no model is best at any of 1 depth: all are ties"


def test_bootstrap_tells_a_clear_difference_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    lines = [f"sentence number {i} has a few more words" for i in range(100)]
    clear = [line if i % 2 else f"what {i}" for i, line in enumerate(lines)]
    one_off = [*clear[:-1], "sentence number 99 has few more words"]

    def model(label: str, outputs: list[str]) -> ModelSweep:
        one = measurement(1, 1, 1.0)
        quality = score(outputs, lines)
        return ModelSweep(label, (type(one)(**{**one.__dict__, "outputs": tuple(outputs), "quality": quality}),))

    comparison = compare([model("clear", clear), model("all", lines), model("one off", one_off)], lines, samples=200)
    p = comparison.shared[0].p_values
    assert p["all"] < 0.05 < p["one off"]
    assert os.environ["SACREBLEU_SEED"] == "7"


def test_each_model_is_compared_with_the_first_where_the_two_meet(tmp_path) -> None:
    deepest = ModelSweep("vanilla", (measurement(2, 2, 4.0, POOR),))
    result = make_result(with_holes("first"), with_holes("second"), deepest, single("apart"))
    comparison = result.comparison
    assert comparison is not None
    assert len(comparison.shared) == 5
    by_depth = {row.depth: row for row in comparison.shared}
    assert set(by_depth["2-2"].bleu) == {"first", "second", "vanilla"}
    assert set(by_depth["1-1"].bleu) == {"first", "second"}
    assert comparison.mean_differences == {"second": 0.0, "vanilla": pytest.approx(BLEU[POOR] - BLEU[GOOD])}
    write_report(sweep_report(result), tmp_path, "sweep.json")
    to_terminal(sweep_report(result), Console(file=io.StringIO(), width=100))
    assert (tmp_path / "difference-vanilla.png").exists()


def test_comparison_without_a_shared_depth_is_empty() -> None:
    comparison = compare([with_holes(), single()], REFERENCES, samples=50)
    assert comparison.shared == ()
    assert comparison.mean_bleu == comparison.mean_differences == {}


def test_examples_are_the_lines_with_the_widest_spread_in_file_order() -> None:
    result = make_result(with_holes())
    examples = pick_examples(result.models[0], result.sources, result.references, count=2)
    spreads = {e.line: e.spread for e in pick_examples(result.models[0], result.sources, result.references)}
    long_lines = sorted((line for line in spreads if line != 4), key=lambda line: -spreads[line])[:2]
    assert [example.line for example in examples] == sorted(long_lines)


def test_examples_go_from_shallow_to_deep() -> None:
    model = ModelSweep("grid", tuple(measurement(n, m, n + 2 * m) for n in range(1, 7) for m in range(1, 7)))
    shown = depths_to_show(model)
    layers = [one.encoder_layers + one.decoder_layers for one in shown]
    assert len(shown) == 4
    assert layers == sorted(layers)
    assert (shown[0].depth, shown[-1].depth) == ("1-1", "6-6")
    assert [one.depth for one in depths_to_show(single())] == ["6-6"]
