"""No sampling: the completions are the answers in the data (offline methods).

Preferences have two completions per prompt, `chosen` and `rejected`; demonstrations have as many as the data hold. The
log-probs of their authors are unknown, so objectives use the policy's own log-probs at the beginning of the round
instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from models.base.bounds import Positive
from models.engines.engine import Sampling
from models.method.problem import KnownAnswer, Problem
from models.method.problem_rows import known_answers
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutSource
from models.method.rollout_source import Rollouts


def as_rollout(problem: Problem, group: int, known: KnownAnswer) -> Rollout:
    """Convert an answer from the data to a completion."""
    return Rollout(
        problem,
        group,
        known.completion,
        None,
        known.text,
        finished=True,
        reference_log_probs=known.reference_log_probs,
        source=RolloutSource(origin=known.origin, flaw=known.flaw),
    )


@part("dataset")
class Dataset(Rollouts):
    """Answers from the data. Set under `rollouts:`."""

    draws = False
    reads: Literal["preferences", "demonstrations"] = "preferences"
    """Kind of answers: pairs of a better and a worse one, or demonstrations."""
    prompts: Positive = 64
    """Prompts per round."""
    max_tokens: Positive = 64
    """Longest answer, in tokens; longer ones are left out."""

    @property
    def group_size(self) -> int:
        """Two for a preference; 1 for demonstrations, which are not compared within a group."""
        return 2 if self.reads == "preferences" else 1

    @property
    def sampling(self) -> Sampling:
        """Distribution that the log-probs refer to: the policy's own."""
        return Sampling(max_tokens=self.max_tokens)

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the largest number of answers that the data hold for one of `problems`; two for a preference."""
        return int(known_answers(problems).max()) if problems else self.group_size

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return the answers to `problems`, those of one prompt next to each other, [completions]."""
        return [
            as_rollout(problem, number, known) for number, problem in enumerate(problems) for known in problem.known
        ]
