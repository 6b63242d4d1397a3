import numpy as np
import pytest
import torch

from anydepth.data import Batch, BatchStream, MaskedStream, PairStore, Tokenizer
from anydepth.data.masking import mask_batch
from anydepth.data.shards import StoreWriter
from anydepth.rng import keyed_uniform

MASK_ID, VOCABULARY = 4, 50
PAD, EOS = Tokenizer.PAD, Tokenizer.EOS


def make_test_batch(rows: list[list[int]]) -> Batch:
    return Batch.from_rows(rows, rows)


def masked(batch: Batch, probability: float = 0.15, seed: int = 1) -> Batch:
    return mask_batch(batch, probability, MASK_ID, VOCABULARY, (seed,))


def test_what_is_chosen_is_the_label_and_nothing_else_has_one():
    whole = make_test_batch([[10, 11, 12, 13, 14, 15], [20, 21]])
    damaged = masked(whole, 0.5)
    chosen = damaged.target_out != PAD
    assert 0 < chosen.sum() < 8
    assert torch.equal(damaged.target_out[chosen], whole.source[chosen])
    assert torch.equal(damaged.source[~chosen], whole.source[~chosen])
    assert damaged.target_tokens == damaged.terms == int(chosen.sum())
    assert damaged.source_padding is whole.source_padding
    assert whole.source.tolist() == [[10, 11, 12, 13, 14, 15, EOS], [20, 21, EOS, PAD, PAD, PAD, PAD]]


def test_positions_by_hand():
    """The draws of a sentence decide, by its number: which subwords, what becomes of each, and which others."""
    whole = Batch.from_rows([[10, 11, 12, 13, 14, 15]], [[10, 11, 12, 13, 14, 15]], np.array([34]))
    chances, fates, others = (keyed_uniform(7, 34, np.arange(7), draw) for draw in range(3))
    source, target = whole.source[0].tolist(), [PAD] * 7
    for place in range(6):
        if chances[place] < 0.6:
            target[place] = source[place]
            if fates[place] < 0.8:
                source[place] = MASK_ID
            elif fates[place] < 0.9:
                source[place] = 4 + int(others[place] * 45)
    damaged = masked(whole, 0.6, seed=7)
    assert damaged.source.tolist() == [source]
    assert damaged.target_out.tolist() == [target]
    assert 1 < damaged.target_tokens < 6


def test_a_sentence_is_damaged_alike_whoever_is_beside_it():
    rows = [[10, 11, 12, 13, 14, 15], [20, 21, 22], [30, 31, 32, 33]]
    all_three = mask_batch(Batch.from_rows(rows, rows, np.array([7, 8, 9])), 0.5, MASK_ID, VOCABULARY, (1, 2))
    last = mask_batch(Batch.from_rows(rows[2:], rows[2:], np.array([9])), 0.5, MASK_ID, VOCABULARY, (1, 2))
    assert all_three.source[2, :5].tolist() == last.source[0].tolist()
    assert all_three.target_out[2, :5].tolist() == last.target_out[0].tolist()


def test_shares_of_ten_thousand_chosen_ones():
    word = 30
    whole = make_test_batch([[word] * 100 for _ in range(700)])
    damaged = masked(whole)
    found = damaged.source[damaged.target_out != PAD]
    count = len(found)
    assert 10_000 < count < 11_000  # 15% of 70,000, whose standard deviation is 94
    assert abs((found == MASK_ID).sum() / count - 0.8) < 0.02
    stayed = (found == word).sum() / count
    assert abs(stayed - 0.1 - 0.1 / 45) < 0.015  # drawn instead of itself one in 45 times
    others = found[(found != MASK_ID) & (found != word)]
    assert set(others.tolist()) == set(range(5, VOCABULARY)) - {word}


@pytest.mark.parametrize("mask_id", [4, 20, VOCABULARY - 1])
def test_a_random_sub_word_is_never_a_special_one(mask_id):
    whole = make_test_batch([[30] * 100 for _ in range(100)])
    fate_shares = mask_batch(whole, 0.99, mask_id, VOCABULARY, (1,)).source[:, :-1]
    others = set(fate_shares.flatten().tolist())
    assert others == set(range(4, VOCABULARY))  # of which mask_id is there as the mask
    assert (fate_shares == mask_id).float().mean() < 0.83


@pytest.mark.parametrize("seed", range(3))
def test_at_least_one_of_each_is_chosen_and_never_the_end(seed):
    whole = make_test_batch([[10], [11]])
    damaged = masked(whole, 1e-9, seed)
    assert damaged.target_tokens == 2  # one of each
    assert damaged.target_out[:, 1].tolist() == [PAD, PAD]
    everything = masked(make_test_batch([[10], [11, 12]]), 0.9999999, seed)
    assert everything.target_out.tolist() == [[10, PAD, PAD], [11, 12, PAD]]


def test_a_stream_is_damaged_anew_in_every_epoch_and_the_same_after_resume(tmp_path):
    with StoreWriter(tmp_path, "train", VOCABULARY) as writer:
        for number in range(40):
            writer.add([5 + number] * 9, [5 + number] * 9)
    store = PairStore(tmp_path, "train")

    def stream() -> MaskedStream:
        return MaskedStream(BatchStream(store, 100, 1), 0.15, MASK_ID, VOCABULARY, seed=1)

    used = stream()
    assert used.together == 1
    assert used.batches_in(0) == BatchStream(store, 100, 1).batches_in(0) == 4
    first, later = used.at(0, 2), used.at(1, 2)
    assert not torch.equal(first.target_out == PAD, later.target_out == PAD)
    again = stream().at(0, 2)
    assert torch.equal(again.source, first.source)
    assert torch.equal(again.target_out, first.target_out)
    assert again.place == (0, 2)
