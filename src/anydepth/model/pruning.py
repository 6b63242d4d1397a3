"""Cutting layers out of a model, and folding layer weights into its parameters."""

from torch import Tensor

from anydepth.config import ModelConfig
from anydepth.depth import SubNetwork
from anydepth.errors import UserError

Tensors = dict[str, Tensor]
BRANCH_OUTPUTS = ("attention_out", "cross_out", "ffn_down")  # scaling the last matrix of a branch scales the branch


def cut(config: ModelConfig, tensors: Tensors, sub: SubNetwork) -> tuple[ModelConfig, Tensors]:
    """A smaller model with only the layers of `sub`, in the same order. Layer weights of `sub` are ignored."""
    if config.residual == "dlcl":
        raise UserError("layers with dense connections cannot be cut out: each reads all those before it")
    kept = {name: value for name, value in tensors.items() if ".layers." not in name}
    changes: dict[str, object] = {}
    for side, pattern, layers in (
        ("encoder", config.encoder_pattern, sub.encoder),
        ("decoder", config.decoder_pattern, sub.decoder),
    ):
        numbers: dict[int, int] = {}  # the new pattern
        for position, layer in enumerate(layers):
            if pattern[layer] not in numbers:
                numbers[pattern[layer]] = len(numbers) + 1
                # shared weights are stored at their first position
                own = f"{side}.layers.{pattern.index(pattern[layer])}."
                parts = {name.removeprefix(own): value for name, value in tensors.items() if name.startswith(own)}
                kept |= {f"{side}.layers.{position}.{part}": value for part, value in parts.items()}
        if f"{side}.scales" in kept:
            kept[f"{side}.scales"] = kept[f"{side}.scales"][list(layers)]
        shares = len(numbers) < len(layers)
        changes[f"{side}_layers"] = len(layers)
        changes[f"{side}_shared"] = tuple(numbers[pattern[layer]] for layer in layers) if shares else "none"
    return config.model_copy(update=changes), kept


def fold(config: ModelConfig, tensors: Tensors, sub: SubNetwork) -> Tensors:
    """Tensors with the layer weights of `sub`, which has all layers, multiplied in."""
    folded = dict(tensors)
    for side, shared, weights in (
        ("encoder", config.encoder_shared, sub.encoder_weights),
        ("decoder", config.decoder_shared, sub.decoder_weights),
    ):
        if weights and shared != "none":
            raise UserError("layers that share parameters cannot have layer weights folded into them")
        for layer, weight in enumerate(weights or ()):
            for name in tensors:
                if name.startswith(f"{side}.layers.{layer}.") and name.split(".")[3] in BRANCH_OUTPUTS:
                    folded[name] = tensors[name] * weight
    return folded
