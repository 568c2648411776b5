"""What travels through the loop, as frozen data: problems, rollouts, scored rollouts, token batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from models.learner.packing import Sequences


@dataclass(frozen=True)
class Problem:
    """A prompt and what is known of its answer."""

    id: str
    prompt: str
    answer: str = ""
    level: int = 0
    tokens: tuple[int, ...] = ()
    """The encoded prompt, [tokens]."""


@dataclass(frozen=True)
class Rollout:
    """One completion of one problem."""

    problem: Problem
    group: int
    """Completions with the same number answer the same prompt in the same round."""
    completion: tuple[int, ...]
    """Token ids, the end token included where it was reached, [tokens]."""
    behaviour_log_probs: tuple[float, ...]
    """Log-prob of each token under the policy that sampled it, [tokens], in nats."""
    text: str
    finished: bool
    """Whether the completion ended by itself and was not cut."""
    reference_log_probs: tuple[float, ...] | None = None
    """Log-prob of each token under a reference that stays as it is, where it is known already, [tokens], in nats."""


@dataclass(frozen=True)
class Scored:
    """Rollouts with what each is worth."""

    rollouts: Sequence[Rollout]
    rewards: Tensor
    """Weighted sum of the components, [completions], float32."""
    components: dict[str, Tensor] = field(default_factory=dict)
    """Every component of the reward before weighting, [completions] each."""

    @property
    def groups(self) -> Tensor:
        """Group of each completion, numbered from 0 in order of appearance, [completions]."""
        numbers: dict[int, int] = {}
        return torch.tensor(
            [numbers.setdefault(rollout.group, len(numbers)) for rollout in self.rollouts], dtype=torch.long
        )

    @property
    def lengths(self) -> Tensor:
        """Tokens of each completion, [completions]."""
        return torch.tensor([len(rollout.completion) for rollout in self.rollouts], dtype=torch.long)

    @property
    def sequences(self) -> Sequences:
        """Prompts and completions as the learner reads them, [completions]."""
        return Sequences([r.problem.tokens for r in self.rollouts], [r.completion for r in self.rollouts])

    def take(self, indices: Tensor) -> Scored:
        """The completions at `indices`, in that order."""
        return replace(
            self,
            rollouts=[self.rollouts[index] for index in indices.tolist()],
            rewards=self.rewards[indices],
            components={name: values[indices] for name, values in self.components.items()},
        )


def group_mean(values: Tensor, groups: Tensor) -> Tensor:
    """Mean of `values` [completions] over each group, given back at every completion, [completions]."""
    count = int(groups.max()) + 1 if groups.numel() else 0
    total = torch.zeros(count, dtype=values.dtype).index_add_(0, groups, values)
    size = torch.zeros(count, dtype=values.dtype).index_add_(0, groups, torch.ones_like(values))
    return (total / size)[groups]


@dataclass(frozen=True)
class TokenBatch:
    """What an objective sees beside the current log-probs: one entry a completion token, completions in a row."""

    advantage: Tensor
    """How much better than expected, [tokens]."""
    behaviour: Tensor
    """Log-probs under the policy that sampled, as the engine said, [tokens], nats."""
    old: Tensor
    """Log-probs under the learner's policy when the round began, [tokens], nats, no gradient."""
    reference: Tensor | None
    """Log-probs under the reference, [tokens], nats; None where the recipe has none."""
    completion: Tensor
    """Which completion of this batch a token belongs to, [tokens], from 0."""
    pairs: Tensor | None = None
    """Better and worse completion of each pair, [pairs, 2]; None unless the objective is one over pairs."""

    @property
    def completions(self) -> int:
        """How many completions the batch holds."""
        return int(self.completion.max()) + 1 if self.completion.numel() else 0

    def sum_by_completion(self, values: Tensor) -> Tensor:
        """Sums of token values, [tokens] -> [completions]; gradient flows."""
        return torch.zeros(self.completions, dtype=values.dtype, device=values.device).index_add(
            0, self.completion, values
        )

    def by_pair(self, values: Tensor) -> Tensor:
        """Sums of token values over the better and the worse completion, [tokens] -> [pairs, 2]; gradient flows."""
        assert self.pairs is not None, "only objectives over pairs see pairs"
        return self.sum_by_completion(values)[self.pairs]
