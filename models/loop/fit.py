"""One round's fit: signal in, a better policy out. One or more optimiser steps on the chosen completions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from models.errors import UserError
from models.learner.fused_log_probs import Distribution
from models.learner.log_probs import completion_log_probs, hidden_width
from models.learner.optimiser import OptimiserSettings, take_step
from models.learner.packing import Sequences, pack
from models.learner.reduce import Normalisation, token_weights
from models.loop.rollout import Rollout, Scored, TokenBatch
from models.loop.slots import Objective


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """How long and how hard the loop trains. Stands under `schedule:`."""

    rounds: int = 100
    minibatches: int = 1
    """Optimiser steps of one pass over a round's completions."""
    epochs: int = 1
    """Passes over a round's completions."""
    normalisation: Normalisation = "token"
    """Which mean the loss is: over tokens, over completions, or by a constant."""
    token_budget: int = 16384
    """Tokens of one packed row; bounds memory and does not change the result."""
    checkpoint_every: int = 20
    """Rounds between two checkpoints."""
    samples_every: int = 20
    """Rounds between two sample tables."""
    canary_tolerance: float | None = None
    """Largest gap between engine and learner in nats a token; None: by precision."""
    staleness: Literal[0, 1] = 0
    """In a recipe `async`. 1: a round's completions are sampled while the learner fits the round before."""
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)

    __pydantic_config__ = {  # noqa: RUF012 - read by the recipe's validation, no field; `async` is a word of Python's
        "extra": "forbid",
        "alias_generator": lambda name: {"staleness": "async"}.get(name, name),
    }

    @property
    def updates(self) -> int:
        """Optimiser steps of the whole run, over which the step size decays."""
        return self.rounds * self.minibatches * self.epochs


@dataclass
class Learner:
    """What moves while the loop runs: the policy, its optimiser, and the reference it is held against."""

    policy: nn.Module
    optimiser: torch.optim.Optimizer
    reference: nn.Module | None
    """A copy of the policy; None where there is no reference or where it is the policy without its adapter."""
    adapter_off: Callable[[], object] | None
    """For LoRA: context in which the policy is its own reference."""
    autocast: torch.dtype | None
    distribution: Distribution
    """Temperature, top-p and top-k of the completions; log-probs mean the same distribution."""
    updates: int = 0
    """Optimiser steps taken so far."""


def fit_round(
    learner: Learner, objective: Objective, chosen: Scored, advantage: Tensor, settings: ScheduleSettings, longest: int
) -> dict[str, float]:
    """Take the round's optimiser steps on `learner.policy`, in place.

    Args:
        learner: policy, optimiser and reference.
        objective: the loss.
        chosen: the completions that teach, [completions].
        advantage: of each completion, [completions].
        settings: minibatches, epochs, normalisation, budget, optimiser.
        longest: tokens that a completion may have.

    Returns:
        Means over all tokens seen: loss, entropy, gradient norm and what the objective watches.

    Raises:
        UserError: the loss or a gradient is not finite; the weights have not moved since the last step.
    """
    sequences = Sequences([r.problem.tokens for r in chosen.rollouts], [r.completion for r in chosen.rollouts])
    several = settings.minibatches * settings.epochs > 1
    old = all_log_probs(learner, sequences, settings.token_budget) if several else None
    groups = chosen.groups.tolist()
    watched = Watched()
    for _ in range(settings.epochs):
        for rows in minibatches(chosen, settings.minibatches):
            weights = token_weights(
                [len(sequences.completions[i]) for i in rows],
                settings.normalisation if objective.level != "pair" else "completion",
                longest,
            )
            weight_of = dict(zip(rows, weights, strict=True))
            cuts = pack(
                sequences.take(rows),
                settings.token_budget,
                width=hidden_width(learner.policy),
                together=[groups[i] for i in rows] if objective.level == "pair" else None,
                setting="schedule.token_budget",
            )
            for cut in cuts:
                indices = [rows[i] for i in cut]
                log_prob, entropy = _log_probs(learner, sequences.take(indices))
                batch = _token_batch(learner, chosen.take(torch.tensor(indices)), advantage[indices], log_prob)
                if old is not None:
                    batch = replace(batch, old=torch.cat([old[i] for i in indices]))
                if objective.level == "pair":
                    batch = replace(batch, pairs=pairs_of(chosen, indices).to(log_prob.device))
                loss = _reduced(objective, log_prob, batch, [weight_of[i] for i in indices], watched)
                if not torch.isfinite(loss):
                    raise UserError(
                        f"update {learner.updates}: the loss is not finite; lower schedule.optimiser.learning_rate"
                    )
                loss.backward()  # type: ignore[no-untyped-call]
                watched.add({"entropy": entropy.detach()})
                watched.sums["loss"] = watched.sums.get("loss", 0.0) + float(loss.detach())
            norm = take_step(
                learner.optimiser, learner.policy.parameters(), learner.updates, settings.updates, settings.optimiser
            )
            learner.updates += 1
            watched.steps.append(norm)
    return watched.means()


def _token_batch(learner: Learner, chosen: Scored, advantage: Tensor, log_prob: Tensor) -> TokenBatch:
    """What the objective sees of `chosen` beside `log_prob`, all on its device."""
    place = log_prob.device
    lengths = chosen.lengths
    behaviour = [value for rollout in chosen.rollouts for value in rollout.behaviour_log_probs]
    return TokenBatch(
        advantage=torch.repeat_interleave(advantage, lengths).to(log_prob),
        behaviour=torch.tensor(behaviour, dtype=log_prob.dtype, device=place),
        old=log_prob.detach(),
        reference=reference_log_probs(learner, chosen.rollouts, place),
        completion=torch.repeat_interleave(torch.arange(len(lengths)), lengths).to(place),
    )


def pairs_of(chosen: Scored, indices: Sequence[int]) -> Tensor:
    """Places in `indices` of the better and the worse completion of each group, [pairs, 2], int64.

    Raises:
        UserError: a group does not hold exactly two completions of different worth.
    """
    groups = chosen.groups
    members: dict[int, list[int]] = {}
    for place, index in enumerate(indices):
        members.setdefault(int(groups[index]), []).append(place)
    pairs = []
    for held in members.values():
        worth = [float(chosen.rewards[indices[place]]) for place in held]
        if len(held) != 2 or worth[0] == worth[1]:
            problem = chosen.rollouts[indices[held[0]]].problem.id
            raise UserError(
                f"problem {problem}: an objective over pairs needs two completions of "
                f"different reward for each prompt, there are {len(held)} with rewards {worth}; select them first"
            )
        pairs.append(held if worth[0] > worth[1] else held[::-1])
    return torch.tensor(pairs, dtype=torch.long)


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
        means = {name: value / self.counts.get(name, steps) for name, value in self.sums.items()}
        return {**means, "gradient_norm": sum(self.steps) / steps}


def _reduced(
    objective: Objective, log_prob: Tensor, batch: TokenBatch, weights: list[Tensor], watched: Watched
) -> Tensor:
    if objective.level == "pair":
        losses, watch = objective(batch.by_pair(log_prob), batch)
        assert batch.pairs is not None
        weight = torch.stack([row.sum() for row in weights]).to(losses)[batch.pairs].sum(-1)
    elif objective.level == "completion":
        losses, watch = objective(batch.sum_by_completion(log_prob), batch)
        weight = torch.stack([row.sum() for row in weights]).to(losses)
    else:
        losses, watch = objective(log_prob, batch)
        weight = torch.cat(weights).to(losses)
    watched.add(watch)
    return (weight * losses).sum()


def _log_probs(learner: Learner, sequences: Sequences) -> tuple[Tensor, Tensor]:
    return completion_log_probs(learner.policy, sequences, distribution=learner.distribution, autocast=learner.autocast)


def minibatches(chosen: Scored, count: int) -> Iterator[list[int]]:
    """Cut the completions into `count` parts by whole groups, [completions of a part] indices each."""
    groups = chosen.groups.tolist()
    number = max(groups) + 1
    for part in range(min(count, number)):
        yield [index for index, group in enumerate(groups) if group * min(count, number) // number == part]


@torch.no_grad()
def all_log_probs(learner: Learner, sequences: Sequences, token_budget: int) -> list[Tensor]:
    """Log-probs of every completion under the policy as it stands, [completions] tensors of [tokens of it]."""
    found: dict[int, Tensor] = {}
    for cut in pack(sequences, token_budget, width=hidden_width(learner.policy), setting="schedule.token_budget"):
        log_prob, _ = _log_probs(learner, sequences.take(cut))
        rows = log_prob.split([len(sequences.completions[i]) for i in cut])
        found.update(zip(cut, rows, strict=True))
    return [found[index] for index in range(len(sequences))]


@torch.no_grad()
def reference_log_probs(learner: Learner, rollouts: Sequence[Rollout], place: torch.device) -> Tensor | None:
    """Log-probs of the same tokens under the reference, [tokens], nats; None where the recipe has none.

    Rollouts that carry them (offline methods, see `models.learner.reference_cache`) are not read again.
    """
    if all(rollout.reference_log_probs is not None for rollout in rollouts):
        return torch.tensor([value for r in rollouts for value in r.reference_log_probs or ()], device=place)
    sequences = Sequences([r.problem.tokens for r in rollouts], [r.completion for r in rollouts])
    if learner.reference is not None:
        return completion_log_probs(
            learner.reference, sequences, distribution=learner.distribution, autocast=learner.autocast
        )[0]
    if learner.adapter_off is not None:
        with _entered(learner.adapter_off):
            return _log_probs(learner, sequences)[0]
    return None


@contextmanager
def _entered(context: Callable[[], object]) -> Iterator[None]:
    with context():  # type: ignore[attr-defined]
        yield
