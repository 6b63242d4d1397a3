"""Latent depth: gates on the layers, learned for each language pair together with the shared weights.

Li, Stickland, Tang and Kong 2020, "Deep Transformers with Latent Depth". Shapes: n language pairs, l layers.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anydepth.config import LatentConfig, ModelConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.depth.menu import MenuEntry
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.model.pruning import cut, fold
from anydepth.model.stack import Gates
from anydepth.objectives import gates
from anydepth.objectives.base import Finished, Loss, ParameterGroup, TranslationObjective
from anydepth.objectives.outputs import ForwardOutputs, forward_gated, keep_in_graph
from anydepth.rng import DECODER, ENCODER, keyed_uniform

UNDECIDED = (0.4, 0.6)  # probabilities at which the choice of a layer is nearly random
SIDES = {"encoder": ENCODER, "decoder": DECODER}


class Latent(TranslationObjective):
    config: LatentConfig
    remedy = (
        "start a new run with a lower train.learning_rate or objective.gate_learning_rate, or a longer train.warmup"
    )
    takes_encoder_alone = True

    def __init__(
        self, config: LatentConfig, model: ModelConfig, label_smoothing: float, seed: int, pairs: tuple[str, ...]
    ) -> None:
        super().__init__(config, model, label_smoothing, seed, pairs)
        self.layers = {"encoder": model.encoder_layers, "decoder": model.decoder_layers}
        self.targets = {"encoder": config.encoder_target, "decoder": config.decoder_target}
        self.sides = [side for side in SIDES if config.sides in ("both", side) and self.layers[side]]
        self.rows = pairs if config.gates == "per-pair" and config.fixed is None else ("",)
        # Starting at 1/2 lets a deep stack train (Eq. 6). Fixed gates have no parameters.
        learned = self.sides if config.fixed is None else []
        self.logits = nn.ParameterDict({side: torch.zeros(len(self.rows), self.layers[side]) for side in learned})
        self._samples: dict[str, Tensor] = {}
        self._step = 0
        self._check()

    def _check(self) -> None:
        config, model = self.config, self.model_config
        if config.prior == "aggregated" and len(self.rows) == 1:
            one = "one pair" if len(self.pairs) == 1 else "one set of gates for them (objective.gates)"
            raise UserError(
                f"objective.prior: aggregated is the mean over language pairs, and there is {one}: give such as [1, 1]"
            )
        if model.residual != "plain":
            raise UserError("latent depth has gates of its own: set model.residual to plain")
        if not self.sides:
            raise UserError(f"objective.sides is {config.sides}, and the model has no {config.sides}")
        shared = {"encoder": model.encoder_shared, "decoder": model.decoder_shared}
        for side in self.sides:
            if self._folds and shared[side] != "none":
                raise UserError(
                    f"objective.finish: soft takes gates into the weights of layers, which those of the {side} share: "
                    f"set it to both, or model.{side}_shared to none"
                )
        if model.norm == "post" and config.fixed is None and config.finish != "soft":
            raise UserError(
                "after a post-norm layer has lost its branches its norms are still there, so none can be removed: set "
                "objective.finish=soft, or model.norm to layer or none"
            )
        for side, target in self.targets.items():
            if target is not None and target > self.layers[side]:
                raise UserError(
                    f"objective.{side}_target cannot be {target}: the {side} has {self.layers[side]} layers"
                )

    def warnings(self, steps: int) -> list[str]:
        config, found = self.config, list[str]()
        if config.fixed is not None:
            return found
        if config.encoder_target is None and config.decoder_target is None and "lambda_" in config.model_fields_set:
            found.append("objective.lambda has no effect without encoder_target or decoder_target")
        if config.anneal_from + config.anneal_steps > steps:
            found.append(
                "beta and lambda are still rising when training ends: objective.anneal_from and anneal_steps are "
                f"{config.anneal_from + config.anneal_steps:,} updates, train.steps {steps:,}"
            )
        if config.tau_end is not None and config.tau_steps > steps:
            tau = f"{self._tau(steps):.2g} and not {config.tau_end:g}"
            found.append(
                f"the temperature of the gates comes down to {tau}: objective.tau_steps is {config.tau_steps:,}, "
                f"train.steps {steps:,}"
            )
        return found

    def groups(self) -> list[ParameterGroup]:
        names = tuple(f"logits.{side}" for side in self.logits)
        return [] if not names else [ParameterGroup(names, self.config.gate_learning_rate, self.config.inner_steps)]

    def forward_outputs(self, model: Transformer, batch: Batch, step: int) -> ForwardOutputs:
        self._sample(batch, step)
        own: dict[str, Gates] = {side: z_nl[self._row(batch)].unbind() for side, z_nl in self._samples.items()}
        return forward_gated(model, batch, (own.get("encoder"), own.get("decoder")), self.needs_attention)

    def forward(self, model: Transformer, batch: Batch, step: int) -> Loss:
        """The translation loss under sampled gates, the KL, and the distance from the target depth (Eq. 7, 8)."""
        loss = super().forward(model, batch, step)
        if not self._is_due(step):
            loss.total = keep_in_graph(loss.total, list(self.logits.values()))
        rise = gates.ramp(step, self.config.anneal_from, self.config.anneal_steps)
        row = self._row(batch)
        for side, logits_nl in self._trained(step):
            kl = gates.divergence(logits_nl[row], self._prior(logits_nl)).sum()
            loss.total = loss.total + rise * self.config.beta * kl
            loss.parts |= {f"kl/{side}": kl.detach(), f"depth/{side}": torch.sigmoid(logits_nl[row]).sum().detach()}
            target = self.targets[side]
            if target is not None:
                off = gates.off_target(self._samples[side], target)
                loss.total = loss.total + rise * self.config.lambda_ * off
                loss.parts[f"lk/{side}"] = off.detach()
        return loss

    def _row(self, batch: Batch) -> int:
        return batch.language if len(self.rows) > 1 else 0

    def _trained(self, step: int) -> Iterator[tuple[str, Tensor]]:
        """The gates' parameters; only the gradient of the last inner step is used (Algorithm 1)."""
        for side, logits_nl in self.logits.items():
            yield side, logits_nl if self._is_due(step) else logits_nl.detach()

    def _is_due(self, step: int) -> bool:
        return step % self.config.inner_steps == 0

    def _sample(self, batch: Batch, step: int) -> None:
        """Sample each gate for this batch; the gates of other pairs also count for the target depth."""
        self._step = step
        tau, hard = self._tau(step), self._samples_are_hard
        if self.config.fixed is not None:
            self._samples = {
                side: batch.source.new_full((1, self.layers[side]), self.config.fixed, dtype=torch.float32)
                for side in self.sides
            }
        for side, logits_nl in self._trained(step):
            rows, layers = logits_nl.shape
            uniform = keyed_uniform(
                self.seed, *batch.place, SIDES[side], np.arange(rows)[:, None], np.arange(layers)[None]
            )
            noise_nl = gates.logistic_noise(torch.from_numpy(uniform)).to(logits_nl)
            self._samples[side] = gates.sample(logits_nl, noise_nl, tau, hard=hard)

    @property
    def _samples_are_hard(self) -> bool:
        return self.config.samples == "straight-through"

    def _tau(self, step: int) -> float:
        config = self.config
        if config.tau_end is None:
            return config.tau
        return gates.annealed(step, config.tau, config.tau_end, config.tau_steps)

    def _prior(self, logits_nl: Tensor) -> Tensor | float:
        prior = self.config.prior
        return gates.aggregated_prior(logits_nl) if prior == "aggregated" else gates.beta_prior(*prior)

    def report(self) -> dict[str, Any]:
        rise = gates.ramp(self._step, self.config.anneal_from, self.config.anneal_steps)
        probability = {side: self._by_row(torch.sigmoid(logits_nl)) for side, logits_nl in self.logits.items()}
        selected = {
            side: {name: len(self._chosen(side, row)) for row, name in enumerate(self._names)} for side in self.logits
        }
        return {
            "tau": round(self._tau(self._step), 4),
            "beta": round(rise * self.config.beta, 4),
            "layers_selected": selected,
            "probability": probability,
            "samples": {side: self._by_row(z_nl) for side, z_nl in self._samples.items()},
        }

    @property
    def _names(self) -> tuple[str, ...]:
        return self.rows if len(self.rows) > 1 else ("all",)

    def _by_row(self, values_nl: Tensor) -> dict[str, list[float]]:
        rows = [[round(value, 4) for value in row] for row in values_nl.tolist()]
        return dict(zip(self._names, rows, strict=True))

    def _chosen(self, side: str, row: int) -> tuple[int, ...]:
        """The layers to keep on one side: all, if it has no gates."""
        if side not in self.logits:
            return tuple(range(self.layers[side]))
        return gates.chosen_layers(self.logits[side][row].detach(), self.targets[side])

    def hard(self, row: int) -> SubNetwork:
        """The chosen layers of a language pair, unweighted."""
        return SubNetwork(self._chosen("encoder", row), self._chosen("decoder", row))

    def soft(self, row: int, step: int) -> SubNetwork:
        """All layers, each weighted with the mean of its samples (with soft samples not the probability of being 1)."""
        tau = self._tau(step)
        full = self.menu().deepest.subnetwork
        fixed = self.config.fixed
        weights = {} if fixed is None else {side: (fixed,) * self.layers[side] for side in self.sides}
        for side, logits_nl in self.logits.items():
            mean_l = gates.mean_gate(logits_nl[row].detach().cpu(), tau, hard=self._samples_are_hard)
            weights[side] = tuple(mean_l.tolist())
        return replace(full, encoder_weights=weights.get("encoder"), decoder_weights=weights.get("decoder"))

    def menu(self) -> DepthMenu:
        return DepthMenu.of([SubNetwork.prefix(self.layers["encoder"], self.layers["decoder"])])

    def validated(self) -> DepthMenu:
        """Hard, if layers may be removed, and soft, with the current gates."""
        entries = []
        for row, pair in enumerate(self._pairs):
            hard = {"hard": self.hard(row)} if self._removes_layers else {}
            choices = {**hard, "soft": self.soft(row, self._step)}
            prefix = "" if pair is None else f"{pair}:"
            entries += [MenuEntry(prefix + name, sub, pair=pair) for name, sub in choices.items()]
        return DepthMenu(entries)

    def finish(self, tensors: dict[str, Tensor], step: int) -> Finished:
        """Turn the gates into layers to run, layer weights, or both; and cut out each pair's layers."""
        config, kind = self.model_config, self.config.finish
        hard = {pair: self.hard(row) for row, pair in enumerate(self._pairs)}
        soft = {pair: self.soft(row, step) for row, pair in enumerate(self._pairs)}
        cut_out = {}
        if self._removes_layers:
            cut_out = {pair or "": _cut_out(config, tensors, sub) for pair, sub in hard.items()}
        if self._folds:
            return Finished(config, fold(config, tensors, soft[None]), self.menu(), cut_out, self._undecided())
        if kind == "hard":
            cut_out = cut_out if len(hard) > 1 else {}  # it would be the same model
            config, tensors, hard = _without_unused(config, tensors, hard)
        offered = {"hard": [hard], "soft": [soft], "both": [hard, soft]}[kind]
        entries = [entry for subs in offered for pair, sub in subs.items() for entry in DepthMenu.of([sub], pair)]
        return Finished(config, tensors, DepthMenu(entries), cut_out, self._undecided())

    @property
    def _removes_layers(self) -> bool:
        """A post-norm layer without branches still normalises: it cannot go."""
        return self.config.fixed is None and self.model_config.norm != "post"

    @property
    def _folds(self) -> bool:
        """Whether the finished model is one with the mean gates in its weights."""
        return self.config.fixed is not None or (self.config.finish == "soft" and len(self.rows) == 1)

    def _undecided(self) -> tuple[str, ...]:
        """Notes on gates that are still undecided, so that the choice of layers means little."""
        low, high = UNDECIDED
        notes = []
        for side, logits_nl in self.logits.items():
            q_nl = torch.sigmoid(logits_nl)
            share = float(((q_nl > low) & (q_nl < high)).float().mean())
            if share > 0.5:
                notes.append(
                    f"the gates of the {side} have not settled: {share:.0%} of them are between {low:g} and {high:g}, "
                    "so the choice of layers is nearly random; train longer, or with a lower "
                    "objective.beta, a higher objective.gate_learning_rate or, with a target, a higher objective.lambda"
                )
        return tuple(notes)

    @property
    def _pairs(self) -> tuple[str | None, ...]:
        """The language pair of each row of gates; None if one row is for all."""
        return self.rows if len(self.rows) > 1 else (None,)


def _cut_out(config: ModelConfig, tensors: dict[str, Tensor], sub: SubNetwork) -> Finished:
    smaller, kept = cut(config, tensors, sub)
    return Finished(smaller, kept, DepthMenu.of([SubNetwork.prefix(len(sub.encoder), len(sub.decoder))]))


def _without_unused(
    config: ModelConfig, tensors: dict[str, Tensor], subs: dict[str | None, SubNetwork]
) -> tuple[ModelConfig, dict[str, Tensor], dict[str | None, SubNetwork]]:
    """The model without layers that no language pair runs, and the renumbered sub-networks."""
    encoder = sorted({layer for sub in subs.values() for layer in sub.encoder})
    decoder = sorted({layer for sub in subs.values() for layer in sub.decoder})
    smaller, kept = cut(config, tensors, SubNetwork(tuple(encoder), tuple(decoder)))
    moved = {
        pair: SubNetwork(tuple(map(encoder.index, sub.encoder)), tuple(map(decoder.index, sub.decoder)))
        for pair, sub in subs.items()
    }
    return smaller, kept, moved
