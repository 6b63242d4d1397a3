"""The one depth-aware Transformer: layers, the one stack loop, the KV cache."""

from anydepth.model.cache import DecoderCache
from anydepth.model.stack import States
from anydepth.model.transformer import Transformer

__all__ = ["DecoderCache", "States", "Transformer"]
