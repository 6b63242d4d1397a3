"""Every token at a depth of its own: computing the active ones only equals computing all and keeping some."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from anydepth.config import ModelConfig
from anydepth.depth import SubNetwork
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.model.packing import Packing

CPU = torch.device("cpu")
LAYERS = 4
SIZES = {"width": 16, "heads": 2, "ffn": 24, "encoder_layers": LAYERS, "decoder_layers": 0, "dropout": 0.0}
BY_WORD = SubNetwork.words(LAYERS, 0)
LENGTHS = (7, 3, 5, 7, 1)
ALWAYS, NEVER = 1e9, 0.0


@pytest.fixture(params=[ALWAYS, NEVER, 1.0], ids=["absorbed", "projected", "as it is"])
def absorbed(request, monkeypatch):
    """Whether keys and values are projected, or their matrices go to the queries."""
    monkeypatch.setattr("anydepth.model.attention.ABSORBED", request.param)
    monkeypatch.setattr("anydepth.model.attention.SHORT", 0)


def made(norm: str = "layer", **options: object) -> Transformer:
    """A model none of whose biases is zero."""
    torch.manual_seed(1)
    model = Transformer(ModelConfig(**(SIZES | {"norm": norm} | options)), 50, classes=3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def texts(lengths: tuple[int, ...] = LENGTHS, seed: int = 1) -> tuple[Tensor, Tensor | None]:
    generator = torch.Generator().manual_seed(seed)
    source_bs = torch.randint(4, 50, (len(lengths), max(lengths)), generator=generator)
    padding_bs = torch.arange(max(lengths))[None] >= torch.tensor(lengths)[:, None]
    source_bs[padding_bs] = 0
    return source_bs, padding_bs if padding_bs.any() else None


def random_depths(source_bs: Tensor, seed: int, deepest: int = LAYERS) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    depths_bs = torch.randint(1, deepest + 1, source_bs.shape, generator=generator)
    return depths_bs.masked_fill(source_bs == 0, 0)


def masked(
    model: Transformer, source_bs: Tensor, padding_bs: Tensor | None, depths_bs: Tensor, weights: object = None
) -> list[Tensor]:
    """Every layer on everything; a token takes what came of it while it is not as deep as it goes."""
    x = model._embed(model.source_embedding, source_bs, 0)
    attend = None if padding_bs is None else ~padding_bs[:, None, None]
    states = []
    for n, layer in enumerate(model.encoder.layers):
        new = layer(x, 1.0 if weights is None else weights[n], attend)
        x = torch.where((depths_bs > n)[:, :, None], new, x)
        states.append(x)
    return states


def assert_same_states(packed: list[Tensor], expected: list[Tensor], rows: object = slice(None)) -> None:
    assert packed
    for mine, theirs in zip(packed, expected, strict=False):
        torch.testing.assert_close(mine, theirs[rows], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(packed[-1], expected[-1][rows], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lengths", [LENGTHS, (6, 6, 6), (5,), (1,)], ids=["padded", "alike", "one", "one token"])
@pytest.mark.parametrize("norm", ["layer", "post"])
@torch.no_grad()
def test_packed_equals_masked(absorbed, norm, lengths):
    model = made(norm)
    source_bs, padding_bs = texts(lengths)
    for seed in range(5):
        depths_bs = random_depths(source_bs, seed)
        packed = model.encode(source_bs, BY_WORD, padding_bs, depths=depths_bs)
        assert_same_states(packed, masked(model, source_bs, padding_bs, depths_bs))


@torch.no_grad()
def test_texts_that_are_done_early_leave_the_others_alone(absorbed):
    model = made()
    source_bs, padding_bs = texts()
    depths_bs = random_depths(source_bs, 3)
    depths_bs[[0, 3]] = depths_bs[[0, 3]].clamp(max=1)  # the longest ones
    depths_bs[2] = depths_bs[2].clamp(max=2)
    depths_bs[1, 0] = LAYERS
    active = Packing(depths_bs, padding_bs, CPU).at(LAYERS - 1)
    assert active.sentences_l is not None
    assert max(active.lengths) < max(LENGTHS)
    packed = model.encode(source_bs, BY_WORD, padding_bs, depths=depths_bs)
    assert_same_states(packed, masked(model, source_bs, padding_bs, depths_bs))


@torch.no_grad()
def test_alone_or_with_others_a_text_has_the_same_states(absorbed):
    model = made("post")
    source_bs, padding_bs = texts()
    depths_bs = random_depths(source_bs, 4)
    together = model.encode(source_bs, BY_WORD, padding_bs, depths=depths_bs)
    for row, length in enumerate(LENGTHS):
        one = slice(row, row + 1), slice(length)
        alone = model.encode(source_bs[one], BY_WORD, depths=depths_bs[one])
        assert_same_states(alone, together, one)


@pytest.mark.parametrize("norm", ["layer", "post"])
def test_gradients_equal_those_of_the_masked_computation(absorbed, norm):
    model = made(norm)
    source_bs, padding_bs = texts()
    depths_bs = random_depths(source_bs, 5)
    depths_bs[0] = depths_bs[0].clamp(max=2)
    labels_b = torch.tensor([0, 1, 2, 0, 1])

    def gradients(states: list[Tensor]) -> list[Tensor]:
        loss = F.cross_entropy(model.output(model.read_out(states[-1], padding_bs)), labels_b)
        used = [p for name, p in model.named_parameters() if not name.startswith("decoder.")]
        return torch.autograd.grad(loss, used)

    packed = gradients(model.encode(source_bs, BY_WORD, padding_bs, depths=depths_bs))
    expected = gradients(masked(model, source_bs, padding_bs, depths_bs))
    assert all(theirs.abs().sum() > 0 for theirs in expected)
    for mine, theirs in zip(packed, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("lengths", [LENGTHS, (6, 6)], ids=["padded", "alike"])
@torch.no_grad()
def test_all_layers_for_all_is_the_plain_pass(absorbed, lengths):
    model = made()
    source_bs, padding_bs = texts(lengths)
    depths_bs = torch.full_like(source_bs, LAYERS).masked_fill(source_bs == 0, 0)
    plain = model.encode(source_bs, model.full, padding_bs)
    packed = model.encode(source_bs, BY_WORD, padding_bs, depths=depths_bs)
    assert len(packed) == len(plain) == LAYERS
    real_bs = source_bs != 0
    for mine, theirs in zip(packed, plain, strict=True):
        torch.testing.assert_close(mine[real_bs], theirs[real_bs], rtol=1e-5, atol=1e-5)
    if padding_bs is None:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(packed, plain, strict=True))


@torch.no_grad()
def test_the_loop_ends_when_all_are_done():
    model = made()
    source_bs, padding_bs = texts()
    depths_bs = random_depths(source_bs, 6, deepest=2)
    assert depths_bs.max() == 2
    states = model.encode(source_bs, BY_WORD, padding_bs, depths=depths_bs)
    assert len(states) == 2
    np.testing.assert_array_equal(states.depths, depths_bs)
    ones = (source_bs != 0).long()
    assert len(model.encode(source_bs, BY_WORD, padding_bs, depths=ones)) == 1


@torch.no_grad()
def test_padding_has_no_depth_whatever_is_said_of_it():
    model = made()
    source_bs, padding_bs = texts()
    depths_bs = random_depths(source_bs, 7, deepest=2)
    said_bs = torch.where(source_bs == 0, LAYERS, depths_bs)
    states = model.encode(source_bs, BY_WORD, padding_bs, depths=said_bs)
    np.testing.assert_array_equal(states.depths, depths_bs)
    assert_same_states(states, masked(model, source_bs, padding_bs, depths_bs))


@torch.no_grad()
def test_a_token_that_is_done_keeps_its_state_and_is_still_looked_at(absorbed):
    model = made()
    source_bs, _ = texts((6,))
    depths_bs = torch.tensor([[1, LAYERS, 1, LAYERS, 1, 1]])
    states = model.encode(source_bs, BY_WORD, depths=depths_bs)
    done = depths_bs[0] == 1
    assert all(torch.equal(state[:, done], states[0][:, done]) for state in states)
    # from the same states on, but for the one that is done: the others see that
    active = Packing(depths_bs, None, CPU).at(1)
    other = states[0].clone()
    other[0, 2] += torch.randn(16, generator=torch.Generator().manual_seed(1))
    layer = model.encoder.layers[1]
    before, after = (layer(x, 1.0, None, active=active) for x in (states[0], other))
    assert (before - after)[0, ~done].abs().min(-1).values.gt(1e-6).all()
    assert torch.equal(after[0, done], other[0, done])


@torch.no_grad()
def test_the_depth_of_one_changes_what_the_others_see():
    model = made()
    source_bs, _ = texts((4,))
    shallow = model.encode(source_bs, BY_WORD, depths=torch.tensor([[1, 3, 3, 3]]))
    deep = model.encode(source_bs, BY_WORD, depths=torch.tensor([[2, 3, 3, 3]]))
    torch.testing.assert_close(shallow[1][0, 1:], deep[1][0, 1:], rtol=1e-5, atol=1e-5)  # reads layer 1 of all
    assert (shallow[2] - deep[2])[0, 1:].abs().max() > 1e-4


@torch.no_grad()
def test_layers_with_weights(absorbed):
    model = made()
    source_bs, padding_bs = texts()
    depths_bs = random_depths(source_bs, 8)
    plain = (0.3, 1.0, 0.0, 0.7)
    weighted = SubNetwork(BY_WORD.encoder, (), plain, by_word=True)
    expected = masked(model, source_bs, padding_bs, depths_bs, plain)
    assert_same_states(model.encode(source_bs, weighted, padding_bs, depths=depths_bs), expected)
    gates = torch.tensor(plain).unbind()
    assert_same_states(model.encode(source_bs, BY_WORD, padding_bs, gates=gates, depths=depths_bs), expected)


@torch.no_grad()
def test_rezero_has_its_scales():
    model = made("none", residual="rezero")
    source_bs, padding_bs = texts()
    depths_bs = random_depths(source_bs, 9)
    expected = masked(model, source_bs, padding_bs, depths_bs, model.encoder.scales.unbind())
    assert_same_states(model.encode(source_bs, BY_WORD, padding_bs, depths=depths_bs), expected)


def test_attention_dropout_drops_in_training_only(absorbed):
    model = made(attention_dropout=0.5)
    source_bs, padding_bs = texts()
    depths_bs = random_depths(source_bs, 10)

    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return model.encode(source_bs, BY_WORD, padding_bs, depths=depths_bs)[-1]

    assert torch.equal(run(1), run(2))
    model.train()
    assert not torch.equal(run(1), run(2))
    assert torch.equal(run(1), run(1))
    run(1).sum().backward()
    assert model.encoder.layers[-1].attention_qkv.weight.grad.isfinite().all()


@torch.no_grad()
def test_depths_that_the_model_says_itself(absorbed):
    model = made(halting=True)
    model.halting.weight.mul_(20)
    source_bs, padding_bs = texts()
    states = model.encode(source_bs, BY_WORD, padding_bs)
    first = model.encode(source_bs, SubNetwork.prefix(1, 0), padding_bs)[0]
    depths_bs = model.halts(first).masked_fill(source_bs == 0, 0)
    assert len(depths_bs.unique()) > 2
    np.testing.assert_array_equal(states.depths, depths_bs)
    real_bs = source_bs != 0
    expected = masked(model, source_bs, padding_bs, depths_bs)[len(states) - 1]
    torch.testing.assert_close(states[-1][real_bs], expected[real_bs], rtol=1e-5, atol=1e-5)


def test_a_model_that_knows_no_depths_asks_for_them():
    with pytest.raises(UserError, match="no halting unit: give the depths"):
        made().encode(texts()[0], BY_WORD)


def test_what_is_active_by_hand():
    depths_bs = torch.tensor([[3, 1, 2, 1], [1, 1, 0, 0], [2, 3, 2, 0]])
    packing = Packing(depths_bs, depths_bs == 0, CPU)
    assert packing.layers == 3
    first, second, third = (packing.at(place) for place in range(3))
    assert first.rows_a.tolist() == [0, 1, 2, 3, 4, 5, 8, 9, 10]
    assert (first.counts, first.lengths, first.sentences_l) == ([4, 2, 3], [4, 2, 3], None)
    assert first.positions_a.tolist() == [0, 1, 2, 3, 4, 5, 8, 9, 10]
    assert first.attend[:, 0, 0].tolist() == [[True] * 4, [True, True, False, False], [True, True, True, False]]
    assert second.rows_a.tolist() == [0, 2, 8, 9, 10]
    assert (second.counts, second.lengths, second.sentences_l.tolist()) == ([2, 3], [4, 3], [0, 2])
    assert second.positions_a.tolist() == [0, 1, 3, 4, 5]
    assert third.rows_a.tolist() == [0, 9]
    assert third.positions_a is None
    assert third.counts == [1, 1]
    assert Packing(torch.tensor([[1, 2], [2, 1]]), None, CPU).at(0) is None


def test_what_is_active_is_told_where_the_states_are():
    """Depths from a table are on the CPU, wherever the model is."""
    depths_bs = torch.tensor([[1, 2, 0], [2, 2, 1], [1, 1, 1]])
    active = Packing(depths_bs, depths_bs == 0, torch.device("meta")).at(1)
    told = (active.rows_a, active.sentences_l, active.positions_a, active.attend)
    assert {one.device.type for one in told} == {"meta"}
