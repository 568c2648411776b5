"""Frozen data that the parts of the loop exchange: problems, rollouts, scored rollouts, token batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from models.base.errors import UserError
from models.engines.engine import Versions
from models.learner.packing import Sequences
from models.learner.upload import to_device
from models.method.turn import Cut, Turn

Origin = Literal[
    "policy", "greedy", "reference", "teacher", "guide", "explained", "refined", "relabelled", "demonstration",
    "chosen", "rejected",
]  # fmt: skip
"""Source of a completion.

policy, greedy, reference: an engine drew it, from the policy, at temperature zero, or from the reference
teacher: the frozen model that the policy is distilled from wrote it
guide: the policy continued the beginning of an answer that it did not write
explained: the policy wrote it knowing the answer
refined: the policy wrote it knowing an earlier answer and the feedback on it
relabelled: the policy wrote it for another prompt
demonstration, chosen, rejected: it is part of the data
"""

Reads = Literal["problems", "demonstrations", "preferences"]
"""Source of the rollouts' prompts: problems with an answer, or prompts with the answers in the data."""

Extra = Literal["greedy", "opponents", "choices", "privileged", "values", "step_values"]
"""Data that rollouts may carry with the trained completions, for parts that need them.

greedy: the policy's likeliest completion of each prompt
opponents: completions used only for comparison, which the policy is not trained on
choices: at each token, whether the policy wrote it
privileged: the context that a judge reads instead of the prompt, such as the prompt and its answer
values: the value that the source assigns to a completion
step_values: the value that the source expects from the beginning of each step of a completion
"""


@dataclass(frozen=True, eq=False)
class KnownAnswer:
    """An answer to a prompt that is part of the data. Equal only to itself, as a rollout is."""

    origin: Origin
    completion: tuple[int, ...]
    """Token ids, the end token included, [tokens]."""
    text: str
    flaw: str = ""
    """Flaw of the answer according to the data; empty if there is none."""
    reference_log_probs: Tensor | None = None
    """Log-prob of each token under a reference that never moves, if it is known, [tokens], in nats, on the CPU."""


@dataclass(frozen=True)
class Problem:
    """A prompt with its expected answer and its tests."""

    id: str
    prompt: str
    answer: str = ""
    level: int = 0
    tokens: tuple[int, ...] = ()
    """The encoded prompt, [tokens]."""
    known: tuple[KnownAnswer, ...] = ()
    """Answers in the data, if the recipe's source reads them."""
    tests: str = ""
    """Code that decides whether an answer, which is code too, is right; empty where there is none."""
    entry_point: str = ""
    """Name of the function that the tests call."""
    system: str = ""
    """System message that the prompt begins with, followed by a blank line; empty if there is none."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """One completion of one problem. Equal only to itself: an easy prompt has many equal completions, and each counts.

    Its log-probs are on the CPU in memory of their own, so that keeping one does not keep others.
    """

    problem: Problem
    group: int
    """Completions with the same number answer the same prompt in the same round."""
    completion: tuple[int, ...]
    """Token ids, the end token included if it was reached, [tokens]."""
    behaviour_log_probs: Tensor | None
    """Log-prob of each token under the policy that sampled it, [tokens], in nats; None if unknown."""
    text: str
    finished: bool
    """Whether the completion ended by itself and was not cut."""
    reference_log_probs: Tensor | None = None
    """Log-prob of each token under a reference that never moves, if it is known already, [tokens], in nats."""
    origin: Origin = "policy"
    flaw: str = ""
    """Flaw of the answer according to the data; empty if there is none."""
    trained: tuple[bool, ...] | None = None
    """Which tokens the policy learns from, [tokens]; None: all of them."""
    begun: int = 0
    """Tokens of the answer that the policy did not write; they are at the prompt's end."""
    privileged: tuple[int, ...] | None = None
    """Context that a judge of the tokens reads instead of the prompt, such as the prompt and its answer, [tokens]."""
    versions: Versions = ()
    """Versions of the weights that drew the tokens, if weights changed while it was written: first token of each span,
    and the number of rounds that made its weights. Empty: the weights that its round's completions are sampled from."""
    turns: tuple[Turn, ...] = ()
    """The policy's turns, if the completion is an episode. Tokens between turns are the environment's, which are
    neither trained on nor part of `text`. Empty: one turn, all of it the policy's."""
    cut: Cut = ""
    """Why the episode did not end by itself; empty if it did."""
    solved: bool | None = None
    """Whether the environment reports that the goal was reached; None: not reported."""
    history: int = 0
    """Tokens at the prompt's end that are earlier turns of the episode; other sequences may contain them too, and the
    learner reads them once."""
    parts: tuple[Rollout, ...] = ()
    """Sequences that models read the episode as, if no single one contains it: their completions, concatenated, are the
    completion. Empty: the rollout is one sequence. Rewards, selection, advantage and loss see the episode."""
    value: float | None = None
    """Value that the source assigns to the completion; None: none."""
    step_values: tuple[float | None, ...] = ()
    """Value that the source expects before each token, [tokens]; None if it assigns none."""
    feedback: str = ""
    """Feedback on the answer that this one refines; empty if it refines none, or there was no feedback."""

    @property
    def written(self) -> tuple[bool, ...]:
        """Whether the policy wrote each token, trained on or not, [tokens]."""
        if not self.turns:
            return (True,) * len(self.completion)
        flags = [False] * len(self.completion)
        for turn in self.turns:
            flags[turn.start : turn.stop] = [True] * (turn.stop - turn.start)
        return tuple(flags)

    @property
    def said(self) -> tuple[int, ...]:
        """Ids of the tokens that the policy wrote, trained on or not, [written]; rewards read these."""
        if not self.turns:
            return self.completion
        return tuple(id for turn in self.turns for id in self.completion[turn.start : turn.stop])

    @property
    def written_tokens(self) -> int:
        """Number of tokens that the policy wrote."""
        return sum(turn.stop - turn.start for turn in self.turns) if self.turns else len(self.completion)

    @property
    def trained_tokens(self) -> int:
        """Number of tokens that the policy learns from."""
        return len(self.completion) if self.trained is None else sum(self.trained)


def turn_numbers(rollout: Rollout) -> Tensor:
    """Return the turn of each token, from 0, [tokens], int64; the environment's text counts to the turn before."""
    begins = torch.zeros(len(rollout.completion), dtype=torch.long)
    for turn in rollout.turns[1:]:
        begins[turn.start] = 1
    return begins.cumsum(0)


def written_places(rollouts: Sequence[Rollout]) -> Tensor | None:
    """Return places of the tokens that the policy wrote, completions in a row, [written], int64; None: it wrote all."""
    if not any(rollout.turns for rollout in rollouts):
        return None
    return _places([rollout.written for rollout in rollouts])


def trained_places(rollouts: Sequence[Rollout]) -> Tensor | None:
    """Return places of the tokens the policy learns from, completions in a row, [trained], int64; None: from all."""
    if all(rollout.trained is None for rollout in rollouts):
        return None
    return _places([rollout.trained or (True,) * len(rollout.completion) for rollout in rollouts])


def sampled_places(rollouts: Sequence[Rollout]) -> list[int]:
    """Return indices of the completions that the policy has sampled, whether it began them or not. Greedy baselines,
    opponents, explanations and answers of the data are left out."""
    return [index for index, rollout in enumerate(rollouts) if rollout.origin in ("policy", "guide")]


def _places(flags: Sequence[Sequence[bool]]) -> Tensor:
    return torch.tensor([flag for row in flags for flag in row]).nonzero().squeeze(1)


def parts_of(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Return the sequences that models read, [sequences]: an episode's own, if it has several, in their order."""
    return [part for rollout in rollouts for part in rollout.parts or (rollout,)]


def sequences_of(rollouts: Sequence[Rollout]) -> Sequences:
    """Return prompts and completions as the learner reads them, [sequences] as in `parts_of`."""
    parts = parts_of(rollouts)
    return Sequences(
        [part.problem.tokens for part in parts],
        [part.completion for part in parts],
        nested=len(parts) > len(rollouts) or any(part.history for part in parts),
    )


def said_sequences(rollouts: Sequence[Rollout]) -> Sequences:
    """Return prompts and the policy's own tokens, without the environment's, as rewards read them, [completions]."""
    return Sequences([rollout.problem.tokens for rollout in rollouts], [rollout.said for rollout in rollouts])


def privileged_sequences(rollouts: Sequence[Rollout]) -> Sequences:
    """Return prompts and completions as a judge of the tokens reads them, [sequences] as in `parts_of`."""
    parts = parts_of(rollouts)
    prompts = [part.problem.tokens if part.privileged is None else part.privileged for part in parts]
    return Sequences(prompts, [part.completion for part in parts])


def groups_of(rollouts: Sequence[Rollout]) -> Tensor:
    """Return the group of each completion, numbered from 0 in order of appearance, [completions], int64."""
    numbers: dict[int, int] = {}
    return torch.tensor([numbers.setdefault(rollout.group, len(numbers)) for rollout in rollouts], dtype=torch.long)


@dataclass(frozen=True)
class Scored:
    """Rollouts with the reward of each."""

    rollouts: Sequence[Rollout]
    rewards: Tensor
    """Weighted sum of the components, [completions], float32."""
    components: Mapping[str, Tensor]
    """Every component of the reward before weighting, [completions] each; one given by token is summed."""
    watched: Mapping[str, float]
    """Metrics that the rewards' companions logged while they learned."""
    token_rewards: Sequence[Tensor] | None = None
    """Weighted sum of the components that are given token by token, [completions] tensors of [tokens of it]; None if
    there are none. Part of `rewards` too."""
    reasons: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Reasons for the rewards of the completions, by the label of a reward that gives reasons, [completions] each."""

    @property
    def groups(self) -> Tensor:
        """Group of each completion, numbered from 0 in order of appearance, [completions]."""
        return groups_of(self.rollouts)

    @property
    def lengths(self) -> Tensor:
        """Tokens of each completion, [completions]."""
        return torch.tensor([len(rollout.completion) for rollout in self.rollouts], dtype=torch.long)

    @property
    def trained(self) -> Tensor:
        """Indices of the completions that the policy learns from, [kept]."""
        return torch.tensor([i for i, rollout in enumerate(self.rollouts) if rollout.trained_tokens], dtype=torch.long)

    @property
    def sampled(self) -> list[int]:
        """Indices of the completions that the policy has sampled; see `sampled_places`."""
        return sampled_places(self.rollouts)

    @property
    def sequences(self) -> Sequences:
        """Prompts and completions as the learner reads them, [sequences] as in `parts_of`."""
        return sequences_of(self.rollouts)

    def take(self, indices: Tensor) -> Scored:
        """Return the completions at `indices`, in that order."""
        rows = self.token_rewards
        return replace(
            self,
            rollouts=[self.rollouts[index] for index in indices.tolist()],
            rewards=self.rewards[indices],
            components={name: values[indices] for name, values in self.components.items()},
            token_rewards=None if rows is None else [rows[index] for index in indices.tolist()],
            reasons={name: [said[index] for index in indices.tolist()] for name, said in self.reasons.items()},
        )

    def component(self, by: str, setting: str = "select.by") -> Tensor:
        """Return the reward named `by`, [completions]: the weighted sum if `by` is total, else that component.

        Raises:
            UserError: no reward is called `by`; the message names `setting`, the key of the recipe that holds the name.
        """
        return _worth(by, self.rewards, self.components, setting)

    def rewards_by_token(self) -> list[Tensor]:
        """Return rewards token by token, [completions] tensors of [tokens of it]: the reward of a whole completion is
        placed at the last token that the policy wrote."""
        placed = []
        for index, rollout in enumerate(self.rollouts):
            values = torch.zeros(len(rollout.completion), dtype=self.rewards.dtype)
            if self.token_rewards is not None:
                values = values + self.token_rewards[index].to(values)
            values[rollout.turns[-1].stop - 1 if rollout.turns else -1] += self.rewards[index] - values.sum()
            placed.append(values)
        return placed


def _worth(by: str, total: Tensor, components: Mapping[str, Tensor], setting: str) -> Tensor:
    if by == "total":
        return total
    if by not in components:
        raise UserError(f"{setting}: no reward is called {by}; there are {', '.join(components)}")
    return components[by]


def sum_of_tokens(rows: Sequence[Tensor]) -> Tensor:
    """Sum the token rewards of each completion, [completions] tensors of [tokens of it] -> [completions]."""
    return torch.stack([row.sum() for row in rows]) if len(rows) else torch.zeros(0)


@dataclass(frozen=True)
class TokenBatch:
    """Inputs of an objective in addition to the current log-probs: an entry per trained token, completions in a row."""

    advantage: Tensor
    """How much better than expected, [tokens]."""
    behaviour: Tensor
    """Log-probs under the policy that sampled, from the engine, [tokens], nats; `old` if they are unknown."""
    old: Tensor
    """Log-probs under the learner's policy when the round began, [tokens], nats, no gradient."""
    reference: Tensor | None
    """Log-probs under the reference, [tokens], nats; None if the recipe has none."""
    completion: Tensor
    """Index in this batch of the completion that a token belongs to, [tokens], from 0."""
    entropy: Tensor
    """Entropy of the policy's distribution at each token, [tokens], nats; gradient flows."""
    reward: Tensor
    """Weighted sum of the reward's components, [completions]."""
    components: Mapping[str, Tensor]
    """Every component of the reward, [completions] each."""
    group: Tensor
    """Group of each completion, numbered from 0 in this batch, [completions]."""
    origins: Sequence[Origin]
    """Origin of each completion, [completions]."""
    progress: float
    """Share of the run's rounds that are done, in [0, 1)."""
    marked: Tensor
    """Whether the objective has marked the token among all of the round (`Objective.mark`), [tokens], bool."""
    divergence: Tensor | None = None
    """Divergence of the policy's whole distribution from the teacher's at each token, [tokens], nats; gradient flows.
    None unless the objective asks for one."""
    contrast_gap: Tensor | None = None
    """Sum over the vocabulary of |teacher - contrast|, [tokens], in [0, 2]; None unless the objective's divergence is
    from a contrast of two models."""
    pairs: Tensor | None = None
    """Better and worse completion of each pair, [pairs, 2]; None unless the objective is one over pairs."""
    turn: Tensor | None = None
    """Turn of the episode that a token belongs to, from 0, [tokens], int64; None: every completion is one turn."""

    @property
    def completions(self) -> int:
        """Number of completions in the batch."""
        return int(self.completion.max()) + 1 if self.completion.numel() else 0

    @property
    def lengths(self) -> Tensor:
        """Tokens of each completion that are trained on, [completions], int64."""
        return torch.bincount(self.completion, minlength=self.completions)

    def from_origins(self, *origins: Origin) -> Tensor:
        """Return which completions come from one of `origins`, [completions], bool."""
        return to_device(torch.tensor([origin in origins for origin in self.origins]), self.completion.device)

    def worth(self, by: str) -> Tensor:
        """Return one reward component, or with `total` their weighted sum, [completions].

        Raises:
            UserError: no reward is called `by`.
        """
        return _worth(by, self.reward, self.components, "objective.by")

    def sum_by_completion(self, values: Tensor) -> Tensor:
        """Sum token values by completion, [tokens] -> [completions]; gradient flows."""
        return values.new_zeros(self.completions).index_add(0, self.completion, values)

    def mean_by_completion(self, values: Tensor) -> Tensor:
        """Average token values by completion, [tokens] -> [completions]; gradient flows."""
        return self.sum_by_completion(values) / self.lengths

    def sum_by_group(self, values: Tensor) -> Tensor:
        """Sum over the completions of each group, [completions] -> [groups]; gradient flows."""
        groups = int(self.group.max()) + 1
        return torch.zeros(groups, dtype=values.dtype, device=values.device).index_add(0, self.group, values)

    def mean_by_group(self, values: Tensor) -> Tensor:
        """Average over the completions of each group, [completions] -> [groups]; gradient flows."""
        return self.sum_by_group(values) / self.sum_by_group(torch.ones_like(values))

    def of_group(self, values: Tensor) -> Tensor:
        """Repeat each group's value at every one of its completions, [groups] -> [completions]."""
        return values[self.group]

    def by_pair(self, values: Tensor) -> Tensor:
        """Sum token values over the better and the worse completion, [tokens] -> [pairs, 2]; gradient flows."""
        assert self.pairs is not None, "only objectives over pairs see pairs"
        return self.sum_by_completion(values)[self.pairs]
