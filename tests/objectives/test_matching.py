"""Each part of the layers' loss and its gradient, on cases small enough to do by hand."""

import math

import pytest
import torch

from anydepth.config import TeacherConfig
from anydepth.objectives.distillation import LayerMatch, match_attention

LAYERS = {1: torch.tensor([[1.0, 2.0]]), 2: torch.tensor([[3.0, -1.0]]), 3: torch.tensor([[0.0, 4.0]])}
LITERAL = {"project": "teacher", "distance": "square"}  # as the paper has it


def match(layers, teacher=2, student=2, **options):
    return LayerMatch(TeacherConfig(model="elsewhere", **options), layers, len(LAYERS), (teacher, student))


def state(*values):
    """One copy of a batch, one position."""
    return torch.tensor([[values]], requires_grad=True)


def test_one_layer_of_equal_width_is_matched_as_it_is():
    own = state(1.0, 2.0)
    one = match((3,), method="pkd", distance="square")
    assert list(one.parameters()) == []
    loss = one(own, LAYERS)
    assert loss.tolist() == [((1 - 0) ** 2 + (2 - 4) ** 2) / 2]
    loss.sum().backward()
    assert own.grad.tolist() == [[[2 * (1 - 0) / 2, 2 * (2 - 4) / 2]]]


def test_concatenation_is_projected_onto_the_student():
    own = state(1.0)
    one = match((1, 3), student=1, **LITERAL)
    with torch.no_grad():
        one.project.weight.copy_(torch.tensor([[0.5, 1.0, 2.0, -0.25]]))  # on (1, 2, 0, 4): 0.5 + 2 + 0 - 1
        one.project.bias.fill_(0.5)  # f = 2
    loss = one(own, LAYERS)
    assert loss.tolist() == [(1 - 2) ** 2]
    loss.sum().backward()
    assert own.grad.tolist() == [[[2 * (1 - 2)]]]
    assert one.project.bias.grad.tolist() == [-2 * (1 - 2)]
    assert one.project.weight.grad.tolist() == [[2.0 * x for x in (1, 2, 0, 4)]]


def test_the_student_can_be_projected_instead_and_directions_are_compared():
    own = state(2.0)
    one = match((1, 2), student=1)
    assert one.project.weight.shape == (4, 1)
    with torch.no_grad():
        one.project.weight.copy_(torch.tensor([[1.0], [2.0], [3.0], [1.0]]))
        one.project.bias.zero_()
    loss = one(own, LAYERS)
    cosine = (1 + 4 + 9 - 1) / 15  # of (1, 2, 3, 1), whatever its length, and (1, 2, 3, -1)
    assert loss.tolist() == pytest.approx([2 - 2 * cosine])
    loss.sum().backward()
    assert own.grad.flatten().tolist() == pytest.approx([0], abs=1e-6)  # only the length would change
    # d/dw of -2 w.t / (|w| |t|) at a state of 2: -2 (t - cosine w) / 15, as both have length sqrt(15)
    w, t = (1, 2, 3, 1), (1, 2, 3, -1)
    expected = [-2 * (t_i - cosine * w_i) / 15 for w_i, t_i in zip(w, t, strict=True)]
    assert one.project.weight.grad.flatten().tolist() == pytest.approx(expected, abs=1e-6)


def test_a_mean_needs_no_projection_and_a_learnt_one_has_a_weight_for_each_layer_of_the_teacher():
    own = state(2.0, 1.0)
    mean_of_two = match((1, 2), fusion="mean", distance="square")
    assert list(mean_of_two.parameters()) == []
    assert mean_of_two(own, LAYERS).tolist() == [(0**2 + 0.5**2) / 2]  # against (2, 0.5)
    learnt = match((1, 2), fusion="attention", distance="square")
    assert learnt.layers == (1, 2, 3)
    loss = learnt(own, LAYERS)
    mean = (4 / 3, 5 / 3)
    apart = (2 - mean[0], 1 - mean[1])
    assert loss.tolist() == pytest.approx([(apart[0] ** 2 + apart[1] ** 2) / 2])
    loss.sum().backward()
    # d f / d logit_l = (x_l - f) / 3, and d loss / d f = -(s - f)
    expected = [
        -sum(a * (x - f) / 3 for a, x, f in zip(apart, layer[0], mean, strict=True)) for layer in LAYERS.values()
    ]
    assert learnt.logits.grad.tolist() == pytest.approx([float(value) for value in expected], abs=1e-6)


def test_copies_of_a_batch_are_measured_one_by_one():
    own = torch.tensor([[[1.0, 2.0], [0.0, 0.0]], [[0.0, 4.0], [2.0, 2.0]]])  # two copies of two positions
    teacher = {3: torch.tensor([[0.0, 4.0], [2.0, 2.0]])}
    assert match((3,), method="pkd", distance="square")(own, teacher).tolist() == [(1 + 4 + 4 + 4) / 4, 0]


def test_a_projection_wherever_widths_differ_or_layers_are_joined():
    shapes = {
        (fusion, project, layers): match(layers, 2, 4, fusion=fusion, project=project).project.weight.shape
        for fusion in ("concat", "mean", "attention")
        for project in ("teacher", "student")
        for layers in ((2,), (1, 2))
    }
    assert shapes["concat", "teacher", (1, 2)] == (4, 4)  # joined, they happen to have the student's width
    assert shapes["concat", "teacher", (2,)] == (4, 2)
    assert shapes["concat", "student", (1, 2)] == (4, 4)
    assert {shapes[fusion, "student", (1, 2)] for fusion in ("mean", "attention")} == {(2, 4)}


def test_attention_is_compared_by_kl_over_real_positions():
    student = torch.tensor([[[[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.5, 0.5, 0.0]]]], requires_grad=True)
    first = torch.tensor([[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.1, 0.9, 0.0]]]])
    second = torch.tensor([[[[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.1, 0.9, 0.0]]]])
    padding = torch.tensor([[False, False, True]])
    loss = match_attention(student, [first, second], padding)  # the teacher's mean: (0.75, 0.25), (0.5, 0.5)
    one = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    other = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert loss.item() == pytest.approx((one + other) / 2)
    loss.backward()
    expected = [[-0.75 / 0.5 / 2, -0.25 / 0.5 / 2, 0], [-0.5 / 0.25 / 2, -0.5 / 0.75 / 2, 0], [0, 0, 0]]
    assert student.grad[0, 0].tolist() == [pytest.approx(row) for row in expected]


def test_with_other_numbers_of_heads_their_means_are_compared():
    student = torch.tensor([[[[0.4, 0.6]], [[0.6, 0.4]]]])  # mean (0.5, 0.5)
    teacher = torch.tensor([[[[0.5, 0.5]]]])
    assert float(match_attention(student, [teacher], None)) == pytest.approx(0, abs=1e-7)
    two = torch.tensor([[[[0.5, 0.5]], [[0.5, 0.5]]]])
    assert float(match_attention(student, [two], None)) > 0.01
