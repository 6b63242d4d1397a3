"""The key-value cache of incremental decoding.

Shapes: l applications of a layer, r rows (sentences x beam), h heads, c capacity, e width of a head, d width,
p positions so far, n positions whose keys and values are still missing in a layer.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from anydepth.model.layers import DecoderWeights

FIRST_CAPACITY = 32


class DecoderCache:
    """One pre-allocated buffer for the self-attention of all layer applications, and the projected encoder exits.

    Where tokens may leave early, `exits_rpd` has the state of each at its exit. A layer that no row of the batch ran at
    some positions projects their keys and values from it, once a later position runs the layer.
    """

    def __init__(self, applications: int, limit: int) -> None:
        self.limit = limit
        self.length = 0
        self.layers = [LayerCache(self) for _ in range(applications)]
        self.buffer_l2rhce: Tensor | None = None
        self.exits_rpd: Tensor | None = None
        self._spare: Tensor | None = None

    def reserve(self, key_value_2rhte: Tensor, needed: int) -> None:
        """Make room for so many positions: the buffer is doubled when it is full."""
        _, rows, heads, _, e = key_value_2rhte.shape
        old = self.buffer_l2rhce
        capacity = min(2 * (0 if old is None else old.shape[4]), self.limit)
        new = key_value_2rhte.new_empty(len(self.layers), 2, rows, heads, max(capacity, needed, FIRST_CAPACITY), e)
        if old is not None:
            new[..., : self.length, :] = old[..., : self.length, :]
        self._hand_out(new)

    def _hand_out(self, buffer: Tensor) -> None:
        self.buffer_l2rhce = buffer
        for layer, own in zip(self.layers, buffer.unbind(0), strict=True):
            layer.buffer_2rhce = own

    def advance(self, positions: int, exits_r1d: Tensor | None = None) -> None:
        """Call after all layers have appended their keys and values, or with the states at exits before that."""
        self.length += positions
        if exits_r1d is not None:
            past = self.exits_rpd
            self.exits_rpd = exits_r1d if past is None else torch.cat([past, exits_r1d], dim=1)

    def keep_rows(self, rows: Tensor) -> None:
        """Keep these rows, in this order; rows may repeat (beams) or be missing (finished sentences)."""
        old = self.buffer_l2rhce
        if old is None:
            return
        if self.exits_rpd is not None:
            self.exits_rpd = self.exits_rpd.index_select(0, rows)
        shape = (*old.shape[:2], len(rows), *old.shape[3:])
        new = self._spare if self._spare is not None and self._spare.shape == shape else old.new_empty(shape)
        torch.index_select(old[..., : self.length, :], 2, rows, out=new[..., : self.length, :])
        self._spare = old  # two buffers take turns: a beam is reordered at every step
        self._hand_out(new)

    def keep_sentences(self, sentences: Tensor) -> None:
        """The same for the projected encoder exits, which the hypotheses of a sentence share."""
        for layer in self.layers:
            if layer.memory is not None:
                key, value = layer.memory
                layer.memory = key.index_select(0, sentences), value.index_select(0, sentences)


class LayerCache:
    """The cache of one application of a decoder layer."""

    def __init__(self, cache: DecoderCache) -> None:
        self._cache = cache
        self._filled = 0  # positions
        self.buffer_2rhce: Tensor | None = None
        self.weights: DecoderWeights | None = None
        self.memory: tuple[Tensor, Tensor] | None = None  # keys and values of the encoder exit

    def left_behind(self) -> Tensor | None:
        """The states [r, n, d] of earlier positions that no row of the batch ran in this layer."""
        exits_rpd = self._cache.exits_rpd
        return exits_rpd[:, self._filled :] if exits_rpd is not None and self._filled < self._cache.length else None

    def append(self, key_value_2rhte: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values; return those of all positions so far."""
        start = self._filled
        end = start + key_value_2rhte.shape[3]
        if self.buffer_2rhce is None or end > self.buffer_2rhce.shape[3]:
            self._cache.reserve(key_value_2rhte, end)
        buffer = self.buffer_2rhce
        assert buffer is not None
        buffer[:, :, :, start:end] = key_value_2rhte
        self._filled = end
        key, value = buffer[:, :, :, :end].unbind(0)
        return key, value
