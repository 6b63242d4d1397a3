"""Our decoding against CTranslate2 float32: same weights, same output, one thread. Ratio above 1: we are faster.

python benchmarks/decoding.py [--repeats 5]
"""

import argparse
import tempfile

import ctranslate2
import numpy as np
import torch
from common import interleaved, print_versions, random_model
from ctranslate2.specs import TransformerSpec

from anydepth.infer.decoding import SearchOptions
from anydepth.infer.layout import arrange_for_decoding
from anydepth.infer.search import search
from anydepth.model import Transformer
from anydepth.text import Tokenizer

LENGTH = 25
SIZES = {"width 512, 6-6, vocabulary 32k": (512, 6, 32_000), "width 256, 6-6, vocabulary 8k": (256, 6, 8_000)}
BARS = {(256, 1): 0.65}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="")
    repeats, only = (lambda a: (a.repeats, a.only))(parser.parse_args())
    torch.set_num_threads(1)
    print_versions("ctranslate2")
    for size, (width, layers, vocabulary) in SIZES.items():
        if only not in size:
            continue
        model = random_model(width, layers, vocabulary).eval()
        with torch.no_grad():
            model.target_embedding.weight[: Tokenizer.EOS] = 0  # never the best, so neither side need rule them out
        peer = to_ctranslate2(model)
        arrange_for_decoding(model)
        rng = np.random.default_rng(1)
        for batch in (1, 32):
            sources = [[*rng.integers(4, vocabulary, LENGTH).tolist(), Tokenizer.EOS] for _ in range(batch)]
            for beam in (1, 4):
                ratio, same = compare(model, peer, sources, beam, repeats * (5 if batch == 1 else 1))
                bar = BARS.get((width, batch), 0.8)
                print(f"{size}, batch {batch:2}, beam {beam}: {ratio:.2f}x (bar {bar}x), same output {same}/{batch}")


def compare(
    model: Transformer, peer: ctranslate2.Translator, sources: list[list[int]], beam: int, repeats: int
) -> tuple[float, int]:
    """How many times faster we are, and for how many sources the best outputs agree."""
    sub, limits = model.full, [LENGTH] * len(sources)
    options = SearchOptions(beam=beam, length_penalty=0.0, min_length=LENGTH, scores=False)
    texts = [[str(token) for token in source] for source in sources]
    peer_options = {
        "beam_size": beam,
        "max_batch_size": len(sources),
        "min_decoding_length": LENGTH,
        "max_decoding_length": LENGTH,
        "length_penalty": 0.0,
    }

    def ours() -> list[list[int]]:
        return [list(found[0].tokens) for found in search(model, sub, sources, limits, options)]

    def theirs() -> list[list[int]]:
        return [[int(t) for t in found.hypotheses[0]] for found in peer.translate_batch(texts, **peer_options)]

    same = sum(a == b for a, b in zip(ours(), theirs(), strict=True))
    seconds = interleaved({"ours": ours, "ctranslate2": theirs}, repeats)
    return seconds["ctranslate2"] / seconds["ours"], same


def to_ctranslate2(model: Transformer) -> ctranslate2.Translator:
    """The full model in CTranslate2's format, loaded with one thread. Its vocabulary is our token numbers."""
    config = model.config
    spec = TransformerSpec.from_config((config.encoder_layers, config.decoder_layers), config.heads, pre_norm=True)
    for side, stack, table in (
        (spec.encoder, model.encoder, model.source_embedding),
        (spec.decoder, model.decoder, model.target_embedding),
    ):
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight = _array(table.weight)
        side.scale_embeddings = True
        side.position_encodings.encodings = _array(model.positions_pd)
        _norm(side.layer_norm, stack.norm)
        for target, layer in zip(side.layer, stack.layers, strict=True):
            _norm(target.self_attention.layer_norm, layer.attention_norm)
            _linears(target.self_attention.linear, layer.attention_qkv, layer.attention_out)
            _norm(target.ffn.layer_norm, layer.ffn_norm)
            _linears([target.ffn.linear_0, target.ffn.linear_1], layer.ffn_up, layer.ffn_down)
            if stack is model.decoder:
                _norm(target.attention.layer_norm, layer.cross_norm)
                _linears(target.attention.linear, layer.cross_query, layer.cross_key_value, layer.cross_out)
    spec.decoder.projection.weight = _array(model.output.weight)
    names = ["<pad>", "<unk>", "<s>", "</s>", *(str(i) for i in range(4, model.vocabulary))]
    names[Tokenizer.EOS] = str(Tokenizer.EOS)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.eos_token = str(Tokenizer.EOS)
    spec.validate()
    spec.optimize()
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        return ctranslate2.Translator(folder, compute_type="float32", inter_threads=1, intra_threads=1)


def _array(tensor: torch.Tensor) -> np.ndarray:  # type: ignore[type-arg]
    return tensor.detach().contiguous().numpy().copy()


def _norm(target: object, norm: torch.nn.LayerNorm) -> None:
    target.gamma, target.beta = _array(norm.weight), _array(norm.bias)  # type: ignore[attr-defined]


def _linears(targets: list[object], *linears: torch.nn.Linear) -> None:
    for target, linear in zip(targets, linears, strict=True):
        target.weight, target.bias = _array(linear.weight), _array(linear.bias)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
