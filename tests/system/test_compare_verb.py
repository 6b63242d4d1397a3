"""The verb `compare` as a user runs it."""

import json
import signal
from pathlib import Path

import pytest
import torch
from conftest import anydepth, assert_one_line, write_corpus

from anydepth.artifact import saving
from anydepth.evaluate.metrics import score
from anydepth.infer.translator import Translator

pytestmark = pytest.mark.slow


def save_noisy(run: Path, folder: Path, noise: float, seed: int) -> Path:
    """The run's model with its weights disturbed: as if trained worse, from another seed."""
    there = Translator.load(run, engine="torch", device="cpu")
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: p.detach() + noise * torch.randn(p.shape, generator=generator) * p.detach().std(correction=0)
        for name, p in there.model.named_parameters()
    }
    content = saving.ModelContent(there.model.config, tensors, there.tokenizer, there.menu, there.languages)
    saving.save(folder, content, {})
    return folder


@pytest.fixture(scope="module")
def models(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("noisy")
    return [save_noisy(toy_run, folder / f"n{seed}", 0.3, seed) for seed in (1, 2, 3)]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    source, reference = write_corpus(tmp_path_factory.mktemp("test"), 40, "test", seed=5)
    return ["--source", source, "--reference", reference, "--threads", 1]


def test_compare_finds_the_worse_way_and_a_second_run_takes_its_work_over(toy_run, models, tmp_path, options, here):
    out = tmp_path / "report"
    noisy = f"noisy={models[0]},{models[1]}"
    done = anydepth("compare", f"clean={toy_run}", noisy, *options, "--samples", 200, "--out", out, fresh=True)
    assert done.returncode == 0, done.stderr
    assert "sentences translated: 120 of 120" in done.stderr.decode()
    assert f"report: {out / 'index.html'}" in done.stderr.decode()
    said = done.stdout.decode()
    for text in ("clean", "baseline", "noisy", "  n1", "  n2", "2-2", "95% interval", "tok:13a"):
        assert text in said
    data = json.loads((out / "compare.json").read_text("utf-8"))
    assert data["conditions"]["lines"] == 40
    clean, worse = data["systems"]
    assert clean["sd_bleu"] is None
    assert worse["difference"]["bleu"] == pytest.approx(worse["mean_bleu"] - clean["mean_bleu"])
    assert worse["difference"]["high"] < 0
    assert worse["difference"]["p_value"] < 0.05
    references = options[3].read_text("utf-8").splitlines()
    for model in (*clean["models"], *worse["models"]):
        outputs = (out / model["outputs"]).read_text("utf-8").splitlines()
        assert score(outputs, references).bleu == pytest.approx(model["bleu"])

    done = here("compare", f"{noisy},{models[2]}", f"clean={toy_run}", *options, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "outputs kept from before: 3 of 4" in done.stderr.decode()
    assert "sentences translated: 40 of 40" in done.stderr.decode()
    again = json.loads((out / "compare.json").read_text("utf-8"))["systems"]
    assert [model["bleu"] for model in again[0]["models"][:2]] == [model["bleu"] for model in worse["models"]]
    assert again[1]["difference"]["low"] > 0


def test_compare_killed_midway_goes_on_with_the_models_that_are_missing(toy_run, models, options, tmp_path, here):
    out = tmp_path / "report"
    command = ["compare", toy_run, *models, *options, "--beam", 4, "--batch-size", 1, "--samples", 20, "--out", out]
    index = out / "outputs" / "made.json"
    done = anydepth(*command, dies=(index.with_name(".made.json"), 8))
    assert done.returncode == -signal.SIGKILL, done.stderr
    before = json.loads(index.read_text("utf-8"))
    assert len(before) == 1
    assert not (out / "compare.json").exists()
    done = here(*command)
    assert done.returncode == 0, done.stderr
    assert f"outputs kept from before: {len(before)} of 4" in done.stderr.decode()
    assert f"sentences translated: {40 * (4 - len(before))} of" in done.stderr.decode()
    after = json.loads(index.read_text("utf-8"))
    assert list(after) == ["run.1.txt", "n1.1.txt", "n2.1.txt", "n3.1.txt"]
    assert {file: after[file] for file in before} == before


def test_compare_without_a_report_at_a_depth(toy_run, models, options, here):
    done = here("compare", toy_run, models[0], *options, "--depth", "1-2", "--beam", 2, "--samples", 20)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[1].split()[:2] == ["run", "1-2"]
    assert lines[2].split()[:2] == ["n1", "1-2"]
    assert "report:" not in done.stderr.decode()


def test_compare_refuses_what_it_cannot_do(toy_run, models, tmp_path, options, here):
    two = [toy_run, models[0]]
    assert_one_line(here("compare", toy_run, *options), "nothing to compare: give two or more systems")
    assert_one_line(here("compare", *two, *options, "--depth", "9-9"), "run, run: this model has no depth 9-9")
    assert_one_line(here("compare", toy_run, "x=nowhere", *options), "there is no model at nowhere")
    assert_one_line(here("compare", *two, *options, "--samples", 0), "--samples")
    (tmp_path / "short").write_text("the cat.\n")
    (tmp_path / "empty").write_text("")
    for name, words in (("short", "the source has 40 lines but the reference has 1"), ("empty", "is empty")):
        assert_one_line(here("compare", *two, *options, "--reference", tmp_path / name), words)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    done = here("compare", *two, *options, "--out", tmp_path / "mine")
    assert_one_line(done, "not empty and not a comparison", "--out")
