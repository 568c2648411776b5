"""Chain of Hindsight (paper 78): both answers of a preference in one sequence, each behind the feedback that it earned.

    y = (bad:, y-, good:, y+)   or   (good:, y+, bad:, y-);   only tokens of y- and y+ are taught

The policy learns to write what the feedback asks for, and the later answer sees the earlier one, so that it can tell
what makes one better than the other. It is plain likelihood: no reward, no reference, and the worse answer is not
thrown away. The words of feedback are given, never taught, so nothing is learned about when to praise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field

from models.bounds import Positive
from models.engine.engine import Sampling
from models.errors import UserError
from models.loop.rollout import Known, Problem, Rollout
from models.loop.slots import World
from models.parts import part


@part("rollouts", "hindsight")
class Hindsight:
    """Chains of two answers with feedback. Stands under `rollouts:`."""

    draws: ClassVar[bool] = False
    reads: ClassVar[Literal["preferences"]] = "preferences"
    group_size: ClassVar[int] = 1
    prompts: Positive = 64
    """Prompts of one round."""
    max_tokens: Positive = 64
    """Longest answer, in tokens; a chain is two of them and the feedback."""
    bad: str = " A bad answer: "
    """What stands before the worse answer."""
    good: str = " A good answer: "
    """What stands before the better answer."""
    good_first: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Chance that the better answer stands first."""

    @property
    def largest_group(self) -> int:
        """One chain."""
        return 1

    @property
    def sampling(self) -> Sampling:
        """The distribution that log-probs mean: the policy's own."""
        return Sampling(max_tokens=self.max_tokens)

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """One chain a prompt, [prompts]; the same seed and round give the same orders.

        Raises:
            UserError: the tokenizer does not tell the two feedbacks apart.
        """
        bad, good = (ids[:-1] for ids in world.codec.completions([self.bad, self.good]))
        if bad == good:
            raise UserError(
                "rollouts.bad and rollouts.good are the same tokens; choose words that the policy's tokenizer knows"
            )
        order = torch.Generator().manual_seed(world.seed * 1_000_003 + round_number)
        first = torch.rand(len(problems), generator=order, dtype=torch.float64) < self.good_first
        rollouts = []
        for number, (problem, flipped) in enumerate(zip(problems, first.tolist(), strict=True)):
            better, worse = (_of(problem, origin) for origin in ("chosen", "rejected"))
            links = [(bad, worse), (good, better)]
            rollouts.append(_chain(world, problem, number, links[::-1] if flipped else links))
        return rollouts


def _of(problem: Problem, origin: str) -> Known:
    return next(known for known in problem.known if known.origin == origin)


def _chain(world: World, problem: Problem, group: int, links: Sequence[tuple[list[int], Known]]) -> Rollout:
    """Feedback and answer after one another; of the answers only the last one ends the sequence."""
    ids: list[int] = []
    taught: list[bool] = []
    for place, (feedback, known) in enumerate(links, start=1):
        answer = known.completion if place == len(links) else known.completion[:-1]
        ids += [*feedback, *answer]
        taught += [False] * len(feedback) + [True] * len(answer)
    text = world.codec.text([ids])[0]
    return Rollout(problem, group, tuple(ids), (), text, finished=True, origin="chosen", taught=tuple(taught))
