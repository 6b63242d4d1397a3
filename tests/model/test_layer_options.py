"""Layers without norms, ReZero's learnt weights and depth-scaled matrices."""

import pytest
import torch
import torch.nn.functional as F
from cached import assert_cached_equals_uncached
from torch import nn

from anydepth.config import ModelConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.model import Transformer
from anydepth.model.layers import Layer
from anydepth.model.stack import Stack

SIZES = {"width": 16, "heads": 2, "ffn": 24, "encoder_layers": 4, "decoder_layers": 3, "dropout": 0.0, "max_length": 32}
REZERO = {"norm": "none", "residual": "rezero"}
OPTIONS = [{"norm": "none"}, REZERO, {"residual": "rezero"}, {"residual": "dlcl"}, {"norm": "none", "residual": "dlcl"}]
SUBS = [entry.subnetwork for entry in DepthMenu.every_prefix(4, 3)] + [
    SubNetwork((1, 3), (0, 2)),
    SubNetwork((0, 1, 3), (0, 1, 2), (1.0, 0.5, 0.2), (0.3, 1.0, 0.0)),
]


@pytest.fixture
def batch() -> Batch:
    return Batch.from_rows([[5, 6, 7, 8], [9, 10], [11, 12, 13]], [[20, 21, 22], [23, 24, 25, 26], [27]])


def made(**options: object) -> Transformer:
    """A model whose scales and dense weights are not what they start as."""
    torch.manual_seed(1)
    model = Transformer(ModelConfig(**SIZES, **options), 50).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "scales" in name or "rows" in name:
                parameter.uniform_(0.2, 0.8)
    return model


def logits(model: Transformer, batch: Batch, sub: SubNetwork) -> torch.Tensor:
    return model(batch.source, batch.target_in, sub, batch.source_padding)


@torch.no_grad()
def test_rezero_starts_as_the_identity(batch):
    model = Transformer(ModelConfig(**SIZES, **REZERO), 50).eval()
    embedded = model._embed(model.source_embedding, batch.source, 0)
    for state in model.encode(batch.source, model.full, batch.source_padding):
        assert torch.equal(state, embedded)
        assert torch.equal(model.memory(state), F.layer_norm(embedded, (16,)))
    decoded = model.decode(batch.target_in, model.memory(embedded), model.full, batch.source_padding)
    assert torch.equal(decoded[-1], model._embed(model.target_embedding, batch.target_in, 0))


def test_at_the_start_only_rezeros_scales_learn_and_then_the_layers_do(batch):
    torch.manual_seed(1)
    model = Transformer(ModelConfig(**SIZES, **REZERO), 50)
    matrix = model.decoder.layers[1].ffn_up.weight
    logits(model, batch, model.full).logsumexp(-1).sum().backward()
    assert model.decoder.scales.grad.ne(0).all()
    assert not matrix.grad.any()
    with torch.no_grad():
        model.decoder.scales -= 0.1 * model.decoder.scales.grad
    logits(model, batch, model.full).logsumexp(-1).sum().backward()
    assert matrix.grad.any()


class Adds(Layer):
    """A layer whose only branch is a constant, for arithmetic by hand."""

    def __init__(self, branch: float) -> None:
        super().__init__(ModelConfig.model_construct(width=8, heads=1, ffn=8, dropout=0.0))
        self.branch = nn.Parameter(torch.tensor([branch]))

    def forward(self, x, weight):
        return self.join(x, self.branch, weight, None)


def values(states: list[torch.Tensor]) -> list[float]:
    return [state.item() for state in states]


def test_scales_multiply_with_weights_and_with_gates():
    """1 + 0.5 * 4 + 2 * 3 = 9; weights 0.5, 0.25: 1 + 0.25 * 4 + 0.5 * 3 = 3.5; layer 2 alone: 1 + 2 * 3 = 7."""
    branches = iter([4.0, 3.0])
    stack = Stack(lambda _: Adds(next(branches)), (0, 1), ModelConfig.model_construct(width=8, residual="rezero"))
    x, both = torch.tensor([1.0]), (0, 1)
    with torch.no_grad():
        stack.scales.copy_(torch.tensor([0.5, 2.0]))
    assert values(stack(x, both)) == [3.0, 9.0]
    assert values(stack(x, both, (0.5, 0.25))) == [2.0, 3.5]
    assert values(stack(x, (1,))) == [7.0]
    gates = torch.tensor([0.5, 0.25], requires_grad=True)
    states = stack(x, both, gates.unbind())
    assert values(states) == [2.0, 3.5]
    states[-1].sum().backward()
    assert gates.grad.tolist() == [0.5 * 4, 2.0 * 3]
    assert stack.scales.grad.tolist() == [0.5 * 4, 0.25 * 3]


def test_a_shared_layer_has_a_scale_at_each_of_its_places():
    """1 + 0.5 * 4 = 3, then + 2 * 4 = 11: one branch, two scales."""
    stack = Stack(lambda _: Adds(4.0), (0, 0), ModelConfig.model_construct(width=8, residual="rezero"))
    with torch.no_grad():
        stack.scales.copy_(torch.tensor([0.5, 2.0]))
    states = stack(torch.tensor([1.0]), (0, 1))
    assert values(states) == [3.0, 11.0]
    states[-1].sum().backward()
    assert float(stack.layers[0].branch.grad) == 2.5


@torch.no_grad()
def test_a_rezero_layer_is_the_plain_layer_with_its_branches_multiplied(batch):
    model = made(**REZERO)
    plain = Transformer(ModelConfig(**SIZES, norm="none"), 50).eval()
    tensors = {name: value.clone() for name, value in model.state_dict().items()}
    for side in ("encoder", "decoder"):
        for place, scale in enumerate(tensors.pop(f"{side}.scales")):
            for name in tensors:
                if name.startswith(f"{side}.layers.{place}.") and ("_out." in name or "_down." in name):
                    tensors[name] *= scale
    plain.load_state_dict(tensors)
    for sub in SUBS:
        torch.testing.assert_close(logits(model, batch, sub), logits(plain, batch, sub), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shared", ["none", "all"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_cached_equals_uncached(options, shared, batch):
    model = made(**options, encoder_shared=shared, decoder_shared=shared)
    for sub in SUBS:
        assert_cached_equals_uncached(model, batch, sub)


@pytest.mark.parametrize("options", [{}, *OPTIONS], ids=str)
@torch.no_grad()
def test_several_choices_give_what_each_gives_alone(options, batch):
    model = made(**options)
    choices = [(0,), (0, 2), (0, 1, 2), (1, 2), (0, 1), (0, 2)]
    encoded = model.encode_each(batch.source, choices, batch.source_padding, with_attention=True)
    memory = model.memory(encoded[2][-1])
    decoded = model.decode_each(batch.target_in, memory, choices, batch.source_padding)
    for layers, states, outputs in zip(choices, encoded, decoded, strict=True):
        sub = SubNetwork(layers, layers)
        alone = model.encode(batch.source, sub, batch.source_padding, with_attention=True)
        decoded_alone = model.decode(batch.target_in, memory, sub, batch.source_padding)
        theirs = [*states, *states.attention, *outputs]
        for one, other in zip(theirs, [*alone, *alone.attention, *decoded_alone], strict=True):
            assert torch.equal(one, other)


@torch.no_grad()
def test_a_layer_without_norms_reads_the_state_as_it_is():
    """The feed-forward branch of a layer of norm none: relu(x U + a) D + b, no norm before it."""
    model = made(norm="none")
    layer, x = model.encoder.layers[0], torch.randn(2, 3, 16)
    layer.attention_out.weight.zero_()  # no attention: its branch is the bias, zero
    expected = x + F.linear(F.relu(F.linear(x, *_affine(layer.ffn_up))), *_affine(layer.ffn_down))
    torch.testing.assert_close(layer(x, 1.0, None), expected)


def _affine(linear: nn.Linear) -> tuple[torch.Tensor, torch.Tensor]:
    return linear.weight, linear.bias


def test_without_norms_there_are_no_parameters_of_them():
    plain, bare = Transformer(ModelConfig(**SIZES), 50), Transformer(ModelConfig(**SIZES, norm="none"), 50)
    gone = {name for name, _ in plain.named_parameters()} - {name for name, _ in bare.named_parameters()}
    assert len(gone) == 2 * (4 * 2 + 3 * 3)
    assert all("_norm." in name for name in gone)
    assert [name for name, _ in bare.named_parameters() if "norm" in name] == [
        f"{side}.norm.{part}" for side in ("encoder", "decoder") for part in ("weight", "bias")
    ]


def counted(sub: SubNetwork, **options: object) -> int:
    return sum(p.numel() for p in Transformer(ModelConfig(**SIZES, **options), 50).used_parameters(sub))


@pytest.mark.parametrize("shared", ["none", "all"])
def test_the_parameters_of_a_depth_count_its_options(shared):
    sub, pattern = SubNetwork((0, 2), (1,)), {"encoder_shared": shared, "decoder_shared": shared}
    plain = counted(sub, **pattern)
    encoder_layers = 1 if shared == "all" else 2
    assert counted(sub, norm="none", **pattern) == plain - 2 * 16 * (2 * encoder_layers + 3)
    assert counted(sub, residual="rezero", **pattern) == plain + 4 + 3
    rows, norms = (1 + 2 + 4) + (1 + 3), (3 + 2) * 2 * 16  # of the embeddings and of layers 1, 3; and of layer 2
    assert counted(sub, residual="dlcl", **pattern) == plain + rows + norms
    whole = Transformer(ModelConfig(**SIZES, residual="dlcl", **pattern), 50)
    assert counted(whole.full, residual="dlcl", **pattern) == sum(p.numel() for p in whole.parameters())


def test_depth_scaled_matrices_shrink_with_the_root_of_their_layer():
    def stds(layer: nn.Module) -> list[float]:
        return [m.weight.std().item() for m in layer.modules() if isinstance(m, nn.Linear)]

    torch.manual_seed(1)
    wide = {**SIZES, "width": 128, "ffn": 256, "decoder_layers": 4}
    model = Transformer(ModelConfig(**wide, init="depth-scaled"), 50)
    for stack in (model.encoder, model.decoder):
        assert stds(stack.layers[3]) == pytest.approx([std / 2 for std in stds(stack.layers[0])], rel=0.02)
    torch.manual_seed(1)
    for name, value in Transformer(ModelConfig(**wide), 50).named_parameters():
        number = int(name.split(".")[2]) + 1 if ".layers." in name else 1
        factor = number**-0.5 if value.ndim == 2 else 1.0
        torch.testing.assert_close(model.get_parameter(name), value * factor)


def test_a_shared_layer_is_scaled_once_by_its_first_place():
    pattern = {"encoder_shared": (1, 2, 1, 2)}
    torch.manual_seed(1)
    plain = Transformer(ModelConfig(**SIZES, **pattern), 50)
    torch.manual_seed(1)
    scaled = Transformer(ModelConfig(**SIZES, **pattern, init="depth-scaled"), 50)
    for place, factor in ((0, 1.0), (1, 2**-0.5), (2, 1.0), (3, 2**-0.5)):
        one, other = (model.encoder.layers[place].ffn_up.weight for model in (scaled, plain))
        torch.testing.assert_close(one, other * factor)
