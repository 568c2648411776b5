"""Rewards under thresholds, weighted by Lagrange multipliers that are learned with the policy (paper 85, 2310.04373).

    max KL-regularised objective   subject to   E[r_i] = threshold_i   (or at least threshold_i)

    value = sum_i mu_i r_i,   mu_i = tanh(u_i) in (-1, 1)   (equal)   or sigmoid(u_i) in (0, 1)   (at_least)
    u_i  <- u_i + rate * (threshold_i - mean of r_i over the round's samples),   clamped to +-3

A reward model is a proxy that is useful only up to a point. A fixed weight optimises it without limit. A multiplier
decreases as its reward reaches the threshold, and with `equal` becomes negative beyond it. Value, objective and KL are
those of the other slots. The paper has a critic for each reward; here the round's mean is the estimate of E[r_i].

With `every` the thresholds are searched in the same run. Each trial keeps them for that many rounds. Its score is the
mean of the reward `by`, the evaluation metric, over the second half of these, and Nelder-Mead chooses the next
thresholds. After `trials` of them the best thresholds are kept. Every checkpoint contains the multipliers and the
search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from models.base.bounds import Count, Number, Positive
from models.learner.optimiser import OptimiserSettings
from models.method.learner import Companion
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Blend
from models.method.rollout import Rollout, sampled_places
from models.parts.shared.nelder_mead import NelderMead, begin_search

FARTHEST = 3.0
"""Largest |u|, the state of a multiplier, so that one whose reward cannot reach its threshold can recover quickly."""


class Multipliers(nn.Module):
    """State of multipliers and search, as parameters for the checkpoints; the optimiser updates only `raw`."""

    def __init__(self, raw: Tensor, thresholds: Tensor, reach: float) -> None:
        """Initialise u, [K], and the thresholds, [K], with simplex corners `reach` apart for the search."""
        super().__init__()
        self.raw = nn.Parameter(raw)
        self.thresholds = nn.Parameter(thresholds)
        self.search = nn.Parameter(begin_search(thresholds, reach).written())
        self.trial = nn.Parameter(torch.zeros(3, dtype=thresholds.dtype))
        """Rounds of the current trial, sum of the metric over its second half, number of finished trials."""

    @torch.no_grad()
    def note(self, metric: float, every: int, trials: int) -> None:
        """Record `metric` of one round of the trial; after `every` rounds, set the next thresholds.

        After `trials` trials the thresholds do not change any more.
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
    """Weighted sum of other rewards, each kept at its threshold; they come earlier in the recipe, with weight 0."""

    companion = "multipliers"
    of: tuple[str, ...] = ()
    """Labels of the constrained rewards."""
    thresholds: tuple[Number, ...] = ()
    """Threshold of each, in its own unit; with a search, the initial thresholds."""
    form: Literal["equal", "at_least"] = "equal"
    """equal: a reward beyond its threshold gets a negative weight; at_least: its weight only decreases towards zero."""
    begin: Annotated[float, Field(gt=-1, lt=1)] = 0.5
    """Initial value of every multiplier; above 0 for at_least."""
    rate: NonNegativeFloat = 0.1
    """Change of u per round for a mean that is 1 away from its threshold; 0: the multipliers stay at their initial
    value, which gives a weighted sum."""
    by: str = "exact_answer"
    """Label of the evaluation metric of the threshold search; it must come before this reward."""
    every: Count = 0
    """Rounds of one trial of thresholds; 0: no search."""
    reach: PositiveFloat = 0.1
    """Change of one threshold at a time in the initial trials of the search."""
    trials: Positive = 12
    """Number of trials after which the best thresholds are kept."""

    def __post_init__(self) -> None:
        """Reject inconsistent settings."""
        super().__post_init__()
        if len(self.of) != len(self.thresholds):
            raise ValueError(f"of names {len(self.of)} rewards, thresholds has {len(self.thresholds)} numbers")
        if self.form == "at_least" and self.begin <= 0:
            raise ValueError(f"begin is {self.begin}, but a multiplier of form at_least lies between 0 and 1")

    @property
    def made_of(self) -> tuple[str, ...]:
        """Labels of the constrained rewards."""
        return self.of

    def accompany(self, policy: nn.Module) -> Companion:
        """Create the initial multipliers; plain gradient ascent updates them."""
        first = math.atanh(self.begin) if self.form == "equal" else math.log(self.begin / (1.0 - self.begin))
        thresholds = torch.tensor(self.thresholds, dtype=torch.float64)
        model = Multipliers(torch.full_like(thresholds, first), thresholds, self.reach)
        return Companion(model, torch.optim.SGD([model.raw], lr=self.rate))

    def learn(
        self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]
    ) -> dict[str, float]:
        """Update multipliers and thresholds by the round's samples, and return metrics.

        The metrics are the multipliers, the thresholds, and each reward's distance from its threshold.
        """
        companion = resources.learner.companions[self.companion]
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

    def blend(self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted sum of the constrained rewards, [completions]."""
        model = resources.learner.companions[self.companion].model
        weights = self._multipliers(model).float().cpu()
        return torch.stack([components[label] for label in self.of], -1).float() @ weights

    def _multipliers(self, model: nn.Module) -> Tensor:
        assert isinstance(model, Multipliers)
        raw = model.raw.detach()
        return raw.tanh() if self.form == "equal" else raw.sigmoid()
