"""The step at which a wrong answer of the policy lost most of its value, and alternatives to that step.

    prompt | step 1 | step 2 | step 3 | ...  wrong      Q_k = share of continuations after step k that end right
                    | step 2'                           A_k = Q_k - Q_{k-1},   Q_0 of the prompt alone
                    | step 2''                          first pit = the step of lowest A_k; of equals the first

Per-step negatives of "RL on Incorrect Synthetic Data" (paper 113, arXiv 2406.14532), derived from its abstract: an
answer that a verifier rejects teaches little until it is known which of its steps made it wrong. The pit and the
policy's alternatives to it follow the same prefix and form a group, each with its own Q as value. Q before them is the
same, so they differ in Q as they do in A. Pairs of them (select siblings) are preferences by advantage. If the better
one of a pair were drawn by sigmoid(A - A'), DPO on the steps would end at ref * exp(A / beta), as would the likelihood
of the reference's steps weighted by exp(A / beta).

The minimum of several noisy estimates is below the truth. The pit is therefore found with one set of continuations, and
all steps of a group are evaluated with another. The steps are not samples for a policy gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from models.answers.exact import by_answer
from models.base.bounds import Positive
from models.base.seeds import round_seed, seed_of
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutEpisode, RolloutSource
from models.method.steps import MARKS
from models.parts.labels.monte_carlo import Prefix, success_rates
from models.parts.rollouts.sample import Sample
from models.reward_models.solutions import LabellingTools, Solution


@dataclass(frozen=True, eq=False)
class AnswerStep:
    """A step of an answer."""

    solution: Solution
    begin: int
    """Index of its first token."""
    number: int
    """Number of the step, from 0."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """Ids of the step alone, [tokens]."""
        return self.solution.completion[self.begin : self.solution.ends[self.number] + 1]

    @property
    def prefix(self) -> tuple[int, ...]:
        """Ids of the answer before the step, [tokens]."""
        return self.solution.completion[: self.begin]

    @property
    def finished(self) -> bool:
        """Whether the step was not cut."""
        return self.solution.finished or self.number < len(self.solution.ends) - 1


@part("first_pit")
class FirstPit(Sample):
    """The worst step of each wrong answer, and alternatives to it. Set under `rollouts:`."""

    gives = ("values",)
    prompts: Positive = 16
    group_size: Positive = 4
    """Answers drawn per prompt, of which the wrong ones are examined."""
    continuations: Positive = 8
    """Continuations drawn after each step to estimate its value (K)."""
    alternatives: Positive = 4
    """Steps drawn as alternatives to each pit; of equal ones the first counts."""
    marks: tuple[str, ...] = MARKS
    """Texts that end a step: a token whose text holds one of them is the last of its step."""

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the size of the largest possible group.

        It holds the pits of all answers, each a different first step, and the alternatives to one of them.
        """
        return self.group_size + self.alternatives

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return pits and alternatives to them, those after the same prefix next to each other, [steps]."""
        seed = round_seed(resources.seed, round_number)
        bench = LabellingTools(resources.sampler(), resources.codec, by_answer, self.sampling, self.marks, seed, {})
        wrong = [solution for solution in bench.solutions(problems) if not solution.right]
        pits = self._pits(bench, wrong)
        groups = self._groups(replace(bench, seed=seed_of(seed, "alternatives")), pits)
        steps = [(group, step) for group, members in enumerate(groups) for step in members]
        positions = [(step.solution, step.number) for _, step in steps]
        worth = success_rates(replace(bench, seed=seed_of(seed, "worth")), positions, self.continuations)
        texts = bench.codec.text([step.tokens for _, step in steps])
        return [
            _as_rollout(step, group, text, value)
            for (group, step), text, value in zip(steps, texts, worth, strict=True)
        ]

    def _pits(self, bench: LabellingTools, wrong: Sequence[Solution]) -> list[AnswerStep]:
        """Return the first pit of each answer, [answers]."""
        positions = [(solution, step) for solution in wrong for step in range(-1, len(solution.ends))]
        rates = iter(success_rates(bench, positions, self.continuations))
        pits = [first_pit(torch.tensor([next(rates) for _ in range(len(each.ends) + 1)])) for each in wrong]
        return [AnswerStep(each, len(each.prefix(pit - 1)), pit) for each, pit in zip(wrong, pits, strict=True)]

    def _groups(self, bench: LabellingTools, pits: Sequence[AnswerStep]) -> list[list[AnswerStep]]:
        """Return the different steps after each prefix of a pit, pits before others, [prefixes] lists."""
        groups: dict[Prefix, dict[tuple[int, ...], AnswerStep]] = {}
        for pit in pits:
            groups.setdefault((pit.solution.problem.tokens, pit.prefix), {}).setdefault(pit.tokens, pit)
        problems = [next(iter(group.values())).solution.problem for group in groups.values()]
        room = [bench.sampling.max_tokens - len(prefix) for _, prefix in groups]
        continuations = bench.continuations([(*prompt, *prefix) for prompt, prefix in groups], room, self.alternatives)
        for ((_, prefix), group), problem, others in zip(groups.items(), problems, continuations, strict=True):
            completions = [(*prefix, *other.tokens) for other in others]
            for solution in bench.read([problem] * len(completions), completions, [other.finished for other in others]):
                step = AnswerStep(solution, len(prefix), sum(end < len(prefix) for end in solution.ends))
                group.setdefault(step.tokens, step)
        return [list(group.values()) for group in groups.values()]


def first_pit(worth: Tensor) -> int:
    """Return the number, from 0, of the step that reduced the share of right continuations most; of equals the first.

    Args:
        worth: share after the prompt and after each step, [steps + 1].
    """
    gains = worth.diff().tolist()
    return min(range(len(gains)), key=gains.__getitem__)


def _as_rollout(step: AnswerStep, group: int, text: str, value: float) -> Rollout:
    """Convert a step to a rollout whose prompt includes its prefix."""
    problem, prefix = step.solution.problem, step.prefix
    return Rollout(
        replace(problem, tokens=(*problem.tokens, *prefix)),
        group,
        step.tokens,
        None,
        text,
        step.finished,
        episode=RolloutEpisode(history=len(prefix)),
        source=RolloutSource(value=value),
    )
