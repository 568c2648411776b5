"""Frozen data that travel through the loop: problems, rollouts, scored rollouts, token batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from models.engine.engine import Versions
from models.errors import UserError
from models.learner.packing import Sequences
from models.learner.upload import to_device
from models.loop.turn import Cut, Turn

Origin = Literal[
    "policy", "greedy", "reference", "teacher", "guide", "explained", "refined", "relabelled", "demonstration",
    "chosen", "rejected",
]  # fmt: skip
"""Where a completion comes from.

policy, greedy, reference: an engine drew it, from the policy, at temperature zero, or from the reference
teacher: the frozen model that the policy is distilled from wrote it
guide: the policy went on from the beginning of somebody else's answer
explained: the policy wrote it knowing the answer
refined: the policy wrote it knowing an earlier answer and what was said of it
relabelled: the policy wrote it for another prompt
demonstration, chosen, rejected: the data hold it
"""

Reads = Literal["problems", "demonstrations", "preferences"]
"""Source of the rollouts' prompts: problems with an answer, or prompts with the answers in the data."""

Extra = Literal["greedy", "opponents", "choices", "privileged", "values", "step_values"]
"""Data that rollouts may carry with the trained completions, for parts that need them.

greedy: the policy's likeliest completion of each prompt
opponents: completions to be compared with only, which the policy is not trained on
choices: at each token, whether the policy wrote it
privileged: what a judge reads instead of the prompt, such as the prompt and its answer
values: what the source says that a completion is worth
step_values: what the source says that is to be had from the beginning of each step of a completion
"""


@dataclass(frozen=True, eq=False)
class Known:
    """An answer to a prompt that the data hold. Equal to itself alone, as a rollout is."""

    origin: Origin
    completion: tuple[int, ...]
    """Token ids, the end token included, [tokens]."""
    text: str
    flaw: str = ""
    """What the data say is wrong with it; empty where nothing is."""
    reference_log_probs: Tensor | None = None
    """Log-prob of each token under a reference that never moves, where it is known, [tokens], in nats, on the CPU."""


@dataclass(frozen=True)
class Problem:
    """A prompt and what is known of its answer."""

    id: str
    prompt: str
    answer: str = ""
    level: int = 0
    tokens: tuple[int, ...] = ()
    """The encoded prompt, [tokens]."""
    known: tuple[Known, ...] = ()
    """Answers that the data hold, where the recipe's source reads them."""
    tests: str = ""
    """Code that decides whether an answer, which is code too, is right; empty where there is none."""
    entry_point: str = ""
    """Name of the function that the tests ask."""
    system: str = ""
    """System message that the prompt begins with, followed by a blank line; empty if there is none."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """One completion of one problem. Equal to itself alone: of a prompt that is easy many are alike, and each counts.

    Its log-probs lie on the CPU in memory of their own, so that one that is kept keeps no other.
    """

    problem: Problem
    group: int
    """Completions with the same number answer the same prompt in the same round."""
    completion: tuple[int, ...]
    """Token ids, the end token included where it was reached, [tokens]."""
    behaviour_log_probs: Tensor | None
    """Log-prob of each token under the policy that sampled it, [tokens], in nats; None where nobody knows it."""
    text: str
    finished: bool
    """Whether the completion ended by itself and was not cut."""
    reference_log_probs: Tensor | None = None
    """Log-prob of each token under a reference that stays as it is, where it is known already, [tokens], in nats."""
    origin: Origin = "policy"
    flaw: str = ""
    """What the data say is wrong with it."""
    trained: tuple[bool, ...] | None = None
    """Which tokens the policy learns from, [tokens]; None: all of them."""
    begun: int = 0
    """Tokens of the answer that somebody else wrote; they stand at the prompt's end."""
    privileged: tuple[int, ...] | None = None
    """Context that a judge of the tokens reads instead of the prompt, such as the prompt and its answer, [tokens]."""
    versions: Versions = ()
    """Whose its tokens are where weights changed while it was written: first token of each span, and how many rounds
    had made the weights that drew it. Empty: the weights that its round's completions are sampled from."""
    turns: tuple[Turn, ...] = ()
    """The policy's turns, where the completion is an episode: what stands between them is the environment's, which is
    neither trained on nor part of `text`. Empty: one turn, all of it the policy's."""
    cut: Cut = ""
    """Why the episode did not end by itself; empty where it did."""
    solved: bool | None = None
    """Whether the environment says that the goal was reached; None: it does not say."""
    history: int = 0
    """Tokens at the prompt's end that are earlier turns of the episode; other sequences may hold them too, and the
    learner reads them once."""
    parts: tuple[Rollout, ...] = ()
    """Sequences that models read the episode as, where no single one holds it: the completion is theirs, one behind the
    other. Empty: it is one by itself. Rewards, selection, advantage and loss see the episode."""
    value: float | None = None
    """What the source says that the completion is worth; None: it does not say."""
    step_values: tuple[float | None, ...] = ()
    """What the source says is to be had from before each token on, [tokens]; None where it does not say."""
    feedback: str = ""
    """What was said of the answer that it refines; empty where it refines none, or nothing was said."""

    @property
    def written(self) -> tuple[bool, ...]:
        """Which tokens the policy wrote, trained on or not, [tokens]."""
        if not self.turns:
            return (True,) * len(self.completion)
        flags = [False] * len(self.completion)
        for turn in self.turns:
            flags[turn.start : turn.stop] = [True] * (turn.stop - turn.start)
        return tuple(flags)

    @property
    def said(self) -> tuple[int, ...]:
        """Ids of the tokens that the policy wrote, trained on or not, [written]: what is rewarded for its words."""
        if not self.turns:
            return self.completion
        return tuple(id for turn in self.turns for id in self.completion[turn.start : turn.stop])

    @property
    def written_tokens(self) -> int:
        """How many tokens the policy wrote."""
        return sum(turn.stop - turn.start for turn in self.turns) if self.turns else len(self.completion)

    @property
    def trained_tokens(self) -> int:
        """How many tokens the policy learns from."""
        return len(self.completion) if self.trained is None else sum(self.trained)


def turn_numbers(rollout: Rollout) -> Tensor:
    """Which turn each token belongs to, from 0, what the environment says to the turn before, [tokens], int64."""
    begins = torch.zeros(len(rollout.completion), dtype=torch.long)
    for turn in rollout.turns[1:]:
        begins[turn.start] = 1
    return begins.cumsum(0)


def written_places(rollouts: Sequence[Rollout]) -> Tensor | None:
    """Places of the tokens that the policy wrote, completions in a row, [written], int64; None: it wrote all."""
    if not any(rollout.turns for rollout in rollouts):
        return None
    return _places([rollout.written for rollout in rollouts])


def trained_places(rollouts: Sequence[Rollout]) -> Tensor | None:
    """Places of the tokens that the policy learns from, completions in a row, [trained], int64; None: from all."""
    if all(rollout.trained is None for rollout in rollouts):
        return None
    return _places([rollout.trained or (True,) * len(rollout.completion) for rollout in rollouts])


def sampled_places(rollouts: Sequence[Rollout]) -> list[int]:
    """Indices of the completions that the policy has sampled, begun by others or not: no greedy baselines, opponents,
    explanations or answers of the data."""
    return [index for index, rollout in enumerate(rollouts) if rollout.origin in ("policy", "guide")]


def _places(flags: Sequence[Sequence[bool]]) -> Tensor:
    return torch.tensor([flag for row in flags for flag in row]).nonzero().squeeze(1)


def parts_of(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The sequences that models read, [sequences]: an episode's own, where it has several, in their order."""
    return [part for rollout in rollouts for part in rollout.parts or (rollout,)]


def sequences_of(rollouts: Sequence[Rollout]) -> Sequences:
    """Prompts and completions as the learner reads them, [sequences] as in `parts_of`."""
    parts = parts_of(rollouts)
    return Sequences(
        [part.problem.tokens for part in parts],
        [part.completion for part in parts],
        nested=len(parts) > len(rollouts) or any(part.history for part in parts),
    )


def said_sequences(rollouts: Sequence[Rollout]) -> Sequences:
    """Prompts and what the policy wrote, without an environment's words, as who rewards reads them, [completions]."""
    return Sequences([rollout.problem.tokens for rollout in rollouts], [rollout.said for rollout in rollouts])


def privileged_sequences(rollouts: Sequence[Rollout]) -> Sequences:
    """Prompts and completions as whoever judges them reads them, [sequences] as in `parts_of`."""
    parts = parts_of(rollouts)
    prompts = [part.problem.tokens if part.privileged is None else part.privileged for part in parts]
    return Sequences(prompts, [part.completion for part in parts])


def groups_of(rollouts: Sequence[Rollout]) -> Tensor:
    """Group of each completion, numbered from 0 in order of appearance, [completions], int64."""
    numbers: dict[int, int] = {}
    return torch.tensor([numbers.setdefault(rollout.group, len(numbers)) for rollout in rollouts], dtype=torch.long)


@dataclass(frozen=True)
class Scored:
    """Rollouts with what each is worth."""

    rollouts: Sequence[Rollout]
    rewards: Tensor
    """Weighted sum of the components, [completions], float32."""
    components: Mapping[str, Tensor]
    """Every component of the reward before weighting, [completions] each; one that is given token by token summed."""
    watched: Mapping[str, float]
    """What the rewards' companions told while they learned."""
    token_rewards: Sequence[Tensor] | None = None
    """Weighted sum of the components that are given token by token, [completions] tensors of [tokens of it]; None
    where there are none. Part of `rewards` too."""
    reasons: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Why completions are worth what they are, by the label of a reward that says so, [completions] each."""

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
        """The completions at `indices`, in that order."""
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
        """The reward that a part goes by, [completions]: the weighted sum where `by` is total, else that component.

        Raises:
            UserError: no reward is called `by`; the line names `setting`, the key of the recipe that says so.
        """
        return _worth(by, self.rewards, self.components, setting)

    def rewards_by_token(self) -> list[Tensor]:
        """Rewards where they are given, [completions] tensors of [tokens of it]: what belongs to a whole completion
        stands at the last token that the policy wrote."""
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
    """Worth of each completion by token, [completions] tensors of [tokens of it], together, [completions]."""
    return torch.stack([row.sum() for row in rows]) if len(rows) else torch.zeros(0)


@dataclass(frozen=True)
class TokenBatch:
    """What an objective sees beside the current log-probs: an entry for each trained token, completions in a row."""

    advantage: Tensor
    """How much better than expected, [tokens]."""
    behaviour: Tensor
    """Log-probs under the policy that sampled, as the engine said, [tokens], nats; `old` where nobody knows them."""
    old: Tensor
    """Log-probs under the learner's policy when the round began, [tokens], nats, no gradient."""
    reference: Tensor | None
    """Log-probs under the reference, [tokens], nats; None where the recipe has none."""
    completion: Tensor
    """Which completion of this batch a token belongs to, [tokens], from 0."""
    entropy: Tensor
    """Entropy of the policy's distribution at each token, [tokens], nats; gradient flows."""
    reward: Tensor
    """Weighted sum of the reward's components, [completions]."""
    components: Mapping[str, Tensor]
    """Every component of the reward, [completions] each."""
    group: Tensor
    """Group of each completion, numbered from 0 in this batch, [completions]."""
    origins: Sequence[Origin]
    """Where each completion comes from, [completions]."""
    progress: float
    """Share of the run's rounds that are done, in [0, 1)."""
    marked: Tensor
    """Which tokens the objective has singled out among all of the round (`Objective.mark`), [tokens], bool."""
    divergence: Tensor | None = None
    """Divergence of the policy's whole distribution from the teacher's at each token, [tokens], nats; gradient flows.
    None unless the objective asks for one."""
    contrast_gap: Tensor | None = None
    """Sum over the vocabulary of |teacher - contrast|, [tokens], in [0, 2]; None unless the objective's divergence is
    from a contrast of two models."""
    pairs: Tensor | None = None
    """Better and worse completion of each pair, [pairs, 2]; None unless the objective is one over pairs."""
    turn: Tensor | None = None
    """Which of its episode's turns a token belongs to, from 0, [tokens], int64; None: every completion is one turn."""

    @property
    def completions(self) -> int:
        """How many completions the batch holds."""
        return int(self.completion.max()) + 1 if self.completion.numel() else 0

    @property
    def lengths(self) -> Tensor:
        """Tokens of each completion that are trained on, [completions], int64."""
        return torch.bincount(self.completion, minlength=self.completions)

    def from_origins(self, *origins: Origin) -> Tensor:
        """Which completions come from one of `origins`, [completions], bool."""
        return to_device(torch.tensor([origin in origins for origin in self.origins]), self.completion.device)

    def worth(self, by: str) -> Tensor:
        """One reward component, or with `total` their weighted sum, [completions].

        Raises:
            UserError: no reward is called as `by` says.
        """
        return _worth(by, self.reward, self.components, "objective.by")

    def sum_by_completion(self, values: Tensor) -> Tensor:
        """Sums of token values, [tokens] -> [completions]; gradient flows."""
        return values.new_zeros(self.completions).index_add(0, self.completion, values)

    def mean_by_completion(self, values: Tensor) -> Tensor:
        """Means of token values, [tokens] -> [completions]; gradient flows."""
        return self.sum_by_completion(values) / self.lengths

    def sum_by_group(self, values: Tensor) -> Tensor:
        """Sums over the completions of each group, [completions] -> [groups]; gradient flows."""
        groups = int(self.group.max()) + 1
        return torch.zeros(groups, dtype=values.dtype, device=values.device).index_add(0, self.group, values)

    def mean_by_group(self, values: Tensor) -> Tensor:
        """Means over the completions of each group, [completions] -> [groups]; gradient flows."""
        return self.sum_by_group(values) / self.sum_by_group(torch.ones_like(values))

    def of_group(self, values: Tensor) -> Tensor:
        """Each group's value at every one of its completions, [groups] -> [completions]."""
        return values[self.group]

    def by_pair(self, values: Tensor) -> Tensor:
        """Sums of token values over the better and the worse completion, [tokens] -> [pairs, 2]; gradient flows."""
        assert self.pairs is not None, "only objectives over pairs see pairs"
        return self.sum_by_completion(values)[self.pairs]
