"""What an encoder alone says: pooling, classes, the transform of BERT, and what it reads besides tokens."""

import pytest
import torch
import torch.nn.functional as F

from anydepth.config import ModelConfig
from anydepth.depth import SubNetwork
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.model.transformer import pool

SIZES = {"width": 16, "heads": 2, "ffn": 24, "encoder_layers": 3, "decoder_layers": 0, "dropout": 0.0}
SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0]])
PADDING = SOURCE == 0


def made(classes: int = 0, **options: object) -> Transformer:
    torch.manual_seed(1)
    return Transformer(ModelConfig(**(SIZES | options)), 50, classes).eval()


def test_pooling_by_hand():
    x_bsd = torch.tensor([[[1.0, -4.0], [3.0, -2.0]], [[-1.0, 5.0], [-3.0, -9.0]]])
    assert pool(x_bsd, None).tolist() == [[3.0, 0.0, 2.0, 0.0, 1.0], [0.0, 5.0, 0.0, 0.0, 1.0]]


def test_padding_is_not_pooled():
    x_bsd = torch.tensor([[[1.0, -4.0], [3.0, -2.0]], [[-1.0, 5.0], [7.0, 9.0]]])
    padding_bs = torch.tensor([[False, False], [False, True]])
    assert pool(x_bsd, padding_bs).tolist() == [[3.0, 0.0, 2.0, 0.0, 1.0], [0.0, 5.0, 0.0, 5.0, 1.0]]


def test_what_stands_at_padding_gets_no_gradient():
    x_bsd = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    pool(x_bsd, PADDING).sum().backward()
    assert x_bsd.grad[PADDING].eq(0).all()
    assert x_bsd.grad.isfinite().all()
    assert x_bsd.grad[~PADDING].abs().sum() > 0


@torch.no_grad()
def test_the_last_column_of_a_classifiers_matrix_is_its_bias():
    model = made(classes=3)
    assert model.output.weight.shape == (3, 33)
    state = model.encode(SOURCE, model.full, PADDING)[-1]
    before = model.output(model.read_out(state, PADDING))
    model.output.weight[:, -1] += torch.tensor([1.0, 2.0, 3.0])
    after = model.output(model.read_out(state, PADDING))
    torch.testing.assert_close(after - before, torch.tensor([[1.0, 2.0, 3.0]] * 2))


@torch.no_grad()
def test_a_classifier_reads_the_final_norm_of_its_real_tokens():
    model = made(classes=3)
    for depth in (1, 3):
        state = model.encode(SOURCE, SubNetwork.prefix(depth, 0), PADDING)[-1]
        found = model.read_out(state, PADDING)
        for row, length in enumerate((5, 3)):
            tokens = F.layer_norm(state[row, :length], (16,), model.encoder.norm.weight, model.encoder.norm.bias)
            expected = torch.cat([tokens.max(0).values.relu(), tokens.mean(0).relu(), torch.ones(1)])
            torch.testing.assert_close(found[row], expected)


@torch.no_grad()
def test_what_it_reads_does_not_depend_on_padding():
    model = made(classes=3)
    together = model.read_out(model.encode(SOURCE, model.full, PADDING)[-1], PADDING)
    alone = model.read_out(model.encode(SOURCE[1:, :3], model.full)[-1], None)
    torch.testing.assert_close(together[1:], alone, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_transform_by_hand():
    model = made(head="transform", norm_epsilon=1e-3)
    torch.nn.init.normal_(model.transform.norm.weight)
    torch.nn.init.normal_(model.transform.dense.bias)
    state = model.encode(SOURCE, model.full, PADDING)[-1]
    rows_r = torch.tensor([1, 5])
    exit_rd = F.layer_norm(state.flatten(0, 1)[rows_r], (16,), eps=1e-3)
    dense, norm = model.transform.dense, model.transform.norm
    expected = F.layer_norm(F.gelu(exit_rd @ dense.weight.T + dense.bias), (16,), norm.weight, norm.bias, 1e-3)
    torch.testing.assert_close(model.read_out(state, PADDING, rows_r), expected)
    torch.testing.assert_close(model.read_out(state, PADDING)[0, 1], expected[0])


@torch.no_grad()
def test_without_the_transform_rows_are_the_exit_itself():
    model = made()
    state = model.encode(SOURCE, model.full, PADDING)[-1]
    found = model.read_out(state, PADDING, torch.tensor([1, 5]))
    torch.testing.assert_close(found, model.memory(state).flatten(0, 1)[[1, 5]])


def test_a_classifier_has_no_transform():
    assert made(classes=2, head="transform").transform is None


@torch.no_grad()
def test_the_unit_says_the_largest_output_counted_from_one():
    model = made(classes=2, halting=True, halting_confidence=0.0)
    model.halting.weight.zero_()
    model.halting.weight[:, :3] = torch.eye(3)
    model.halting.bias.copy_(torch.tensor([0.0, 0.5, 0.0]))
    first_bsd = torch.zeros(1, 4, 16)
    first_bsd[0, 0, 0], first_bsd[0, 1, 2], first_bsd[0, 2, 0] = 1.0, 1.0, 0.4
    assert model.halts(first_bsd).tolist() == [[1, 3, 2, 2]]


@torch.no_grad()
@pytest.mark.parametrize(("confidence", "depth"), [(0.4, 1), (0.6, 2), (0.79, 2), (0.81, 3), (0.999, 3)])
def test_the_unit_goes_as_deep_as_suffices_with_some_confidence(confidence, depth):
    """With probabilities of 0.5, 0.3 and 0.2 that layer 1, 2 or 3 is the first to suffice."""
    model = made(classes=2, halting=True, halting_confidence=confidence)
    model.halting.weight.zero_()
    model.halting.bias.copy_(torch.tensor([0.5, 0.3, 0.2]).log())
    assert model.halts(torch.zeros(1, 2, 16)).tolist() == [[depth, depth]]


@torch.no_grad()
def test_kinds_of_text():
    model = made(token_types=2, positions="learned", max_length=8, norm="post")
    plain = model.encode(SOURCE, model.full, PADDING)[-1]
    zeros, ones = torch.zeros_like(SOURCE), torch.ones_like(SOURCE)
    torch.testing.assert_close(model.encode(SOURCE, model.full, PADDING, types_bs=zeros)[-1], plain)
    other = model.encode(SOURCE, model.full, PADDING, types_bs=ones)[-1]
    assert (other - plain).abs().max() > 1e-3
    model.types.weight[1] = model.types.weight[0]
    torch.testing.assert_close(model.encode(SOURCE, model.full, PADDING, types_bs=ones)[-1], plain)


@torch.no_grad()
def test_learnt_places_are_added_and_refuse_more_text_than_there_are():
    model = made(positions="learned", max_length=5)
    embedded = model._embed(model.source_embedding, SOURCE, 0)
    torch.testing.assert_close(embedded, model.source_embedding.weight[SOURCE] + model.positions.weight)
    with pytest.raises(UserError, match=r"6 subwords are more than the model takes \(5\)"):
        model.encode(torch.full((1, 6), 7), model.full)


def test_a_unit_and_tables_count_as_parameters():
    plain, larger = made(classes=2), made(classes=2, halting=True, token_types=2, positions="learned", max_length=8)
    counted = [sum(p.numel() for p in model.used_parameters(SubNetwork.words(3, 0))) for model in (plain, larger)]
    assert counted[1] - counted[0] == 16 * 3 + 3 + 2 * 16 + 8 * 16


def test_positions_may_be_spelled_as_they_were():
    assert ModelConfig(positions="learnt").positions == "learned"
