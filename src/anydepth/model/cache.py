"""Keys and values kept while a target is decoded step by step.

Shapes: l applications of a layer, r rows (sentences x beam), h heads, c capacity, e width of a head.
"""

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from anydepth.model.layers import CrossAttention

FIRST_CAPACITY = 32


class DecoderCache:
    """One pre-allocated buffer for the self-attention of all applications, and the projected encoder exits."""

    def __init__(self, applications: int, limit: int) -> None:
        self.limit = limit
        self.length = 0
        self.layers = [LayerCache(self, place) for place in range(applications)]
        self.buffer_l2rhce: Tensor | None = None

    def place_for(self, key_value_2rhte: Tensor) -> Tensor:
        """The buffer, with room for the new positions; allocated at first, doubled when it is full."""
        _, rows, heads, t, e = key_value_2rhte.shape
        needed = self.length + t
        old = self.buffer_l2rhce
        if old is None or needed > old.shape[4]:
            capacity = min(max(needed, 2 * (0 if old is None else old.shape[4]), FIRST_CAPACITY), self.limit)
            new = key_value_2rhte.new_empty(len(self.layers), 2, rows, heads, max(capacity, needed), e)
            if old is not None:
                new[..., : self.length, :] = old[..., : self.length, :]
            self.buffer_l2rhce = old = new
        return old

    def advance(self, positions: int) -> None:
        """Call once all layers have appended their keys and values."""
        self.length += positions

    def keep_rows(self, rows: Tensor) -> None:
        """Go on with these rows, in this order; rows may repeat (beams) or be missing (finished sentences)."""
        if self.buffer_l2rhce is None:
            return
        kept = self.buffer_l2rhce[..., : self.length, :].index_select(2, rows)
        if len(rows) > self.buffer_l2rhce.shape[2]:  # from one row per sentence to a whole beam
            shape = list(self.buffer_l2rhce.shape)
            shape[2] = len(rows)
            self.buffer_l2rhce = self.buffer_l2rhce.new_empty(shape)
        self.buffer_l2rhce = self.buffer_l2rhce[:, :, : len(rows)]
        self.buffer_l2rhce[..., : self.length, :] = kept

    def keep_sentences(self, sentences: Tensor) -> None:
        """The same for the projected encoder exits, which beams share."""
        for layer in self.layers:
            if layer.memory_2bhse is not None:
                layer.memory_2bhse = layer.memory_2bhse.index_select(1, sentences)


class LayerCache:
    """What one application of a decoder layer keeps."""

    def __init__(self, cache: DecoderCache, place: int) -> None:
        self._cache = cache
        self._place = place
        self.memory_2bhse: Tensor | None = None

    def append(self, key_value_2rhte: Tensor) -> tuple[Tensor, Tensor]:
        """Store new keys and values; return those of all positions so far."""
        start = self._cache.length
        end = start + key_value_2rhte.shape[3]
        everything = self._cache.place_for(key_value_2rhte)[self._place]
        everything[..., start:end, :] = key_value_2rhte
        key, value = everything[..., :end, :].unbind(0)
        return key, value

    def memory(self, attention: "CrossAttention", memory_bsd: Tensor) -> Tensor:
        if self.memory_2bhse is None:
            # keys and values contiguous: they are read once per step
            self.memory_2bhse = attention.project(memory_bsd).contiguous()
        return self.memory_2bhse
