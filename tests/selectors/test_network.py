"""What the selector's network reads, and that it reads each sentence alone."""

import copy
import math

import numpy as np
import pytest
import torch
from conftest import toy_pairs

import anydepth
from anydepth.depth import SubNetwork
from anydepth.errors import UserError
from anydepth.selectors.data import SelectorData, standardise
from anydepth.selectors.learned import join_level, split_level
from anydepth.selectors.network import DepthPredictor, SelectorConfig, SelectorInputs, SelectorReader, piece_rarity

CONFIGS = [
    SelectorConfig(reads=reads, layers=layers, features=features, ffn=16)
    for reads in ("embeddings", "encoder")
    for layers in (0, 2)
    for features in (False, True)
]


@pytest.fixture(scope="module")
def translator(toy_run):
    return anydepth.load(toy_run, engine="torch")


@pytest.fixture(scope="module")
def sources(translator):
    return [[*ids, 3] for ids in translator.tokenizer.encode_many([text for text, _ in toy_pairs(12, seed=8)])]


def network_for(translator, config: SelectorConfig) -> tuple[DepthPredictor, SelectorReader]:
    torch.manual_seed(1)
    network = DepthPredictor(config, translator.model, 4).eval()
    torch.nn.init.normal_(network.read_out.weight)
    return network, SelectorReader(translator.model, translator.tokenizer, config.reads == "encoder")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.reads}-{c.layers}-{c.features}")
@torch.no_grad()
def test_a_sentence_is_read_alike_alone_and_among_longer_ones(translator, sources, config):
    network, read = network_for(translator, config)
    together = network(read(sources))
    assert together.shape == (12, 4)
    assert together.std(0).min() > 1e-3  # or it would not read at all
    for row, source in enumerate(sources):
        torch.testing.assert_close(network(read([source]))[0], together[row], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_states_are_those_of_the_models_first_layer(translator, sources):
    read = SelectorReader(translator.model, translator.tokenizer, encoder=True)
    for chosen in (sources[:1], sources):
        inputs = read(chosen)
        first = translator.model.encode(inputs.source_bs, SubNetwork.prefix(1, 1), inputs.padding_bs)[0]
        expected = translator.model.memory(first)
        real = torch.ones_like(inputs.source_bs, dtype=torch.bool) if inputs.padding_bs is None else ~inputs.padding_bs
        torch.testing.assert_close(inputs.states_bsd[real], expected[real])


@torch.no_grad()
def test_in_use_it_gives_what_it_gives_in_training_without_dropout(translator, sources):
    network, read = network_for(translator, SelectorConfig(layers=2, dropout=0.0, ffn=16))
    for one in (network, copy.deepcopy(network)):
        torch.nn.init.normal_(one.stack.layers[1].ffn_up.bias)
        in_use = one.eval()(read(sources))
        torch.testing.assert_close(one.train()(read(sources)), in_use, atol=1e-5, rtol=1e-5)


def test_embeddings_begin_as_a_copy_of_the_models(translator):
    network, _ = network_for(translator, SelectorConfig(reads="embeddings", layers=1, ffn=16))
    before = translator.model.source_embedding.weight.detach().clone()
    torch.testing.assert_close(network.embedding.weight, before, atol=0, rtol=0)
    network.embedding.weight.data.zero_()
    torch.testing.assert_close(translator.model.source_embedding.weight, before, atol=0, rtol=0)


def test_one_that_reads_the_encoder_has_no_table_of_its_own(translator):
    network, _ = network_for(translator, SelectorConfig(reads="encoder", layers=1, ffn=16))
    assert max(p.numel() for p in network.parameters()) < translator.model.source_embedding.weight.numel()


@torch.no_grad()
def test_the_extra_token_is_what_is_read(translator, sources):
    network, read = network_for(translator, SelectorConfig(reads="encoder", layers=1, features=False, ffn=16))
    before = network(read(sources))
    network.token_d.neg_()
    assert (network(read(sources)) - before).abs().min() > 1e-4


def test_rarity_is_the_tokenizers_and_bytes_are_the_rarest(translator):
    tokenizer = translator.tokenizer
    rarity = piece_rarity(tokenizer)
    assert len(rarity) == tokenizer.vocabulary_size
    assert rarity[tokenizer.EOS] == rarity[tokenizer.PAD] == 0.0
    spelt = tokenizer.encode("\u4e2d")[-1]
    assert tokenizer.pieces([spelt]) == ["<0xAD>"]
    (stop,) = (i for i in range(tokenizer.vocabulary_size) if tokenizer.pieces([i]) == ["."])
    assert rarity[spelt] == max(rarity) > rarity[stop] > 0


def test_the_figures_of_a_sentence_by_hand(translator):
    read = SelectorReader(translator.model, translator.tokenizer, encoder=False)
    rarity = piece_rarity(translator.tokenizer)
    source = [300, 301, 302, 3]
    expected = [math.log(4), (rarity[300] + rarity[301] + rarity[302]) / 3, max(rarity[300:303])]
    assert read.features(source) == pytest.approx(expected)
    torch.testing.assert_close(read([source, [300, 3]]).features_bf[0], torch.tensor(expected))


def test_a_new_network_gives_the_mean_of_its_data(translator, sources):
    chrf_nk = np.random.default_rng(1).uniform(0, 100, (12, 4)).astype(np.float32)
    data = SelectorData(sources, chrf_nk, deepest=3)
    read = SelectorReader(translator.model, translator.tokenizer, encoder=True)
    network = DepthPredictor(SelectorConfig(), translator.model, 4).eval()
    standardise(network, data, torch.tensor([read.features(source) for source in sources]))
    with torch.no_grad():
        given = join_level(network(read(sources)).numpy(), 3)
    weights = data.lengths_n / data.lengths_n.sum()
    np.testing.assert_allclose(given, np.tile(weights @ chrf_nk, (12, 1)), rtol=1e-4)
    standard = torch.addcmul(network.figures_shift_f, read(sources).features_bf, network.figures_scale_f)
    torch.testing.assert_close(standard.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(standard.std(0, correction=0), torch.ones(3), atol=1e-3, rtol=0)


def test_level_and_differences_are_the_same_as_chrf():
    chrf = torch.tensor([[10.0, 30.0, 20.0], [5.0, 5.0, 5.0]])
    split = split_level(chrf, deepest=1)
    assert split.tolist() == [[-20.0, 30.0, -10.0], [0.0, 5.0, 0.0]]
    assert join_level(split.numpy(), 1).tolist() == chrf.tolist()


def test_padding_takes_no_part_in_pooling():
    from anydepth.selectors.network import _pooled

    states = torch.tensor([[[1.0], [3.0], [99.0]], [[-5.0], [-6.0], [-7.0]]])
    mean, largest = _pooled(states, torch.tensor([[False, False, True], [False, False, False]]))
    assert mean.flatten().tolist() == [2.0, -6.0]
    assert largest.flatten().tolist() == [3.0, -5.0]


def test_heads_that_do_not_divide_the_width_are_refused(translator):
    with pytest.raises(UserError, match="5 heads do not divide the model's width, 32"):
        DepthPredictor(SelectorConfig(layers=1, heads=5, ffn=16), translator.model, 4)


def test_inputs_without_states_need_embeddings(translator):
    network, _ = network_for(translator, SelectorConfig(reads="encoder"))
    with pytest.raises(AttributeError):
        network(SelectorInputs(torch.tensor([[5, 3]]), None, torch.zeros(1, 3), None))


@pytest.mark.parametrize("features", [True, False])
def test_a_network_of_words_folds_into_a_row_for_each(translator, sources, features):
    from anydepth.selectors.network import WordScores

    network, read = network_for(translator, SelectorConfig(layers=0, ffn=0, features=features))
    with torch.no_grad():
        network.scale_k.copy_(torch.tensor([2.0, 0.5, 1.0, 0.0]))
        network.offset_k.copy_(torch.tensor([1.0, -1.0, 0.5, 7.0]))
        network.figures_shift_f.copy_(torch.tensor([0.3, -0.2, 0.1]))
        expected = network.eval()(read(sources)).numpy()
    folded = WordScores(network)
    found = np.stack([folded(source, read.features(source)) for source in sources])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert network.is_of_words
    reordered = [*sources[0][:-1][::-1], sources[0][-1]]
    np.testing.assert_allclose(folded(reordered, read.features(reordered)), found[0], rtol=1e-5, atol=1e-5)
