import torch

from anydepth.training.checkpoint import (
    Checkpoint,
    TrainState,
    average_checkpoints,
    load_tensors,
    read_state,
    remove_checkpoints,
    remove_torn,
    save_checkpoint,
    saved_steps,
)


def save(run, step, value, **state):
    tensors = {"model": {"w": torch.full((3,), value)}, "optimizer": {"w/exp_avg": torch.ones(3)}}
    save_checkpoint(run, Checkpoint(TrainState(step=step, **state), tensors))


def test_round_trip(tmp_path):
    save(tmp_path, 5, 2.0, epoch=1, batch=7, best=12.5, best_step=4, worse=1)
    assert remove_torn(tmp_path) == []
    assert read_state(tmp_path, 5) == TrainState(step=5, epoch=1, batch=7, best=12.5, best_step=4, worse=1)
    assert load_tensors(tmp_path, 5, "model")["w"].tolist() == [2.0] * 3


def test_a_torn_checkpoint_is_recognised_and_skipped(tmp_path):
    for step in (1, 2, 3, 4, 5):
        save(tmp_path, step, float(step))
    folder = tmp_path / "checkpoints"
    weights = folder / "step-000000005" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])  # truncated
    flipped = folder / "step-000000004" / "model.safetensors"
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"\x01")  # same length, one byte off
    (folder / "step-000000003" / "optimizer.safetensors").unlink()
    (folder / "step-000000002" / "state.json").write_text('{"state"')
    (folder / "step-old").mkdir()  # somebody's copy
    assert remove_torn(tmp_path) == [2, 3, 4, 5]
    assert saved_steps(tmp_path) == [1]
    assert read_state(tmp_path, 9) is None


def test_leftovers_of_a_killed_writer_are_invisible_and_removed(tmp_path):
    save(tmp_path, 1, 1.0)
    left = tmp_path / "checkpoints" / ".step-000000002.tmp-4242"
    left.mkdir()
    assert saved_steps(tmp_path) == [1]
    assert remove_torn(tmp_path) == []
    assert not left.exists()


def test_average_and_removal(tmp_path):
    for step, value in ((1, 9.0), (2, 1.0), (3, 2.0)):
        save(tmp_path, step, value)
    assert average_checkpoints(tmp_path, [2, 3])["w"].tolist() == [1.5] * 3
    remove_checkpoints(tmp_path, keep={3})
    assert saved_steps(tmp_path) == [3]
