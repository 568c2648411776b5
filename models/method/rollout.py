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
"""Kind of further data that a source may provide with its completions, for parts that need it.

greedy: the policy's likeliest completion of each prompt
opponents: completions used only for comparison, which the policy is not trained on
choices: at each token, whether the policy wrote it
privileged: the context that a judge reads instead of the prompt, such as the prompt and its answer
values: the value that the source assigns to a completion
step_values: the value that the source expects from the beginning of each step of a completion
"""


@dataclass(frozen=True)
class RolloutSource:
    """Origin of a completion, and further data from its source about it."""

    origin: Origin = "policy"
    flaw: str = ""
    """Flaw of the answer according to the data; empty if there is none."""
    begun: int = 0
    """Number of tokens at the prompt's end that begin the answer, and that the policy did not write."""
    privileged: tuple[int, ...] | None = None
    """Context that a judge of the tokens reads instead of the prompt, such as the prompt and its answer, [tokens]."""
    versions: Versions = ()
    """Versions of the weights that drew the tokens, if they changed while it was written: the first token of each span,
    and the number of rounds after which its weights were made. Empty: one version for the whole round."""
    value: float | None = None
    """Value that the source assigns to the completion; None if it assigns none."""
    step_values: tuple[float | None, ...] = ()
    """Value that the source expects before each token, [tokens]; None if it assigns none."""
    feedback: str = ""
    """Feedback on the answer that this one refines; empty if it refines none, or there was no feedback."""


@dataclass(frozen=True)
class RolloutEpisode:
    """Data about the episode that a completion records; the defaults are for a completion of a single turn."""

    turns: tuple[Turn, ...] = ()
    """The policy's turns. Tokens between turns are the environment's, which are neither trained on nor part of the
    completion's text. Empty: one turn, all of it the policy's."""
    cut: Cut = ""
    """Why the episode did not end by itself; empty if it did."""
    solved: bool | None = None
    """Whether the environment reports that the goal was reached; None: not reported."""
    history: int = 0
    """Number of tokens at the prompt's end that are earlier turns of the episode. Other sequences may contain them too;
    the learner then reads them once."""
    parts: tuple[Rollout, ...] = ()
    """Sequences that models read, if the episode does not fit into a single one; their completions, concatenated, are
    the rollout's. Empty: the rollout is one sequence. Rewards, selection, advantage and loss see the whole episode."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """One completion of one problem. It is equal only to itself: equal completions of a prompt each count.

    Its log-probs are on the CPU in memory of their own, so that keeping one does not keep others.
    """

    problem: Problem
    group: int
    """Number of its group: completions with the same number answer the same prompt in the same round."""
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
    def written_ids(self) -> tuple[int, ...]:
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
    """Return the turn of each token, from 0, [tokens], int64; the environment's text belongs to the turn before it."""
    begins = torch.zeros(len(rollout.completion), dtype=torch.long)
    for turn in rollout.episode.turns[1:]:
        begins[turn.start] = 1
    return begins.cumsum(0)


def written_places(rollouts: Sequence[Rollout]) -> Tensor | None:
    """Return the indices of the tokens that the policy wrote, in the concatenated completions, [written], int64.

    None: it wrote all of them.
    """
    if not any(rollout.episode.turns for rollout in rollouts):
        return None
    return _places([rollout.written for rollout in rollouts])


def trained_places(rollouts: Sequence[Rollout]) -> Tensor | None:
    """Return the indices of the tokens that are trained on, in the concatenated completions, [trained], int64.

    None: all of them.
    """
    if all(rollout.trained is None for rollout in rollouts):
        return None
    return _places([rollout.trained or (True,) * len(rollout.completion) for rollout in rollouts])


def sampled_places(rollouts: Sequence[Rollout]) -> list[int]:
    """Return the indices of the completions that the policy sampled, also after a beginning that it did not write.

    Greedy baselines, opponents, explanations and answers of the data are left out.
    """
    return [index for index, rollout in enumerate(rollouts) if rollout.source.origin in ("policy", "guide")]


def _places(flags: Sequence[Sequence[bool]]) -> Tensor:
    return torch.tensor([flag for row in flags for flag in row]).nonzero().squeeze(1)


def parts_of(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Return the sequences that models read, [sequences]: the parts of an episode that has them, else the rollout."""
    return [part for rollout in rollouts for part in rollout.episode.parts or (rollout,)]


def sequences_of(rollouts: Sequence[Rollout]) -> Sequences:
    """Return the tokens of prompts and completions as the learner reads them, [sequences] as in `parts_of`."""
    parts = parts_of(rollouts)
    return Sequences(
        [part.problem.tokens for part in parts],
        [part.completion for part in parts],
        nested=len(parts) > len(rollouts) or any(part.episode.history for part in parts),
    )


def written_sequences(rollouts: Sequence[Rollout]) -> Sequences:
    """Return prompts and the policy's own tokens, without the environment's, as rewards read them, [completions]."""
    return Sequences([rollout.problem.tokens for rollout in rollouts], [rollout.written_ids for rollout in rollouts])


def privileged_sequences(rollouts: Sequence[Rollout]) -> Sequences:
    """Return completions after their privileged context, if any, else prompt, [sequences] as in `parts_of`."""
    parts = parts_of(rollouts)
    prompts = [part.problem.tokens if part.source.privileged is None else part.source.privileged for part in parts]
    return Sequences(prompts, [part.completion for part in parts])


def groups_of(rollouts: Sequence[Rollout]) -> Tensor:
    """Return the group of each completion, renumbered from 0 in order of appearance, [completions], int64."""
    numbers: dict[int, int] = {}
    return torch.tensor([numbers.setdefault(rollout.group, len(numbers)) for rollout in rollouts], dtype=torch.long)
