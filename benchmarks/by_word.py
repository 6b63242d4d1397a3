"""A depth for each token against the full depth of the same weights, and full depth against transformers' BERT.

python benchmarks/by_word.py [--repeats 15] [--length 128]

Of an encoder as large as MiniLM: 6 layers, width 384. With all tokens at their own depths, the least work there can be
is sum(depth) / (tokens x layers) of that at full depth; printed is the share of that ideal that is reached.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from common import interleaved, print_versions
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from anydepth.artifact.weights import arrange_for_decoding
from anydepth.depth import SubNetwork
from anydepth.model import Transformer
from anydepth.model.hf import convert_tensors, make_config

LAYERS, WIDTH, HEADS, VOCABULARY, CLASSES = 6, 384, 12, 30522, 2
# Shares of the tokens that go through 1, 2, ... 6 layers.
SPREADS = {
    "evenly spread, mean 3.5": (1, 1, 1, 1, 1, 1),
    "as mutual information has it on MR, mean 2.6": (0.179, 0.322, 0.313, 0.090, 0.063, 0.033),
    "shallow, mean 2.1": (0.5, 0.25, 0.1, 0.05, 0.05, 0.05),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--length", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    print_versions("transformers")
    theirs = BertForSequenceClassification(_bert_config()).eval()
    ours = _same_weights(theirs)
    for rows, bar in ((16, 0.80), (1, 0.65)):
        for name, shares in SPREADS.items():
            packed(ours, rows, arguments.length, name, shares, bar, arguments.repeats)
    for rows in (1, 16):
        for length in (32, 128):
            against_transformers(ours, theirs, rows, length, arguments.repeats)


def _bert_config() -> BertConfig:
    return BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        num_labels=CLASSES,
    )


def _same_weights(theirs: BertForSequenceClassification) -> Transformer:
    tensors = convert_tensors(theirs.bert.state_dict(), theirs.config)
    model = Transformer(make_config("bert", theirs.config, tensors), VOCABULARY, CLASSES).eval()
    model.load_state_dict(tensors, strict=False)
    arrange_for_decoding(model)
    return model


def packed(
    model: Transformer, rows: int, length: int, name: str, shares: tuple[float, ...], bar: float, repeats: int
) -> None:
    source_bs = torch.randint(4, VOCABULARY, (rows, length))
    drawn = torch.multinomial(torch.tensor(shares, dtype=torch.float), rows * length, replacement=True) + 1
    depths_bs = drawn.view(rows, length)
    ways: dict[str, Callable[[], object]] = {
        "full": partial(classify, model, source_bs, model.full, None),
        "packed": partial(classify, model, source_bs, SubNetwork.words(LAYERS, 0), depths_bs),
    }
    seconds = interleaved(ways, repeats if rows > 1 else 4 * repeats)
    ratio, ideal = seconds["packed"] / seconds["full"], float(depths_bs.float().mean()) / LAYERS
    print(
        f"batch {rows}, {length} tokens, depths {name}: {ratio:.3f}x the time of full depth, ideal {ideal:.3f}x, "
        f"{ideal / ratio:.2f} of the ideal (bar {bar})",
        flush=True,
    )


def against_transformers(
    ours: Transformer, theirs: BertForSequenceClassification, rows: int, length: int, repeats: int
) -> None:
    source_bs = torch.randint(4, VOCABULARY, (rows, length))
    ways: dict[str, Callable[[], object]] = {
        "ours": partial(classify, ours, source_bs, ours.full, None),
        "theirs": partial(their_classify, theirs, source_bs),
    }
    seconds = interleaved(ways, repeats if rows > 1 else 4 * repeats)
    print(
        f"batch {rows}, {length} tokens, full depth: {seconds['theirs'] / seconds['ours']:.2f}x the speed of "
        "transformers' BertForSequenceClassification (bar 1.0x)",
        flush=True,
    )


@torch.inference_mode()
def classify(model: Transformer, source_bs: Tensor, sub: SubNetwork, depths_bs: Tensor | None) -> Tensor:
    logits_bc: Tensor = model.output(model.read_out(model.encode(source_bs, sub, depths=depths_bs)[-1], None))
    return logits_bc


@torch.inference_mode()
def their_classify(model: BertForSequenceClassification, source_bs: Tensor) -> Tensor:
    logits_bc: Tensor = model(input_ids=source_bs).logits
    return logits_bc


if __name__ == "__main__":
    main()
