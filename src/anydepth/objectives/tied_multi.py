"""Tied-Multi: one model, a loss at every (encoder exit, decoder exit).

Dabre, Rubino and Fujita 2020, "Balancing Cost and Benefit with Tied-Multi Transformers", Section 3, Algorithm 1.

Shapes: n encoder exits, m decoder exits, c copies of the batch, each with other encoder exits, b batch, s source
length, t target length, d width, r rows.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from anydepth.config import TiedMultiConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu
from anydepth.model import States, Transformer
from anydepth.objectives.base import TranslationObjective
from anydepth.objectives.outputs import ForwardOutputs, StackOutputs, forward_all
from anydepth.rng import keyed_uniform

ExitTable = npt.NDArray[np.float64]


def _uniform(n: int, m: int, _: TiedMultiConfig) -> ExitTable:
    return np.ones((n, m))


def _linear(n: int, m: int, _: TiedMultiConfig) -> ExitTable:
    return np.outer(np.arange(1, n + 1), np.arange(1, m + 1)).astype(np.float64)


def _deepest(n: int, m: int, config: TiedMultiConfig) -> ExitTable:
    given = {(0, 0): config.shallowest_share, (n - 1, m - 1): config.deepest_share}
    shares = {place: share for place, share in given.items() if share is not None}
    table = np.full((n, m), (1 - sum(shares.values())) / max(1, n * m - len(shares)))
    for place, share in shares.items():
        table[place] = share
    return table


WEIGHTS: dict[str, Callable[[int, int, TiedMultiConfig], ExitTable]] = {
    "uniform": _uniform,
    "linear": _linear,
    "deepest": _deepest,
}


class TiedMulti(TranslationObjective):
    config: TiedMultiConfig
    takes_encoder_alone = True

    def weights(self) -> ExitTable:
        """The weight of each exit, [n, m], summing to 1: `exact` weighs with it, `sampled` samples from it."""
        sizes = (self.model_config.encoder_layers, max(1, self.model_config.decoder_layers))
        table = WEIGHTS[self.config.weights](*sizes, self.config)
        return np.asarray(table / table.sum(), dtype=np.float64)

    def menu(self) -> DepthMenu:
        return DepthMenu.every_prefix(self.model_config.encoder_layers, self.model_config.decoder_layers)

    def forward_outputs(self, model: Transformer, batch: Batch, step: int) -> ForwardOutputs:
        alone = not self.model_config.decoder_layers  # then all exits cost no more than one
        if self.config.mode == "exact" or alone:
            return self._exact(model, batch)
        return self._sampled(model, batch, step)

    def warnings(self, steps: int) -> list[str]:
        exact = self.config.mode == "exact" or not self.model_config.decoder_layers
        unused = exact and self.config.encoder_exits != "one"
        return ["objective.encoder_exits has no effect: every encoder exit is trained anyway"] if unused else []

    def _exact(self, model: Transformer, batch: Batch) -> ForwardOutputs:
        """All n x m losses; every exit is a prefix of the deepest, so each layer runs once."""
        n, m = self.model_config.encoder_layers, self.model_config.decoder_layers
        encoders, decoders = ([tuple(range(depth)) for depth in range(min(1, size), size + 1)] for size in (n, m))
        return forward_all(model, batch, encoders, decoders, torch.from_numpy(self.weights()), self.needs_attention)

    def _sampled(self, model: Transformer, batch: Batch, step: int) -> ForwardOutputs:
        """Each sentence samples encoder exits n; each of its tokens samples a decoder exit m given n, or trains all.

        In expectation this is the exact loss: each (n, m) of a token has its weight either as weight or as probability.
        """
        n_cb, weight_cb = self._sample_encoder(batch, step)
        copies, sentences = len(n_cb), torch.arange(n_cb.shape[1], device=n_cb.device)
        depths = len(self.weights())
        if copies == 1 and self.teaching is None and model.config.residual != "dlcl":
            memory = model.memory(model.encode_to(batch.source, n_cb[0] + 1, batch.source_padding))
            encoded = States([])
        else:
            encoded = model.encode(batch.source, model.full, batch.source_padding, self.needs_attention)
            memory = model.memory(torch.stack(encoded)[n_cb, sentences].flatten(0, 1))
        padding = None if batch.source_padding is None else batch.source_padding.repeat(copies, 1)
        decoded = model.decode(batch.target_in.repeat(copies, 1), memory, model.full, padding)

        real_r = batch.wanted_rows
        b_r = real_r // batch.target_out.shape[1]
        row_cr = real_r + batch.target_out.numel() * torch.arange(copies, device=n_cb.device)[:, None]
        of_n = self.weights().sum(axis=1)
        given_nm = torch.from_numpy(self.weights() / of_n[:, None]).to(n_cb.device, torch.float32)
        weight_cbm = given_nm[n_cb] * weight_cb[..., None]
        states_mrd = torch.stack(decoded).flatten(1, 2)
        full_cr = (n_cb == depths - 1)[:, b_r]
        if self.config.mode == "sampled":
            m_er = self._sample_decoder(batch, step, n_cb)[:, real_r]
            features_erd = model.features(states_mrd[m_er, row_cr])
            weight_er, full_er = weight_cb[:, b_r] / len(real_r), full_cr
        else:
            m_er = torch.arange(len(decoded), device=n_cb.device).repeat_interleave(copies)[:, None]
            features_erd = model.features(states_mrd[:, row_cr.flatten()]).view(len(m_er), len(real_r), -1)
            weight_er = weight_cbm[:, b_r].permute(2, 0, 1).flatten(0, 1) / len(real_r)
            full_er = full_cr.repeat(len(decoded), 1)
        return ForwardOutputs(
            real_r,
            features_erd,
            weight_er,
            (full_er, m_er == len(decoded) - 1),
            [StackOutputs(encoded.first(depth), (float(share),)) for depth, share in enumerate(of_n, 1)],
            [
                StackOutputs(decoded.first(depth), (1.0,) * copies, one_cb)
                for depth, one_cb in enumerate(weight_cbm.unbind(2), 1)
            ],
            (range(depths), range(len(decoded))),
        )

    def _sample_encoder(self, batch: Batch, step: int) -> tuple[Tensor, Tensor]:
        """The exits of each sentence as indices from 0, and what each counts, [c, b].

        Each exit has its weight as the expectation of what it counts. Two are half a turn apart, so that they differ
        unless one exit has more than half of the weight.
        """
        of_n, device = self.weights().sum(axis=1), batch.source.device
        uniform_b = keyed_uniform(self.seed, step, batch.indices[:, None], -1)[:, 0]
        kind = self.config.encoder_exits if len(of_n) > 1 else "one"
        if kind == "sandwich":
            others_b = _invert((of_n[:-1] / of_n[:-1].sum()).cumsum(), uniform_b)
            n_cb, shares = np.stack([np.full_like(others_b, len(of_n) - 1), others_b]), [of_n[-1], 1 - of_n[-1]]
        else:
            turns = (0.0,) if kind == "one" else (0.0, 0.5)
            n_cb = np.stack([_invert(of_n.cumsum(), (uniform_b + turn) % 1) for turn in turns])
            shares = [1 / len(turns)] * len(turns)
        weight_c1 = torch.tensor(shares, dtype=torch.float32, device=device)[:, None]
        return torch.from_numpy(n_cb).to(device), weight_c1.expand(n_cb.shape)

    def _sample_decoder(self, batch: Batch, step: int, n_cb: Tensor) -> Tensor:
        """The exit of each target token, given its sentence's, [c, b x t]."""
        table, positions = self.weights(), np.arange(batch.target_out.shape[1])[None, :]
        given_n = (table / table.sum(axis=1, keepdims=True)).cumsum(axis=1)
        found = []
        for copy, n_b in enumerate(n_cb.cpu().numpy()):
            extra = (copy,) if copy else ()
            uniform_bt = keyed_uniform(self.seed, step, batch.indices[:, None], positions, *extra)
            found.append((uniform_bt[:, :, None] >= given_n[n_b][:, None, :-1]).sum(axis=-1).flatten())
        return torch.from_numpy(np.stack(found)).to(batch.source.device)


def _invert(cumulative: ExitTable, uniform: ExitTable) -> npt.NDArray[np.int64]:
    """Inverse transform sampling; the last class also takes what rounding leaves above the last sum."""
    return np.searchsorted(cumulative[:-1], uniform, side="right")
