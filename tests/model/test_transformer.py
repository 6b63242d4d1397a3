import pytest
import torch
from cached import assert_cached_equals_uncached

from anydepth.config import ModelConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.errors import UserError
from anydepth.model import DecoderCache, Transformer
from anydepth.model.attention import dot_product_attention
from anydepth.tensors import sinusoids

CONFIG = ModelConfig(width=32, heads=4, ffn=48, encoder_layers=3, decoder_layers=3, dropout=0.1, max_length=32)
MENU = [entry.subnetwork for entry in DepthMenu.every_prefix(3, 3)]
ODD = [SubNetwork((0, 2), (1,)), SubNetwork((0, 1, 2), (0, 2), (1.0, 0.5, 0.2), (0.3, 1.0))]


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(CONFIG, 50).eval()


@pytest.fixture
def batch() -> Batch:
    return Batch.from_rows([[5, 6, 7, 8], [9, 10], [11, 12, 13]], [[20, 21, 22], [23, 24, 25, 26], [27]])


@pytest.mark.parametrize("sub", MENU + ODD, ids=str)
def test_cached_logits_equal_uncached(model, batch, sub):
    assert_cached_equals_uncached(model, batch, sub)


@pytest.mark.parametrize("at_once", [1, 3, 7])
@torch.no_grad()
def test_the_cache_grows_and_takes_several_positions_at_once(at_once):
    torch.manual_seed(2)
    model = Transformer(CONFIG.model_copy(update={"max_length": 100}), 50).eval()
    target = torch.randint(4, 50, (2, 80), generator=torch.Generator().manual_seed(1))
    source = torch.tensor([[5, 6, 3], [7, 8, 3]])
    whole = model(source, target, model.full)
    memory = model.memory(model.encode(source, model.full)[-1])
    cache = DecoderCache(3, limit=80)
    capacities = set()
    for start in range(0, 80, at_once):
        states = model.decode(target[:, start : start + at_once], memory, model.full, None, cache)
        step = model.output(model.features(states[-1]))
        torch.testing.assert_close(step, whole[:, start : start + at_once], atol=1e-5, rtol=1e-5)
        capacities.add(cache.buffer_l2rhce.shape[4])
    assert len(capacities) > 1


@pytest.mark.parametrize("sub", MENU + ODD, ids=str)
@torch.no_grad()
def test_a_sentence_alone_equals_the_same_in_a_batch(model, batch, sub):
    together = model(batch.source, batch.target_in, sub, batch.source_padding)
    alone = model(torch.tensor([[9, 10, 3]]), batch.target_in[1:2], sub)
    torch.testing.assert_close(together[1], alone[0], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_weight_one_is_the_plain_model_and_weight_zero_leaves_the_layer_out(model, batch):
    def logits(sub):
        return model(batch.source, batch.target_in, sub, batch.source_padding)

    ones = SubNetwork((0, 1, 2), (0, 1, 2), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    torch.testing.assert_close(logits(ones), logits(model.full), atol=0, rtol=0)
    zeros = SubNetwork((0, 1, 2), (0, 1, 2), (1.0, 0.0, 1.0), (0.0, 1.0, 1.0))
    torch.testing.assert_close(logits(zeros), logits(SubNetwork((0, 2), (1, 2))), atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_a_subnetwork_equals_the_cut_out_model(model, batch):
    sub = SubNetwork((0, 2), (1,))
    small = Transformer(CONFIG.model_copy(update={"encoder_layers": 2, "decoder_layers": 1}), 50).eval()
    renamed = {}
    for name, value in model.state_dict().items():
        side, *rest = name.split(".")
        if side in ("encoder", "decoder") and rest[0] == "layers":
            kept = getattr(sub, side)
            if int(rest[1]) not in kept:
                continue
            name = ".".join([side, "layers", str(kept.index(int(rest[1]))), *rest[2:]])
        renamed[name] = value
    small.load_state_dict(renamed)
    torch.testing.assert_close(
        small(batch.source, batch.target_in, small.full, batch.source_padding),
        model(batch.source, batch.target_in, sub, batch.source_padding),
        atol=1e-6,
        rtol=1e-6,
    )


@torch.no_grad()
def test_padding_does_not_reach_the_output_and_the_future_is_hidden(model, batch):
    other = batch.source.clone()
    other[batch.source_padding] = 42
    first = model(batch.source, batch.target_in, model.full, batch.source_padding)
    torch.testing.assert_close(model(other, batch.target_in, model.full, batch.source_padding), first, atol=0, rtol=0)
    changed = batch.target_in.clone()
    changed[:, -1] = 44
    torch.testing.assert_close(
        model(batch.source, changed, model.full, batch.source_padding)[:, :-1], first[:, :-1], atol=1e-6, rtol=1e-6
    )


@pytest.mark.parametrize(("shared", "matrices"), [("all", 1), ("target", 2), ("none", 3)])
def test_parameters_are_counted_once(shared, matrices):
    model = Transformer(CONFIG.model_copy(update={"share_embeddings": shared}), 50)
    d, f = 32, 48
    attention = 4 * d * d + 4 * d
    ffn = 2 * d * f + f + d
    encoder_layer, decoder_layer = attention + ffn + 4 * d, 2 * attention + ffn + 6 * d
    for sub in (SubNetwork.prefix(1, 1), SubNetwork.prefix(3, 2)):
        expected = len(sub.encoder) * encoder_layer + len(sub.decoder) * decoder_layer + 4 * d + matrices * 50 * d
        assert sum(p.numel() for p in model.used_parameters(sub)) == expected


def test_positions_are_vaswanis():
    table = torch.tensor(sinusoids(4, 8))
    assert table[0].tolist() == [0, 1] * 4
    torch.testing.assert_close(table[3, 2], torch.tensor(3 / 10_000 ** (2 / 8)).sin())
    torch.testing.assert_close(table[3, 5], torch.tensor(3 / 10_000 ** (4 / 8)).cos())


def test_a_sentence_beyond_the_positions_is_refused(model):
    with pytest.raises(UserError, match="more than the model takes"):
        model.encode(torch.full((1, 40), 5), model.full)


@torch.no_grad()
def test_each_sentence_runs_as_many_encoder_layers_as_it_asks_for(model, batch):
    every = torch.stack(model.encode(batch.source, model.full, batch.source_padding))
    for depths in ([1, 2, 3], [3, 1, 3], [2, 2, 1], [1, 1, 1]):
        depth_b = torch.tensor(depths)
        found = model.encode_to(batch.source, depth_b, batch.source_padding)
        torch.testing.assert_close(found, every[depth_b - 1, torch.arange(len(depth_b))])


def test_layers_that_no_sentence_needs_have_a_gradient_all_the_same(model, batch):
    """Of zero: processes whose sentences need other layers wait for it."""
    model.zero_grad()
    model.encode_to(batch.source, torch.tensor([1, 2, 1]), batch.source_padding).sum().backward()
    first, _, last = (layer.ffn_up.weight.grad for layer in model.encoder.layers)
    assert first.abs().max() > 0
    assert last.abs().max() == 0


@torch.no_grad()
def test_several_choices_of_layers_share_what_they_begin_with(model, batch):
    choices = [(0,), (0, 2), (0, 1, 2), (1, 2), (0, 1)]
    memory = model.memory(model.encode(batch.source, model.full, batch.source_padding)[-1])
    ran = []
    for stack in (model.encoder, model.decoder):
        for layer in stack.layers:
            layer.register_forward_hook(lambda *_: ran.append(1))
    encoded = model.encode_each(batch.source, choices, batch.source_padding)
    decoded = model.decode_each(batch.target_in, memory, choices, batch.source_padding)
    assert len(ran) == 2 * (1 + 1 + 2 + 2)  # (0,); then 2; then 1, 2; (1, 2); and (0, 1) was on the way
    for layers, states, outputs in zip(choices, encoded, decoded, strict=True):
        sub = SubNetwork(layers, layers)
        alone = model.encode(batch.source, sub, batch.source_padding)
        decoded_alone = model.decode(batch.target_in, memory, sub, batch.source_padding)
        for one, other in zip([*states, *outputs], [*alone, *decoded_alone], strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("kind", ["padded", "causal"])
def test_attention_in_bfloat16_equals_the_fused_one(kind):
    """With gradients on a CPU it is computed by plain products, which are faster there."""
    torch.manual_seed(3)
    inputs = [torch.randn(3, 2, 7, 8) for _ in range(3)]
    attend = torch.ones(3, 1, 1, 7, dtype=torch.bool)
    attend[1, :, :, 4:] = False
    options = {"attend": attend} if kind == "padded" else {"attend": None, "causal": True}
    expected = [one.clone().requires_grad_() for one in inputs]
    found = [one.bfloat16().requires_grad_() for one in inputs]
    mixed = {name: dot_product_attention(*given, **options) for name, given in (("full", expected), ("half", found))}
    assert mixed["half"].dtype == torch.bfloat16
    torch.testing.assert_close(mixed["half"].float(), mixed["full"], atol=0.02, rtol=0.02)
    for one in mixed.values():
        one.sum().backward()
    for half, full in zip(found, expected, strict=True):
        torch.testing.assert_close(half.grad.float(), full.grad, atol=0.03, rtol=0.03)
