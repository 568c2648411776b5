"""One round's fit: signal in, a better policy out. One or more optimiser steps on the chosen completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from models.bounds import Positive
from models.errors import UserError
from models.learner.log_probs import hidden_width
from models.learner.optimiser import OptimiserSettings, take_step
from models.learner.packing import cut_into_rows
from models.learner.reduce import Normalisation, entropy_term, token_weights
from models.loop.batch import pairs_of, token_batch
from models.loop.curriculum import CurriculumSettings
from models.loop.distribution import read_policy
from models.loop.learner import Learner
from models.loop.readings import Readings
from models.loop.rollout import Scored, TokenBatch
from models.loop.round_tokens import RoundTokens
from models.loop.slots import Objective


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """How long and how hard the loop trains. Stands under `schedule:`."""

    rounds: Positive = 100
    """Rounds of the run; fewer where `completions` ends it before."""
    completions: Positive | None = None
    """The run ends with the round in which as many have been sampled; null: only `rounds` end it."""
    minibatches: Positive = 1
    """Optimiser steps of one pass over a round's completions."""
    epochs: Positive = 1
    """Passes over a round's completions."""
    normalisation: Normalisation | None = None
    """Which mean the loss of an objective over tokens is: over tokens (None means this), over completions, or by a
    constant. Objectives over completions, pairs or groups take the mean of these, and nothing else may be asked of
    them."""
    token_budget: Positive = 16384
    """Tokens of one packed row; bounds memory and does not change the result."""
    checkpoint_every: Positive = 20
    """Rounds between two checkpoints."""
    samples_every: Positive = 20
    """Rounds between two sample tables."""
    canary_tolerance: Annotated[float, Field(gt=0)] | None = None
    """Largest gap between engine and learner in nats a token; None: by precision."""
    staleness: Literal[0, 1] = 0
    """In a recipe `async`. 1: a round's completions are sampled while the learner fits the round before."""
    curriculum: CurriculumSettings = field(default_factory=CurriculumSettings)
    """Which prompts come when, and which never."""
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)

    __pydantic_config__ = {  # noqa: RUF012 - read by the recipe's validation, no field; `async` is a word of Python's
        "extra": "forbid",
        "allow_inf_nan": False,
        "alias_generator": lambda name: {"staleness": "async"}.get(name, name),
    }

    @property
    def updates(self) -> int:
        """Optimiser steps of the whole run, over which the step size decays."""
        return self.rounds * self.minibatches * self.epochs

    def spent(self, completions: int) -> bool:
        """Whether a run that has sampled so many ends."""
        return self.completions is not None and completions >= self.completions


def fit_round(
    learner: Learner,
    objective: Objective,
    chosen: Scored,
    advantage: Sequence[Tensor],
    settings: ScheduleSettings,
    longest: int,
    round_number: int = 0,
    readings: Readings | None = None,
) -> dict[str, float]:
    """Take the round's optimiser steps on `learner.policy`, in place.

    The policy is read without dropout, as its old log-probs and those of the reference are: between two dropout masks
    ratios would differ from one, and tokens be clipped, though no weight has moved.

    Args:
        learner: policy, optimiser and reference.
        objective: the loss.
        chosen: the completions that are trained on, [completions]; at least one token of each.
        advantage: of their tokens, [completions] tensors of [tokens of it].
        settings: minibatches, epochs, normalisation, budget, optimiser.
        longest: tokens that a completion may have.
        round_number: from 0.
        readings: what has been read of the round's completions already; None: nothing.

    Returns:
        Means over all tokens seen: loss, entropy, gradient norm and what the objective watches.

    Raises:
        UserError: the loss or a gradient is not finite; the weights have not moved since the last step.
    """
    learner.policy.eval()
    sequences = chosen.sequences
    readings = readings or Readings(learner, settings.token_budget)
    reference = readings.reference(chosen.rollouts)
    several = settings.minibatches * settings.epochs > 1  # else the policy of the first step is the old one
    old = readings.policy(chosen.rollouts) if several else None
    seen = RoundTokens(chosen, advantage, readings, round_number)
    marks = objective.mark(seen)
    marked = None if marks is None else seen.by_completion(marks)
    groups = chosen.groups.tolist()
    whole = objective.level in ("pair", "group")  # units whose completions must stand in one row
    normalisation = settings.normalisation or "token" if objective.level == "token" else "completion"
    watched = Watched()
    for _ in range(settings.epochs):
        for rows in minibatches(chosen, settings.minibatches):
            weights = token_weights(
                [chosen.rollouts[i].trained_tokens for i in rows],
                normalisation,
                longest,
            )
            weight_of = dict(zip(rows, weights, strict=True))
            tokens = sum(map(len, weights))
            for indices, row in cut_into_rows(
                sequences,
                settings.token_budget,
                width=hidden_width(learner.policy),
                among=rows,
                together=groups if whole else None,
                setting="schedule.token_budget",
            ):
                said = read_policy(learner, row, [chosen.rollouts[i] for i in indices], readings, objective.divergence)
                progress = round_number / settings.rounds
                log_prob, batch = token_batch(chosen, indices, advantage, said, old, reference, progress, marked)
                if objective.level == "pair":
                    batch = replace(batch, pairs=pairs_of(chosen, indices).to(log_prob.device))
                loss = _reduced(objective, log_prob, batch, [weight_of[i] for i in indices], watched)
                if bonus := objective.entropy_bonus:
                    loss = loss + entropy_term(batch.entropy, bonus, tokens)
                if not torch.isfinite(loss):
                    raise UserError(
                        f"update {learner.updates}: the loss is not finite; lower schedule.optimiser.learning_rate"
                    )
                loss.backward()  # type: ignore[no-untyped-call]
                watched.add({"entropy": said.entropy.detach()})
                watched.sums["loss"] = watched.sums.get("loss", 0.0) + float(loss.detach())
            norm = take_step(
                learner.optimiser,
                learner.policy.parameters(),
                learner.updates,
                settings.updates,
                settings.optimiser,
                "schedule.optimiser",
            )
            learner.updates += 1
            watched.steps.append(norm)
    return watched.means()


@dataclass
class Watched:
    """Sums of watched values over the tokens of all micro-batches, so that their means do not depend on the cut."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    steps: list[float] = field(default_factory=list)
    """Gradient norm of each optimiser step."""

    def add(self, values: dict[str, Tensor]) -> None:
        """Take in one value a token, [tokens] each."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value.double().sum())
            self.counts[name] = self.counts.get(name, 0) + value.numel()

    def means(self) -> dict[str, float]:
        """Mean of each value; the loss a step; the mean gradient norm."""
        steps = max(1, len(self.steps))
        means = {name: value / max(1, self.counts.get(name, steps)) for name, value in self.sums.items()}
        return {**means, "gradient_norm": sum(self.steps) / steps}


def _reduced(
    objective: Objective, log_prob: Tensor, batch: TokenBatch, weights: list[Tensor], watched: Watched
) -> Tensor:
    if objective.level == "token":
        losses, watch = objective(log_prob, batch)
        weight = torch.cat(weights).to(losses)
    else:
        sums = batch.by_pair if objective.level == "pair" else batch.sum_by_completion
        losses, watch = objective(log_prob if objective.reads_tokens else sums(log_prob), batch)
        weight = torch.stack([row.sum() for row in weights]).to(losses)
        if objective.level == "pair":
            assert batch.pairs is not None
            weight = weight[batch.pairs].sum(-1)
        elif objective.level == "group":
            weight = batch.sum_by_group(weight)
    watched.add(watch)
    return (weight * losses).sum()


def minibatches(chosen: Scored, count: int) -> Iterator[list[int]]:
    """Cut the completions into `count` parts by whole groups, [completions of a part] indices each."""
    groups = chosen.groups.tolist()
    number = max(groups) + 1
    for part in range(min(count, number)):
        yield [index for index, group in enumerate(groups) if group * min(count, number) // number == part]
