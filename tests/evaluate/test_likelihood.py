import numpy as np
import torch
from conftest import toy_pairs

import anydepth
from anydepth.data import Tokenizer
from anydepth.evaluate.perplexity import likelihood_every_depth


def test_it_is_the_sum_of_log_probabilities_at_each_depth_alone(toy_run):
    translator = anydepth.load(toy_run, engine="torch")
    sources, references = zip(*toy_pairs(9, seed=3), strict=True)
    depths = ["2-1", "1-2", "2-2"]
    found_nk = likelihood_every_depth(translator, sources, references, depths)
    for i, (source, reference) in enumerate(zip(sources, references, strict=True)):
        source_ids = [*translator.tokenizer.encode(source), Tokenizer.EOS]
        target = [*translator.tokenizer.encode(reference), Tokenizer.EOS]
        for k, depth in enumerate(depths):
            with torch.no_grad():
                logits = translator.model(
                    torch.tensor([source_ids]),
                    torch.tensor([[Tokenizer.BOS, *target[:-1]]]),
                    translator.menu[depth].subnetwork,
                )
            expected = logits.log_softmax(-1)[0, range(len(target)), target].sum()
            np.testing.assert_allclose(found_nk[i, k], float(expected), rtol=1e-4, atol=1e-4)


def test_a_right_reference_is_likelier_than_a_wrong_one_and_the_bar_moves(toy_run):
    translator, seen = anydepth.load(toy_run, engine="torch"), []
    sources, references = zip(*toy_pairs(70, seed=4), strict=True)
    right = likelihood_every_depth(translator, sources, references, ["2-2"], seen.append)
    wrong = likelihood_every_depth(translator, sources, references[::-1], ["2-2"])
    assert (right > wrong).mean() > 0.9
    assert sum(seen) == 70
