"""Two processes with half of each batch learn what one learns from the whole, whatever the objective."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import forked
import pytest
import torch
from conftest import RECIPE, TWO_TARGETS, begin_with_data, load_weights, made_once, run_recipe, write_corpus
from labelled_texts import toy_texts, write_labelled
from made_classifiers import RECIPE as LABELS
from safetensors.torch import load_file
from trained_alike import ALIKE, STEPS

from anydepth.config.reading import read_recipe
from anydepth.data import prepare
from anydepth.errors import UserError
from anydepth.training.distributed import PORT_KEY, World, make_store

pytestmark = pytest.mark.slow

OBJECTIVES = {
    "vanilla": "objective={name: vanilla}",
    "sampled": "objective={name: tied-multi, mode: sampled}",
    "sampled-encoder": "objective={name: tied-multi, mode: sampled-encoder}",
    "sandwich": "objective={name: tied-multi, mode: sampled-encoder, encoder_exits: sandwich}",
    "exact": "objective={name: tied-multi, mode: exact}",
    "flexible": "objective={name: flexible, encoder_tasks: 1}",
    "layerdrop": "objective={name: layerdrop, encoder_p: 0.5, decoder_p: 0.5}",
    "latent": "objective={name: latent, sides: both, encoder_target: 1, decoder_target: 1, inner_steps: 2}",
}
CASES: dict[str, tuple[str, list[str]]] = {name: ("pairs", [objective]) for name, objective in OBJECTIVES.items()} | {
    "accumulated": ("pairs", ["train.accumulate=3", "train.batch_tokens=200"]),
    "few-rows": ("pairs", ["train.batch_tokens=16"]),  # fewer sentences in a batch than processes
    "shared": ("pairs", ["model.encoder_shared=all", "train.sampled_softmax=60", "train.label_smoothing=0"]),
    "recomputed": ("pairs", ["train.activation_checkpointing=true"]),
    "adam": ("pairs", ["train.optimizer=adam", "train.learning_rate=1e-4"]),
    "muon": ("pairs", ["train.optimizer=muon", "train.learning_rate=1e-3", "train.precision=float32"]),
    "augmented": ("pairs", ["data.augment={upper: 0.2, join: 0.2, lower: 0.2}", "data.vocabulary=360"]),
    "self-taught": ("pairs", ["teacher={model: self, method: ckd, attention: true, eta: 0.2, lambda: 0.3}"]),
    "taught": ("pairs", [OBJECTIVES["vanilla"], "teacher={model: TEACHER, method: ckd, eta: 0.2, lambda: 0.3}"]),
    "masked": ("text", [OBJECTIVES["latent"].replace("both", "encoder").replace("decoder_target: 1, ", "")]),
    "labels": ("labels", ["objective={name: vanilla}"]),
    "halting": ("labels", ["objective={name: halting}"]),
    "by-word": ("labels", ["objective={name: word-depths}"]),
    "languages": ("languages", [OBJECTIVES["latent"]]),
}
# What one process makes of a case is then what it makes of another.
SAME_AS = {"recomputed": "sampled"}
# Not sharded: what is refused, and what differs from others that are in nothing that sharding could change. "now-whole"
# and "now-sharded" are of Adam, "taught" is vanilla, "languages" and "masked" are latent.
APART = ("by-word", "halting", "adam", "augmented", "labels", "latent", "vanilla")
SHARDED = [name for name in CASES if name not in APART]
OTHER_NUMBERS = ("one-then-two", "two-then-one")  # of processes than a run began with
LONGER = ["train.steps=25", "train.checkpoint_every=10", "train.valid_every=1000"]
IN_BFLOAT16 = {"bfloat16": "train.shard=false", "bfloat16-sharded": "train.shard=true"}


@pytest.fixture(scope="module")
def recipes(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("recipes")
    source, target = write_corpus(folder)
    found = {name: folder / f"{name}.yaml" for name in ("pairs", "text", "labels", "languages")}
    found["pairs"].write_text(RECIPE.format(source=source, target=target), "utf-8")
    text = RECIPE.format(source=source, target=target).replace(
        f"{{source: {source}, target: {target}}}", f"{{text: {source}}}"
    )
    text = (
        text.replace("decoder_layers: 2", "decoder_layers: 0")
        .replace("vocabulary: 320", "vocabulary: 300")
        .replace("  target_language: en\n", "")
    )
    found["text"].write_text(text, "utf-8")
    labelled = write_labelled(folder / "labels.tsv", toy_texts(300))
    found["labels"].write_text(LABELS.format(train=labelled, objective="vanilla"), "utf-8")
    loud = folder / "train.loud"
    loud.write_text(target.read_text("utf-8").upper(), "utf-8")
    pairs = TWO_TARGETS.format(source=source, target=target, loud=loud)
    found["languages"].write_text(pairs + RECIPE[RECIPE.index("model:") :].format(), "utf-8")
    return found


@pytest.fixture(scope="module")
def together(recipes, toy_run, tmp_path_factory) -> Path:
    """All cases by two processes, which are started once."""
    return made_once(tmp_path_factory, "together", lambda folder: train_together(folder, recipes, toy_run))


def train_together(folder: Path, recipes: dict[str, Path], toy_run: Path) -> None:
    cases = [(name, name, []) for name in CASES]
    cases += [(f"{name}-sharded", name, ["train.shard=true"]) for name in SHARDED]
    cases += [(run, "vanilla", ["train.precision=bfloat16", shard]) for run, shard in IN_BFLOAT16.items()]
    for run, first, second in (("now-whole", "true", "false"), ("now-sharded", "false", "true")):
        cases.append((run, "adam", [f"train.shard={first}", f"train.steps={STEPS // 2}"]))
        cases.append((run, "adam", [f"train.shard={second}"]))
    half = f"train.steps={STEPS // 2}"
    cases += [("one-then-two", "adam", []), ("two-then-one", "adam", [half]), ("undisturbed", "sampled", LONGER)]
    asked = [
        {
            "recipe": str(recipes[CASES[case][0]]),
            "run": str(folder / run),
            "changes": [*case_changes(case, toy_run), *more],
        }
        for run, case, more in cases
    ]
    for one in asked:
        begin_with_data(read_recipe(Path(one["recipe"]), one["changes"]), Path(one["run"]))
    run_recipe(recipes["pairs"], folder / "one-then-two", *case_changes("adam", toy_run), half)
    (folder / "cases.json").write_text(json.dumps(asked), "utf-8")
    two_processes(folder / "said.txt", folder / "cases.json", data_apart(folder / "apart"))
    run_recipe(recipes["pairs"], folder / "two-then-one", *case_changes("adam", toy_run))


def data_apart(folder: Path) -> Path:
    """A run folder for each process, where the second one's has data from an earlier state of the same corpus."""
    source, target = write_corpus(folder, 200)
    recipe = folder / "recipe.yaml"
    text = RECIPE.format(source=source, target=target).replace("vocabulary: 320", "vocabulary: 300")
    recipe.write_text(text, "utf-8")
    earlier = read_recipe(recipe)
    prepare(earlier.data, folder / "1" / "data", earlier.train.seed)
    write_corpus(folder, 220)
    return folder


def two_processes(said: Path, *arguments: object) -> None:
    """Runs trained_together.py as torchrun would, in two processes that need not import PyTorch first."""
    script = Path(__file__).with_name("trained_together.py").read_text("utf-8")
    meet = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    with open(os.devnull, "rb") as nothing, said.open("wb") as out:
        files = nothing.fileno(), out.fileno(), out.fileno()
        begun = [
            forked.start(list(map(str, arguments)), *files, {**os.environ, **meet, **rank}, script=script)
            for rank in ({"RANK": str(number), "LOCAL_RANK": str(number)} for number in range(2))
        ]
        try:
            codes = [process.wait() for process in begun]
        finally:
            for process in begun:
                process.kill()
    assert codes == [0, 0], said.read_text("utf-8", "replace")[-4000:]


def case_changes(case: str, teacher: Path) -> list[str]:
    return [*ALIKE, *(change.replace("TEACHER", str(teacher)) for change in CASES[case][1])]


def losses(run: Path) -> list[dict[str, float]]:
    """And all other figures of an update, such as the parts of its loss."""
    records = map(json.loads, (run / "log.jsonl").read_text("utf-8").splitlines())
    return [pick_floats(record) for record in records if record["kind"] == "train"]


def pick_floats(record: dict[str, object]) -> dict[str, float]:
    return {key: value for key, value in record.items() if isinstance(value, float) and "second" not in key}


def validations(run: Path) -> dict[str, float]:
    """What is measured of the last one."""
    records = map(json.loads, (run / "log.jsonl").read_text("utf-8").splitlines())
    return pick_floats([record for record in records if record["kind"] == "valid"][-1])


def load_checkpoint(run: Path) -> dict[str, torch.Tensor]:
    folder = run / "checkpoints" / f"step-{STEPS:09d}"
    return {**load_file(folder / "model.safetensors"), **load_file(folder / "optimizer.safetensors")}


@pytest.fixture(scope="module")
def alone(recipes, toy_run, tmp_path_factory):
    """What one process makes of a case."""
    folder, made = tmp_path_factory.mktemp("alone"), {}

    def train(case: str) -> Path:
        if case not in made:
            run_recipe(recipes[CASES[case][0]], folder / case, *case_changes(case, toy_run))
            made[case] = folder / case
        return made[case]

    return train


RUNS = {**{name: name for name in CASES}, **{f"{name}-sharded": name for name in SHARDED}}


def test_two_processes_learn_what_one_does(alone, together):
    """In one test, for the processes are started once."""
    for run in (*RUNS, "now-whole", "now-sharded", *OTHER_NUMBERS):
        print(run)  # which one it was, should it fail
        check_alike(alone, together, run)
    for run in OTHER_NUMBERS:
        found, expected = (position(folder) for folder in (together / run, alone("adam")))
        assert found == expected
    for run in IN_BFLOAT16:
        print(run)
        found, expected = ([one["loss"] for one in losses(folder)] for folder in (together / run, alone("vanilla")))
        assert found != expected
        assert found == pytest.approx(expected, rel=5e-3)
    said = (together / "said.txt").read_text("utf-8")
    for rank in (0, 1):
        assert f"process {rank}: the weights of process 1 differ from those of process 0" in said
        assert f"process {rank}: process 1 finds other data in {together / 'apart' / str(rank)}/data than" in said
        assert f"process {rank} found {together / 'undisturbed' / 'model'}" in said


def position(run: Path) -> list[object]:
    """How far it is in the data."""
    state = json.loads((run / f"checkpoints/step-{STEPS:09d}/state.json").read_text("utf-8"))["state"]
    return [state[key] for key in ("step", "epoch", "batch", "data")]


def check_alike(alone, together, run):
    case = RUNS.get(run, "adam")
    one, two = alone(SAME_AS.get(case, case)), together / run
    assert len(losses(one)) == STEPS
    for own, theirs in zip(losses(two), losses(one), strict=True):
        assert own == pytest.approx(theirs, rel=1e-5)
    assert validations(two) == pytest.approx(validations(one), rel=1e-4)
    expected, found = (load_checkpoint(folder) for folder in (one, two))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        sure = torch.ones_like(value, dtype=torch.bool)
        if f"{key}/exp_avg_sq" in expected and case in ("adam", "muon"):
            sure = expected[f"{key}/exp_avg_sq"].sqrt() > 1e-5  # Adam makes a step of what is nothing but rounding
        torch.testing.assert_close(
            found[key][sure], value[sure], rtol=1e-4, atol=5e-6, msg=lambda message, key=key: f"{key}: {message}"
        )


def test_a_worker_that_is_killed_costs_nothing_but_time(recipes, toy_run, together, tmp_path):
    """The first of two, each on a machine: torchrun starts both again, and they go on from the last checkpoint."""
    run = tmp_path / "killed"
    changes = [*case_changes("sampled", toy_run), *LONGER]
    begin_with_data(read_recipe(recipes["pairs"], changes), run)
    meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    settings = [word for change in changes for word in ("--set", change)]
    script = [Path(__file__).with_name("killed_worker.py"), 0, tmp_path / "mark"]
    start = ["--nnodes", 2, "--nproc-per-node", 1, *meet, "--max-restarts", 2]
    words = [*start, *script, "train", recipes["pairs"], "--out", run, *settings]
    command = [sys.executable, "-m", "torch.distributed.run", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    begun = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    said = "".join(process.communicate()[1].decode() for process in begun)
    assert [process.returncode for process in begun] == [0, 0], said[-3000:]
    assert (tmp_path / "mark").exists()
    assert "resuming from step 10" in said
    records = map(json.loads, (run / "log.jsonl").read_text("utf-8").splitlines())
    assert [one["step"] for one in records if one["kind"] == "train"] == list(range(1, 26))  # none twice, none missing
    expected = load_weights(together / "undisturbed")
    for name, value in load_weights(run).items():
        assert torch.equal(value, expected[name]), name


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_model_to_be_divided_waits_in_main_memory():
    """Whole it may not fit on a device; `meta` stands for one."""
    device = torch.device("meta")
    for sharded, place in ((False, "meta"), (True, "cpu")):
        placed = World(0, 2, sharded, "meta").place(torch.nn.Linear(2, 2), device)
        assert placed.weight.device.type == place


def test_a_first_process_that_nobody_reaches(monkeypatch):
    """Of a port that is closed, as behind a firewall, the others hear soon enough, and say which it was."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    port = free_port()
    shared = torch.distributed.HashStore()
    shared.set(PORT_KEY, str(port))
    with pytest.raises(UserError, match=f"does not answer at 127.0.0.1, port {port} .* open the ports"):
        make_store(shared, rank=1, size=2, patience=timedelta(0))


def test_a_port_of_before_a_restart(monkeypatch):
    """The others try until the first one has started and left its own."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    shared = torch.distributed.HashStore()
    make_store(shared, rank=0, size=2)  # closed again, for nobody keeps it
    with ThreadPoolExecutor() as threads:
        other = threads.submit(make_store, shared, rank=1, size=2)
        first = make_store(shared, rank=0, size=2)
        first.set("word", "said")
        assert other.result().get("word") == b"said"
