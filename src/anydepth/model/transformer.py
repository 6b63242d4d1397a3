"""The Transformer. It returns the states it computed; objectives and search read what they need from them.

Shapes: b batch, s source length, t target length, d width, v vocabulary.
"""

import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anydepth.config import ModelConfig
from anydepth.depth import SubNetwork
from anydepth.errors import UserError
from anydepth.model.cache import DecoderCache
from anydepth.model.layers import DecoderLayer, EncoderLayer, Layer
from anydepth.model.stack import EncoderDepths, Gates, Stack, States, TextExits, TokenExits
from anydepth.tensors import sinusoids


class Transform(nn.Module):
    """BERT's prediction head: what comes between the last layer and the output matrix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(F.gelu(self.dense(x)))
        return found


class Transformer(nn.Module):
    """With `classes` it is an encoder-only classifier of texts, whose `output` is over the classes."""

    def __init__(self, config: ModelConfig, vocabulary: int, classes: int = 0) -> None:
        super().__init__()
        self.config = config
        self.vocabulary, self.classes = vocabulary, classes
        self.encoder = Stack(EncoderLayer, config.encoder_pattern, config)
        self.decoder = Stack(DecoderLayer, config.decoder_pattern, config)
        self.target_embedding = nn.Embedding(vocabulary, config.width)
        shared = config.share_embeddings
        self.source_embedding = self.target_embedding if shared == "all" else nn.Embedding(vocabulary, config.width)
        learned = config.positions == "learned"
        self.positions = nn.Embedding(config.max_length, config.width) if learned else None
        self.types = nn.Embedding(config.token_types, config.width) if config.token_types else None
        self.embedding_norm = _embedding_norm(config)
        own = config.target_positions
        self.target_positions = nn.Embedding(config.max_length, config.width) if own else None
        self.target_embedding_norm = _embedding_norm(config) if own else None
        self.transform = Transform(config) if config.head == "transform" and not classes else None
        self.halting = nn.Linear(config.width, config.encoder_layers) if config.halting else None
        if classes:
            self.output = nn.Linear(2 * config.width + 1, classes, bias=False)
        else:
            self.output = nn.Linear(config.width, vocabulary, bias=config.output_bias)
            if shared != "none":
                self.output.weight = self.target_embedding.weight
        self.positions_pd: Tensor
        if not learned:
            positions_pd = torch.tensor(sinusoids(config.max_length + 1, config.width, config.positions == "fairseq"))
            self.register_buffer("positions_pd", positions_pd, persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear) and module is not self.output:
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        if self.output.bias is not None:
            nn.init.zeros_(self.output.bias)
        tables = {id(m.weight): m.weight for m in self.tables}
        for table in tables.values():
            nn.init.normal_(table, std=self.config.width**-0.5)
        if self.config.init == "depth-scaled":
            _scale_by_depth(self.encoder)
            _scale_by_depth(self.decoder)

    def configure_layers(self, *, checkpointing: bool = False, compiled: bool = False, int4: bool = False) -> None:
        """Set activation checkpointing and compilation of the layers, which change no output, and whether their
        feed-forward matrices are rounded as in an export in int4."""
        for stack in (self.encoder, self.decoder):
            stack.checkpointing = checkpointing
            for layer in stack.distinct if compiled else ():
                layer.compile(dynamic=True)
        for module in self.modules():
            if isinstance(module, Layer):
                module.int4 = int4

    @property
    def tables(self) -> list[nn.Embedding | nn.Linear]:
        """All matrices with a row for each subword, position, token type or class."""
        positions = (self.positions, self.target_positions)
        there = (self.target_embedding, self.source_embedding, *positions, self.types, self.output)
        return [table for table in there if table is not None]

    @property
    def full(self) -> SubNetwork:
        return SubNetwork.prefix(self.config.encoder_layers, self.config.decoder_layers)

    def encode(
        self,
        source_bs: Tensor,
        sub: SubNetwork,
        padding_bs: Tensor | None = None,
        with_attention: bool = False,
        gates: Gates = None,
        depths: EncoderDepths = None,
        types_bs: Tensor | None = None,
    ) -> States:
        """The state after each encoder layer of `sub`, [b, s, d] each, before the final norm.

        `with_attention` adds the attention probabilities of each layer, [b, h, s, s]. `gates`, layer weights that are
        being learned, replace those of `sub`. If `sub` is by word, `depths` says how many layers each token runs (by
        default the halting unit decides), and padding is at the end of each row. If not, it may say where whole texts
        leave. `types_bs` are token types, by default 0.
        """
        x_bsd = self._embed(self.source_embedding, source_bs, 0, types_bs)
        weights = sub.encoder_weights if gates is None else gates
        if sub.by_word and depths is None:
            depths = self.halts
        states: States = self.encoder(
            x_bsd,
            sub.encoder,
            weights,
            with_attention=with_attention,
            depths=depths if sub.by_word or isinstance(depths, TextExits) else None,
            padding_bs=padding_bs,
            attend=_attend(padding_bs),
        )
        return states

    def halts(self, first_bsd: Tensor) -> Tensor:
        """The depth of each token according to the halting unit, given the output of the first layer, [b, s]."""
        if self.halting is None:
            raise UserError("this model has no halting unit: give the depths of the words")
        logits_bsn: Tensor = self.halting(first_bsd)
        if self.config.halting_confidence == 0:
            return logits_bsn.argmax(-1) + 1
        suffices_bsn = torch.softmax(logits_bsn.float(), dim=-1).cumsum(-1) >= self.config.halting_confidence
        suffices_bsn[..., -1] = True
        return suffices_bsn.int().argmax(-1) + 1

    def encode_each(
        self,
        source_bs: Tensor,
        encoders: Sequence[tuple[int, ...]],
        padding_bs: Tensor | None = None,
        with_attention: bool = False,
    ) -> list[States]:
        """The states of each of several choices of encoder layers, before the final norm."""
        x_bsd = self._embed(self.source_embedding, source_bs, 0)
        return self.encoder.run_each(x_bsd, encoders, with_attention=with_attention, attend=_attend(padding_bs))

    def encode_to(self, source_bs: Tensor, depth_b: Tensor, padding_bs: Tensor | None = None) -> Tensor:
        """The state of each sentence after so many layers, [b, s, d], before the final norm.

        A layer only runs for the sentences that need it, or for one that does not: all processes have to run the same
        layers, forwards and backwards. Not for dense connections.
        """
        order_b = torch.argsort(depth_b, descending=True, stable=True)
        x = self._embed(self.source_embedding, source_bs[order_b], 0)
        padding = None if padding_bs is None else padding_bs[order_b]
        deeper_n = torch.bincount(depth_b, minlength=self.config.encoder_layers + 1).flip(0).cumsum(0).flip(0)[1:]
        done, waiting = [], len(x)  # the first so many sentences have not reached their depth
        for layer, left in enumerate(deeper_n.tolist()):
            done.append(x[left:waiting])
            x, padding = x[: max(1, left)], None if padding is None else padding[: max(1, left)]
            x = self.encoder(x, (layer,), attend=_attend(padding))[-1]
            waiting = left
        states = torch.cat([x[:waiting], *reversed(done)])[torch.argsort(order_b)]
        return states + x[:, :0].sum()  # zero, and a gradient of zero

    def read_out(self, state_bsd: Tensor, padding_bs: Tensor | None, rows_r: Tensor | None = None) -> Tensor:
        """The features that an encoder-only model predicts from, given the state at an exit.

        [b, 2d + 1], one row per text, for a classifier; else [r, d], for the subwords at these rows of the flattened
        batch."""
        if self.classes:
            return pool(self.memory(state_bsd), padding_bs)
        chosen = state_bsd if rows_r is None else state_bsd.flatten(0, 1)[rows_r]
        exit_rd = self.memory(chosen)
        return exit_rd if self.transform is None else self.transform(exit_rd)

    def memory(self, encoder_state: Tensor) -> Tensor:
        """An encoder exit: the shared final norm, whichever layer the state comes from."""
        exit_bsd: Tensor = self.encoder.norm(encoder_state)
        return exit_bsd

    def decode(
        self,
        target_bt: Tensor,
        memory_bsd: Tensor,
        sub: SubNetwork,
        padding_bs: Tensor | None = None,
        cache: DecoderCache | None = None,
        gates: Gates = None,
        exits: TokenExits | None = None,
    ) -> States:
        """The state after each decoder layer of `sub`, [b, t, d] each, before the final norm.

        With a cache, `target_bt` holds only the new positions, and the encoder exit is projected at the first call.
        `gates` as for `encode`. With `exits`, a row of one new position may leave after some layers; its state there
        takes the place of those after deeper layers, for which later positions find keys and values in the cache.
        """
        x_btd = self._embed(self.target_embedding, target_bt, 0 if cache is None else cache.length, target=True)
        states: States = self.decoder(
            x_btd,
            sub.decoder,
            sub.decoder_weights if gates is None else gates,
            None if cache is None else cache.layers,
            token_exits=exits,
            memory_bsd=memory_bsd,
            attend=_attend(padding_bs),
        )
        if cache is not None:
            cache.advance(target_bt.shape[1], None if exits is None else states[-1])
        return states

    def decode_each(
        self,
        target_bt: Tensor,
        memory_bsd: Tensor,
        decoders: Sequence[tuple[int, ...]],
        padding_bs: Tensor | None = None,
    ) -> list[States]:
        """The states of each of several choices of decoder layers, before the final norm."""
        x_btd = self._embed(self.target_embedding, target_bt, 0, target=True)
        return self.decoder.run_each(x_btd, decoders, memory_bsd=memory_bsd, attend=_attend(padding_bs))

    def features(self, decoder_state: Tensor) -> Tensor:
        """A decoder exit: the shared final norm."""
        exit_btd: Tensor = self.decoder.norm(decoder_state)
        return exit_btd

    def forward(
        self, source_bs: Tensor, target_bt: Tensor, sub: SubNetwork, padding_bs: Tensor | None = None
    ) -> Tensor:
        """Logits [b, t, v] of the sub-network for a whole target."""
        memory = self.memory(self.encode(source_bs, sub, padding_bs)[-1])
        logits: Tensor = self.output(self.features(self.decode(target_bt, memory, sub, padding_bs)[-1]))
        return logits

    def output_product(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features and matrix whose product are the logits: a bias is one more column, for a feature that is 1."""
        if self.output.bias is None:
            return features, self.output.weight
        matrix_vd = torch.cat([self.output.weight, self.output.bias[:, None]], dim=1)
        return F.pad(features, (0, 1), value=1.0), matrix_vd

    def _embed(
        self, table: nn.Embedding, tokens: Tensor, start: int, types: Tensor | None = None, *, target: bool = False
    ) -> Tensor:
        end = start + tokens.shape[1]
        own = target and self.target_positions is not None
        table_of_positions = self.target_positions if own else self.positions
        positions = self.positions_pd if table_of_positions is None else table_of_positions.weight
        if end > positions.shape[0]:
            raise UserError(f"{end} subwords are more than the model takes ({self.config.max_length}): split the text")
        x = F.embedding(tokens, table.weight)
        x = (x * math.sqrt(self.config.width) if self.config.scales_embeddings else x) + positions[start:end]
        if self.types is not None:
            x = x + (self.types.weight[0] if types is None else self.types(types))
        norm = self.target_embedding_norm if own else self.embedding_norm
        if norm is not None:
            x = norm(x)
        return F.dropout(x, self.config.dropout) if self.training and self.config.dropout else x

    def used_parameters(self, sub: SubNetwork) -> Iterator[nn.Parameter]:
        """The parameters that a sub-network uses, each once."""
        parts = (self.embedding_norm, self.target_embedding_norm, self.transform, self.halting)
        others = [module for module in parts if module is not None]
        unique = {id(p): p for module in (*self.tables, *others) for p in module.parameters()}
        yield from unique.values()
        yield from self.encoder.used_parameters(sub.encoder)
        yield from self.decoder.used_parameters(sub.decoder)


def pool(x_bsd: Tensor, padding_bs: Tensor | None) -> Tensor:
    """Max and mean pooling over a text, then ReLU (Liu et al. 2021, Eq. 6), and a constant 1: [b, 2d + 1].

    The 1 makes the bias a column of the output matrix.
    """
    if padding_bs is None:
        largest_bd, mean_bd = x_bsd.amax(1), x_bsd.mean(1)
    else:
        padding_bs1 = padding_bs[:, :, None]
        largest_bd = x_bsd.masked_fill(padding_bs1, float("-inf")).amax(1)
        mean_bd = x_bsd.masked_fill(padding_bs1, 0.0).sum(1) / (~padding_bs1).sum(1)
    return F.pad(torch.relu(torch.cat([largest_bd, mean_bd], dim=1)), (0, 1), value=1.0)


def _embedding_norm(config: ModelConfig) -> nn.LayerNorm | None:
    return nn.LayerNorm(config.width, eps=config.norm_epsilon) if config.norms_embeddings else None


def _scale_by_depth(stack: Stack) -> None:
    """Depth-scaled initialisation: matrices times 1 / sqrt(layer), counted from 1 (Zhang et al. 2019)."""
    first_positions = {layer: position for position, layer in reversed(list(enumerate(stack.layers, 1)))}
    for layer, position in first_positions.items():
        for module in layer.modules():
            if isinstance(module, nn.Linear):
                module.weight.data.mul_(position**-0.5)


def _attend(padding_bs: Tensor | None) -> Tensor | None:
    """The attention mask: which positions may be attended to, broadcast over heads and queries."""
    return None if padding_bs is None else ~padding_bs[:, None, None, :]
