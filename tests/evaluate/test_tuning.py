"""A selector that knows which sentences gain from depth, in a scale of its own."""

import numpy as np
import pytest
import torch
from conftest import toy_pairs
from constructed_tables import make_table

import anydepth
from anydepth.evaluate.tradeoff import Tradeoff, seconds_at, tune_selector
from anydepth.selectors.calibration import LengthCost
from anydepth.selectors.learned import LearnedSelector
from anydepth.selectors.network import DepthPredictor, SelectorConfig, SelectorReader

DEPTHS = ("1-1", "1-2", "2-2")
COSTS = (LengthCost(0.2, 0.0), LengthCost(0.5, 0.0), LengthCost(1.0, 0.0))


@pytest.fixture(scope="module")
def translator(toy_run):
    return anydepth.load(toy_run, engine="torch")


def foreseeing_length(translator) -> LearnedSelector:
    """Says that long sentences lose at shallow depths, and that short ones do not; the scale is far off."""
    config = SelectorConfig(kind="likelihood", layers=0, ffn=8)
    network = DepthPredictor(config, translator.model, len(DEPTHS))
    width = 2 * translator.model.config.width
    with torch.no_grad():
        network.hidden.weight.zero_()
        network.hidden.bias.fill_(0.0)
        network.hidden.weight[0, width] = 1.0  # the log of the length
        network.read_out.weight.zero_()
        network.read_out.weight[:2, 0] = torch.tensor([-0.02, -0.01])
    read = SelectorReader(translator.model, translator.tokenizer, encoder=False)
    return LearnedSelector(network, read, DEPTHS, COSTS, mean_length=8.0)


def table(count: int = 300):
    """Shallow depths spoil the words from the fifth on, half of them or all."""
    sources, references = zip(*toy_pairs(count, seed=6), strict=True)

    def spoilt(line: str, every: int) -> str:
        words = line.split()
        return " ".join(word if i < 4 or i % every else "sings" for i, word in enumerate(words))

    columns = {
        "1-1": [spoilt(line, 1) for line in references],
        "1-2": [spoilt(line, 2) for line in references],
        "2-2": list(references),
    }
    return sources, make_table(columns, list(references))


def test_tuning_brings_it_above_the_mixtures(translator):
    sources, everything = table()
    ids = [[*row, 3] for row in translator.tokenizer.encode_many(sources)]
    lengths = [len(row) for row in ids]
    tradeoff = Tradeoff(everything, seconds_at(COSTS, lengths))
    raw = foreseeing_length(translator)
    found = tune_selector(raw, ids, tradeoff)
    scores = found.scores(ids)
    np.testing.assert_allclose(np.average(scores, axis=0, weights=lengths), tradeoff.bleu_k, rtol=1e-3)
    assert np.argsort(scores[:, 0] - scores[:, 2])[0] in np.flatnonzero(np.array(lengths) == max(lengths))
    some = [tradeoff.outcome(found.pick(scores, lengths, threshold)) for threshold in np.geomspace(1, 500, 30)]
    mixed = [one for one in some if not one.at_one_depth]
    assert mixed
    assert np.mean([one.difference for one in mixed]) > 0.5


def test_the_selector_it_was_made_from_stays_as_it_is(translator):
    sources, everything = table(60)
    ids = [[*row, 3] for row in translator.tokenizer.encode_many(sources)]
    raw = foreseeing_length(translator)
    before = raw.scores(ids)
    tune_selector(raw, ids, Tradeoff(everything, seconds_at(COSTS, [len(row) for row in ids])))
    np.testing.assert_array_equal(raw.scores(ids), before)
