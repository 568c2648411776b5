"""Rewards under thresholds, weighted by Lagrange multipliers that are learned beside the policy (paper 85, 2310.04373).

    max KL-regularised objective   subject to   E[r_i] = threshold_i   (or at least threshold_i)

    value = sum_i mu_i r_i,   mu_i = tanh(u_i) in (-1, 1)   (equal)   or sigmoid(u_i) in (0, 1)   (at_least)
    u_i  <- u_i + rate * (threshold_i - mean of r_i over the round's samples),   held within +-3

A reward model is a proxy that is worth pursuing up to a point. A fixed weight pursues it for ever; a multiplier fades
as its reward comes to the threshold, and with `equal` pushes back from beyond it. Value, objective and KL are as the
other slots say; the paper has a critic for each reward, here the round's mean is the estimate of E[r_i].

With `every` the thresholds are searched for in the same run: each trial holds them for so many rounds, its worth is the
mean of the reward `by`, the evaluation metric, over the second half of these, and Nelder-Mead chooses the next. After
`trials` of them the best thresholds stay. Multipliers and search lie in every checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from models.bounds import Count, Number, Positive
from models.formulas.nelder_mead import NelderMead, begin_search
from models.learner.optimiser import OptimiserSettings
from models.loop.learner import Companion
from models.loop.reward_forms import Blend
from models.loop.rollout import Rollout, sampled_places
from models.loop.world import World
from models.parts import part

FARTHEST = 3.0
"""Largest |u|: a reward that cannot come to its threshold must not take as long to be let go of."""


class Multipliers(nn.Module):
    """What moves: all of it parameters, so that a checkpoint holds it, of which the optimiser moves `raw` alone."""

    def __init__(self, raw: Tensor, thresholds: Tensor, reach: float) -> None:
        """Begin with u, [K], at thresholds, [K], with corners `reach` apart for the search."""
        super().__init__()
        self.raw = nn.Parameter(raw)
        self.thresholds = nn.Parameter(thresholds)
        self.search = nn.Parameter(begin_search(thresholds, reach).written())
        self.trial = nn.Parameter(torch.zeros(3, dtype=thresholds.dtype))
        """Rounds of the trial so far, sum of the metric over its second half, trials that are done."""

    @torch.no_grad()
    def note(self, metric: float, every: int, trials: int) -> None:
        """One round more of the trial was worth `metric`; after `every` of them the thresholds are others.

        Thresholds stay as they are for good after so many `trials`.
        """
        if not every or self.trial[2] >= trials:
            return
        self.trial[0] += 1
        if self.trial[0] > every // 2:
            self.trial[1] += metric
        if self.trial[0] < every:
            return
        search = NelderMead.read(self.search, len(self.raw)).after(float(self.trial[1]) / (every - every // 2))
        self.search.copy_(search.written())
        self.trial.copy_(self.trial.new_tensor([0.0, 0.0, float(self.trial[2]) + 1]))
        self.thresholds.copy_(search.best if self.trial[2] >= trials else search.point)


@part("lagrangian")
class Lagrangian(Blend):
    """Other rewards, each held at its threshold; these stand before it with weight 0."""

    companion = "multipliers"
    of: tuple[str, ...] = ()
    """Labels of the rewards that are held."""
    thresholds: tuple[Number, ...] = ()
    """Where each is held, in its own unit: where the search begins, where there is one."""
    form: Literal["equal", "at_least"] = "equal"
    """equal: a reward beyond its threshold is pushed back; at_least: it only counts for less and less."""
    begin: Annotated[float, Field(gt=-1, lt=1)] = 0.5
    """Every multiplier at first; above 0 for at_least."""
    rate: NonNegativeFloat = 0.1
    """How far u moves in a round for a mean that is 1 away from its threshold; 0: the multipliers stay as they begin,
    which is the weighted sum."""
    by: str = "exact_answer"
    """Label of the evaluation metric that the thresholds are searched by; it stands before this one."""
    every: Count = 0
    """Rounds of one trial of thresholds; 0: they are not searched for."""
    reach: PositiveFloat = 0.1
    """How far apart the thresholds of the first trials lie."""
    trials: Positive = 12
    """Trials after which the best thresholds stay."""

    def __post_init__(self) -> None:
        """Refuse what says nothing."""
        super().__post_init__()
        if len(self.of) != len(self.thresholds):
            raise ValueError(f"of names {len(self.of)} rewards, thresholds has {len(self.thresholds)} numbers")
        if self.form == "at_least" and self.begin <= 0:
            raise ValueError(f"begin is {self.begin}, but a multiplier of form at_least lies between 0 and 1")

    @property
    def made_of(self) -> tuple[str, ...]:
        """The rewards that are held."""
        return self.of

    def accompany(self, policy: nn.Module) -> Companion:
        """Multipliers as they begin; plain ascent moves them."""
        first = math.atanh(self.begin) if self.form == "equal" else math.log(self.begin / (1.0 - self.begin))
        thresholds = torch.tensor(self.thresholds, dtype=torch.float64)
        model = Multipliers(torch.full_like(thresholds, first), thresholds, self.reach)
        return Companion(model, torch.optim.SGD([model.raw], lr=self.rate))

    def learn(self, world: World, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> dict[str, float]:
        """Move multipliers and thresholds by the round's samples. Returns both, and how far each reward is away."""
        companion = world.learner.companions[self.companion]
        model = companion.model
        assert isinstance(model, Multipliers)
        places = sampled_places(rollouts) or list(range(len(rollouts)))
        means = [float(components[label][places].double().mean()) for label in self.of]
        beyond = model.raw.new_tensor(means) - model.thresholds.detach()
        watched = {
            f"{label}_threshold": float(value) for label, value in zip(self.of, model.thresholds.detach(), strict=True)
        }
        watched |= {f"{label}_beyond": float(value) for label, value in zip(self.of, beyond, strict=True)}
        model.raw.grad = beyond
        settings = OptimiserSettings(learning_rate=self.rate, warmup_steps=0)
        companion.step(settings, f"rewards.{self.label}")
        with torch.no_grad():
            model.raw.clamp_(-FARTHEST, FARTHEST)
        model.note(float(components[self.by][places].double().mean()), self.every, self.trials)
        return watched | dict(zip(self.of, self._multipliers(model).tolist(), strict=True))

    def blend(self, world: World, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> Tensor:
        """Weighted sum of the rewards that are held, [completions]."""
        model = world.learner.companions[self.companion].model
        weights = self._multipliers(model).float().cpu()
        return torch.stack([components[label] for label in self.of], -1).float() @ weights

    def _multipliers(self, model: nn.Module) -> Tensor:
        assert isinstance(model, Multipliers)
        raw = model.raw.detach()
        return raw.tanh() if self.form == "equal" else raw.sigmoid()
