"""What other formats have no place for."""

from anydepth.config import ModelConfig
from anydepth.depth import SubNetwork
from anydepth.errors import UserError


def check_exportable(config: ModelConfig, sub: SubNetwork, to: str) -> None:
    """Refuse, with the reason, what only anydepth itself can run."""
    if config.decoder_layers == 0:
        raise UserError(f"{to} takes models that translate; this one is an encoder alone: use --engine torch")
    if sub.by_word:
        raise UserError(
            f"at depth {sub.name} each word has its own depth, which {to} cannot run: take another depth, or torch"
        )
    if config.residual == "dlcl":
        raise UserError(f"each layer of this model reads all those before it (dlcl), which {to} cannot run: use torch")
    if config.norm == "none":
        raise UserError(f"the layers of this model have no norms, which {to} cannot do without: use torch")
