"""A wider and deeper model that computes what the bundled model does: a trained model of the size that speculation
is measured at, for those who have no day to train one.

python benchmarks/growing.py OUT        # 6-3, width 256 becomes 6-6, width 512

Every feature is there twice. A matrix that reads both halves has its weights divided between them, by random numbers,
so that the halves learn different things from then on; new decoder layers add nothing yet. Further training makes use
of both: `anydepth train RECIPE --set init_from=OUT --set 'model={}'`.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from anydepth.artifact import bundled_model
from anydepth.artifact.saving import ModelContent, save
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.infer.translator import Translator
from anydepth.model import Transformer

NEW_LAYERS, NOISE = 3, 0.3


def twice(x: Tensor, dim: int = 0) -> Tensor:
    return torch.cat([x, x], dim)


def divided(weight: Tensor) -> Tensor:
    """For inputs that are there twice: what the two halves give adds up to what one gave."""
    noise = torch.randn_like(weight) * weight.std() * NOISE
    return torch.cat([weight / 2 + noise, weight / 2 - noise], dim=1)


def grow(linear: nn.Linear, parts: int = 1) -> tuple[Tensor, Tensor]:
    """A matrix whose outputs are `parts` lists of features, each of which is there twice."""
    weights = [torch.cat([divided(part), divided(part)]) for part in linear.weight.chunk(parts)]
    return torch.cat(weights), torch.cat([twice(part) for part in linear.bias.chunk(parts)])


def grown(model: Transformer) -> Transformer:
    config = model.config
    larger = config.model_copy(
        update={
            "width": 2 * config.width,
            "heads": 2 * config.heads,
            "ffn": 2 * config.ffn,
            "decoder_layers": config.decoder_layers + NEW_LAYERS,
            "positions": "learned",
        }
    )
    made = Transformer(larger, model.vocabulary).eval()
    root = config.width**0.5
    made.target_embedding.weight.copy_(twice(model.target_embedding.weight * root, 1))
    made.positions.weight.copy_(twice(model.positions_pd[: config.max_length], 1))
    for new, old in ((made.encoder, model.encoder), (made.decoder, model.decoder)):
        for place, layer in enumerate(new.layers):
            _fill(layer, old.layers[min(place, len(old.layers) - 1)], silent=place >= len(old.layers))
        new.norm.weight.copy_(twice(old.norm.weight))
        new.norm.bias.copy_(twice(old.norm.bias))
    made.decoder.norm.weight.div_(2 * root)  # the embeddings, which are also the output, have become larger
    made.decoder.norm.bias.div_(2 * root)
    return made


def _fill(layer: nn.Module, old: nn.Module, silent: bool) -> None:
    for name, part in layer.named_children():
        before = getattr(old, name)
        if isinstance(part, nn.LayerNorm):
            part.weight.copy_(twice(before.weight))
            part.bias.copy_(twice(before.bias))
            continue
        weight, bias = grow(before, {"attention_qkv": 3, "cross_key_value": 2}.get(name, 1))
        ends = silent and name in ("attention_out", "cross_out", "ffn_down")
        part.weight.copy_(weight * (0 if ends else 1))
        part.bias.copy_(bias * (0 if ends else 1))


def main() -> None:
    torch.manual_seed(1)
    bundled = Translator.load(bundled_model(), engine="torch", device="cpu")
    with torch.inference_mode():
        made = grown(bundled.model)
        source, target = torch.randint(4, 8000, (2, 9)), torch.randint(4, 8000, (2, 7))
        sub = SubNetwork.prefix(6, 3)
        off = (made(source, target, sub) - bundled.model(source, target, sub)).abs().max()
        print(f"its logits differ from those of the bundled model by {off:.1e} at most")
    n, m = made.config.encoder_layers, made.config.decoder_layers
    menu = DepthMenu.of([SubNetwork.prefix(i, j) for i in range(1, n + 1) for j in range(1, m + 1)])
    tensors = {name: value.detach() for name, value in made.named_parameters()}
    save(Path(sys.argv[1]), ModelContent(made.config, tensors, bundled.tokenizer, menu, bundled.languages), {})


if __name__ == "__main__":
    main()
