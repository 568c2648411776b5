"""Chain of Hindsight (paper 78): both answers of a preference in one sequence, each after the feedback that it earned.

    y = (bad:, y-, good:, y+)   or   (good:, y+, bad:, y-);   only tokens of y- and y+ are trained on

The policy learns to write what the feedback requests, and the later answer sees the earlier one, so that the policy can
learn the difference. The loss is plain likelihood: no reward, no reference, and the worse answer is used too. The words
of feedback are given, never trained on, so the policy does not learn when to praise. The trained policy is used with a
request for good answers: their words follow every prompt in evaluations and in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from models.base.bounds import Positive, Share
from models.base.errors import UserError
from models.base.seeds import round_seed
from models.engines.engine import Sampling
from models.method.learner import Learner
from models.method.problem import KnownAnswer, Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutSource
from models.method.rollout_source import Rollouts
from models.parts.shared.after_prompt import write_after_prompt
from models.text.encoding import Codec


@part("hindsight")
class Hindsight(Rollouts):
    """Chains of two answers, each after its feedback. Set under `rollouts:`."""

    exports = True
    draws = False
    reads = "preferences"
    group_size = 1
    prompts: Positive = 64
    """Prompts per round."""
    max_tokens: Positive = 64
    """Longest answer, in tokens; a chain is two of them and the feedback."""
    bad: str = " A bad answer: "
    """Feedback before the worse answer."""
    good: str = " A good answer: "
    """Feedback before the better answer."""
    good_first: Share = 0.5
    """Probability that the better answer comes first."""

    @property
    def sampling(self) -> Sampling:
        """Distribution that the log-probs refer to: the policy's own."""
        return Sampling(max_tokens=self.max_tokens)

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return 1: a prompt has one chain."""
        return 1

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """Return the length of the chain of both answers and their feedback beyond `max_tokens`, [problems]."""
        feedback_length = sum(len(ids) for ids in self._feedback(codec))
        lengths = [
            sum(len(_known_answer(problem, origin).completion) for origin in ("chosen", "rejected"))
            for problem in problems
        ]
        # the first one has no end token
        return [max(0, feedback_length + length - 1 - self.max_tokens) for length in lengths]

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return one chain per prompt, [prompts]; the same seed and round give the same orders.

        Raises:
            UserError: both feedbacks have the same tokens in the policy's tokenizer.
        """
        bad, good = self._feedback(resources.codec)
        if bad == good:
            raise UserError(
                "rollouts.bad and rollouts.good are the same tokens; choose words that the policy's tokenizer knows"
            )
        order = torch.Generator().manual_seed(round_seed(resources.seed, round_number))
        first = torch.rand(len(problems), generator=order, dtype=torch.float64) < self.good_first
        rollouts = []
        for number, (problem, flipped) in enumerate(zip(problems, first.tolist(), strict=True)):
            better, worse = (_known_answer(problem, origin) for origin in ("chosen", "rejected"))
            links = [(bad, worse), (good, better)]
            rollouts.append(_chain(resources, problem, number, links[::-1] if flipped else links))
        return rollouts

    def export(self, learner: Learner, codec: Codec, start: Path, folder: Path) -> None:
        """Write next to the policy that the words before a good answer follow every prompt.

        They request a good answer.

        The tokenizer's chat template appends them too, for servers that use the folder as a chat model. See
        `Rollouts.export`.
        """
        _, good = self._feedback(codec)
        write_after_prompt(folder, codec, self.good, good)

    def _feedback(self, codec: Codec) -> list[list[int]]:
        """Return the words before the worse and before the better answer, without an end, 2 lists of token ids."""
        return [list(ids[:-1]) for ids in codec.completions([self.bad, self.good])]


def _known_answer(problem: Problem, origin: str) -> KnownAnswer:
    return next(known for known in problem.known if known.origin == origin)


def _chain(
    resources: RunResources, problem: Problem, group: int, links: Sequence[tuple[list[int], KnownAnswer]]
) -> Rollout:
    """Chain feedback and answers; of the answers only the last one ends the sequence."""
    ids: list[int] = []
    trained: list[bool] = []
    for place, (feedback, known) in enumerate(links, start=1):
        answer = known.completion if place == len(links) else known.completion[:-1]
        ids += [*feedback, *answer]
        trained += [False] * len(feedback) + [True] * len(answer)
    text = resources.codec.text([ids])[0]
    return Rollout(
        problem,
        group,
        tuple(ids),
        None,
        text,
        finished=True,
        source=RolloutSource(origin="chosen"),
        trained=tuple(trained),
    )
