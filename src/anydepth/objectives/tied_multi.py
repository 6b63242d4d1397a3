"""Tied-Multi: one model, a loss at every (encoder exit, decoder exit).

Dabre, Rubino and Fujita 2020, "Balancing Cost and Benefit with Tied-Multi Transformers", Section 3, Algorithm 1.

Shapes: n encoder exits, m decoder exits, b batch, s source length, t target length, d width, r rows.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from anydepth.config import TiedMultiConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu
from anydepth.model import Transformer
from anydepth.objectives.base import TranslationObjective
from anydepth.objectives.outputs import ForwardOutputs, StackOutputs, forward_all
from anydepth.rng import keyed_uniform

Table = npt.NDArray[np.float64]


def _uniform(n: int, m: int, _: float) -> Table:
    return np.ones((n, m))


def _linear(n: int, m: int, _: float) -> Table:
    return np.outer(np.arange(1, n + 1), np.arange(1, m + 1)).astype(np.float64)


def _deepest(n: int, m: int, share: float) -> Table:
    table = np.full((n, m), (1 - share) / max(1, n * m - 1))
    table[-1, -1] = share
    return table


WEIGHTS: dict[str, Callable[[int, int, float], Table]] = {
    "uniform": _uniform,
    "linear": _linear,
    "deepest": _deepest,
}


class TiedMulti(TranslationObjective):
    config: TiedMultiConfig
    takes_encoder_alone = True

    def weights(self) -> Table:
        """The weight of each exit, [n, m], summing to 1: `exact` weighs with it, `sampled` samples from it."""
        sizes = (self.model_config.encoder_layers, max(1, self.model_config.decoder_layers))
        table = WEIGHTS[self.config.weights](*sizes, self.config.deepest_share)
        return np.asarray(table / table.sum(), dtype=np.float64)

    def menu(self) -> DepthMenu:
        return DepthMenu.every_prefix(self.model_config.encoder_layers, self.model_config.decoder_layers)

    def forward_outputs(self, model: Transformer, batch: Batch, step: int) -> ForwardOutputs:
        alone = not self.model_config.decoder_layers  # then all exits cost no more than one
        if self.config.mode == "exact" or alone:
            return self._exact(model, batch)
        return self._sampled(model, batch, step)

    def _exact(self, model: Transformer, batch: Batch) -> ForwardOutputs:
        """All n x m losses; every exit is a prefix of the deepest, so each layer runs once."""
        n, m = self.model_config.encoder_layers, self.model_config.decoder_layers
        encoders, decoders = ([tuple(range(depth)) for depth in range(min(1, size), size + 1)] for size in (n, m))
        return forward_all(model, batch, encoders, decoders, torch.from_numpy(self.weights()), self.needs_attention)

    def _sampled(self, model: Transformer, batch: Batch, step: int) -> ForwardOutputs:
        """Each sentence samples its encoder exit n; each of its tokens samples a decoder exit m given n, or trains all.

        In expectation this is the exact loss: each (n, m) of a token has its weight either as weight or as probability.
        """
        n_b = self._sample_encoder(batch, step)
        encoded = model.encode(batch.source, model.full, batch.source_padding, self.needs_attention)
        sentences = torch.arange(len(n_b), device=n_b.device)
        memory = model.memory(torch.stack(encoded)[n_b, sentences])
        decoded = model.decode(batch.target_in, memory, model.full, batch.source_padding)

        real_r = batch.wanted_rows
        b_r = real_r // batch.target_out.shape[1]
        of_n = self.weights().sum(axis=1)
        given_bm = torch.from_numpy(self.weights() / of_n[:, None]).to(n_b.device, torch.float32)[n_b]
        states_mrd = torch.stack(decoded).flatten(1, 2)
        if self.config.mode == "sampled":
            m_er = self._sample_decoder(batch, step, n_b)[real_r][None]
            features_erd = model.features(states_mrd[m_er[0], real_r])[None]
            weight_er = torch.full_like(m_er, 1 / len(real_r), dtype=torch.float32)
        else:
            m_er = torch.arange(len(decoded), device=n_b.device)[:, None]
            features_erd = model.features(states_mrd[:, real_r])
            weight_er = given_bm[b_r].T / len(real_r)
        return ForwardOutputs(
            real_r,
            features_erd,
            weight_er,
            (n_b[b_r][None] == len(encoded) - 1, m_er == len(decoded) - 1),
            [StackOutputs(encoded.first(depth), (float(share),)) for depth, share in enumerate(of_n, 1)],
            [
                StackOutputs(decoded.first(depth), (1.0,), given_b)
                for depth, given_b in enumerate(given_bm.unbind(1), 1)
            ],
            (range(len(encoded)), range(len(decoded))),
        )

    def _sample_encoder(self, batch: Batch, step: int) -> Tensor:
        """The exit of each sentence, [b], as an index from 0."""
        uniform_b1 = keyed_uniform(self.seed, step, batch.indices[:, None], -1)
        n_b = _invert(self.weights().sum(axis=1).cumsum(), uniform_b1)[:, 0]
        return torch.from_numpy(n_b).to(batch.source.device)

    def _sample_decoder(self, batch: Batch, step: int, n_b: Tensor) -> Tensor:
        """The exit of each target token, given its sentence's, [b x t]."""
        table, positions = self.weights(), np.arange(batch.target_out.shape[1])[None, :]
        given_n = (table / table.sum(axis=1, keepdims=True)).cumsum(axis=1)
        u_bt = keyed_uniform(self.seed, step, batch.indices[:, None], positions)
        m_bt = (u_bt[:, :, None] >= given_n[n_b.cpu().numpy()][:, None, :-1]).sum(axis=-1)
        return torch.from_numpy(m_bt.flatten()).to(batch.source.device)


def _invert(cumulative: Table, uniform: Table) -> npt.NDArray[np.int64]:
    """Inverse transform sampling; the last class also takes what rounding leaves above the last sum."""
    return np.searchsorted(cumulative[:-1], uniform, side="right")
