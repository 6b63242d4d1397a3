"""A model cut down to some of its layers, and weights of layers taken into their parameters."""

from torch import Tensor

from anydepth.config import ModelConfig
from anydepth.depth import SubNetwork
from anydepth.errors import UserError

Tensors = dict[str, Tensor]
LAST = ("attention_out", "cross_out", "ffn_down")  # the last matrix of each branch: what it is scaled by, the branch is


def cut(config: ModelConfig, tensors: Tensors, sub: SubNetwork) -> tuple[ModelConfig, Tensors]:
    """A model of its own that has no layers but those of `sub`, in the same order. Its weights are not taken over."""
    if config.residual == "dlcl":
        raise UserError("layers with dense connections cannot be cut out: each reads all those before it")
    kept = {name: value for name, value in tensors.items() if ".layers." not in name}
    changes: dict[str, object] = {}
    for side, pattern, layers in (
        ("encoder", config.encoder_pattern, sub.encoder),
        ("decoder", config.decoder_pattern, sub.decoder),
    ):
        numbers: dict[int, int] = {}  # whose weights a layer has, counted anew
        for place, layer in enumerate(layers):
            if pattern[layer] not in numbers:
                numbers[pattern[layer]] = len(numbers) + 1
                own = f"{side}.layers.{pattern.index(pattern[layer])}."  # shared weights stand at their first place
                parts = {name.removeprefix(own): value for name, value in tensors.items() if name.startswith(own)}
                kept |= {f"{side}.layers.{place}.{part}": value for part, value in parts.items()}
        if f"{side}.scales" in kept:
            kept[f"{side}.scales"] = kept[f"{side}.scales"][list(layers)]
        shares = len(numbers) < len(layers)
        changes[f"{side}_layers"] = len(layers)
        changes[f"{side}_shared"] = tuple(numbers[pattern[layer]] for layer in layers) if shares else "none"
    return config.model_copy(update=changes), kept


def fold(config: ModelConfig, tensors: Tensors, sub: SubNetwork) -> Tensors:
    """The tensors with which the plain model does what these do with the weights of `sub`, which has all layers."""
    folded = dict(tensors)
    for side, shared, weights in (
        ("encoder", config.encoder_shared, sub.encoder_weights),
        ("decoder", config.decoder_shared, sub.decoder_weights),
    ):
        if weights and shared != "none":
            raise UserError("where layers share parameters, weights of single layers cannot be taken into them")
        for layer, weight in enumerate(weights or ()):
            for name in tensors:
                if name.startswith(f"{side}.layers.{layer}.") and name.split(".")[3] in LAST:
                    folded[name] = tensors[name] * weight
    return folded
