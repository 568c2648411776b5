"""Completions of problems, and their tokens as models, rewards and the learner read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from models.engines.engine import Versions
from models.learner.packing import Sequences
from models.method.episode import Cut, Turn
from models.method.problem import Origin, Problem

Extra = Literal["greedy", "opponents", "choices", "privileged", "values", "step_values"]
"""Data that rollouts may carry with the trained completions, for parts that need them.

greedy: the policy's likeliest completion of each prompt
opponents: completions used only for comparison, which the policy is not trained on
choices: at each token, whether the policy wrote it
privileged: the context that a judge reads instead of the prompt, such as the prompt and its answer
values: the value that the source assigns to a completion
step_values: the value that the source expects from the beginning of each step of a completion
"""


@dataclass(frozen=True)
class RolloutSource:
    """Origin of a completion, and what its source passes on with it."""

    origin: Origin = "policy"
    flaw: str = ""
    """Flaw of the answer according to the data; empty if there is none."""
    begun: int = 0
    """Tokens of the answer that the policy did not write; they are at the prompt's end."""
    privileged: tuple[int, ...] | None = None
    """Context that a judge of the tokens reads instead of the prompt, such as the prompt and its answer, [tokens]."""
    versions: Versions = ()
    """Versions of the weights that drew the tokens, if weights changed while it was written: first token of each span,
    and the number of rounds that made its weights. Empty: the weights that its round's completions are sampled from."""
    value: float | None = None
    """Value that the source assigns to the completion; None: none."""
    step_values: tuple[float | None, ...] = ()
    """Value that the source expects before each token, [tokens]; None if it assigns none."""
    feedback: str = ""
    """Feedback on the answer that this one refines; empty if it refines none, or there was no feedback."""


@dataclass(frozen=True)
class RolloutEpisode:
    """The episode that a completion is; of a plain completion, nothing."""

    turns: tuple[Turn, ...] = ()
    """The policy's turns. Tokens between turns are the environment's, which are neither trained on nor part of the
    completion's text. Empty: one turn, all of it the policy's."""
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
    trained: tuple[bool, ...] | None = None
    """Which tokens the policy learns from, [tokens]; None: all of them."""
    source: RolloutSource = RolloutSource()
    episode: RolloutEpisode = RolloutEpisode()

    @property
    def written(self) -> tuple[bool, ...]:
        """Whether the policy wrote each token, trained on or not, [tokens]."""
        if not self.episode.turns:
            return (True,) * len(self.completion)
        flags = [False] * len(self.completion)
        for turn in self.episode.turns:
            flags[turn.start : turn.stop] = [True] * (turn.stop - turn.start)
        return tuple(flags)

    @property
    def said(self) -> tuple[int, ...]:
        """Ids of the tokens that the policy wrote, trained on or not, [written]; rewards read these."""
        if not self.episode.turns:
            return self.completion
        return tuple(id for turn in self.episode.turns for id in self.completion[turn.start : turn.stop])

    @property
    def written_tokens(self) -> int:
        """Number of tokens that the policy wrote."""
        return (
            sum(turn.stop - turn.start for turn in self.episode.turns) if self.episode.turns else len(self.completion)
        )

    @property
    def trained_tokens(self) -> int:
        """Number of tokens that the policy learns from."""
        return len(self.completion) if self.trained is None else sum(self.trained)


def turn_numbers(rollout: Rollout) -> Tensor:
    """Return the turn of each token, from 0, [tokens], int64; the environment's text counts to the turn before."""
    begins = torch.zeros(len(rollout.completion), dtype=torch.long)
    for turn in rollout.episode.turns[1:]:
        begins[turn.start] = 1
    return begins.cumsum(0)


def written_places(rollouts: Sequence[Rollout]) -> Tensor | None:
    """Return places of the tokens that the policy wrote, completions in a row, [written], int64; None: it wrote all."""
    if not any(rollout.episode.turns for rollout in rollouts):
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
    return [index for index, rollout in enumerate(rollouts) if rollout.source.origin in ("policy", "guide")]


def _places(flags: Sequence[Sequence[bool]]) -> Tensor:
    return torch.tensor([flag for row in flags for flag in row]).nonzero().squeeze(1)


def parts_of(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Return the sequences that models read, [sequences]: an episode's own, if it has several, in their order."""
    return [part for rollout in rollouts for part in rollout.episode.parts or (rollout,)]


def sequences_of(rollouts: Sequence[Rollout]) -> Sequences:
    """Return prompts and completions as the learner reads them, [sequences] as in `parts_of`."""
    parts = parts_of(rollouts)
    return Sequences(
        [part.problem.tokens for part in parts],
        [part.completion for part in parts],
        nested=len(parts) > len(rollouts) or any(part.episode.history for part in parts),
    )


def said_sequences(rollouts: Sequence[Rollout]) -> Sequences:
    """Return prompts and the policy's own tokens, without the environment's, as rewards read them, [completions]."""
    return Sequences([rollout.problem.tokens for rollout in rollouts], [rollout.said for rollout in rollouts])


def privileged_sequences(rollouts: Sequence[Rollout]) -> Sequences:
    """Return prompts and completions as a judge of the tokens reads them, [sequences] as in `parts_of`."""
    parts = parts_of(rollouts)
    prompts = [part.problem.tokens if part.source.privileged is None else part.source.privileged for part in parts]
    return Sequences(prompts, [part.completion for part in parts])


def groups_of(rollouts: Sequence[Rollout]) -> Tensor:
    """Return the group of each completion, numbered from 0 in order of appearance, [completions], int64."""
    numbers: dict[int, int] = {}
    return torch.tensor([numbers.setdefault(rollout.group, len(numbers)) for rollout in rollouts], dtype=torch.long)
