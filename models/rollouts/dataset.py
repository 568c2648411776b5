"""No sampling: the answers that the data hold are the completions (offline methods).

Preferences give two completions a prompt, `chosen` and `rejected`; demonstrations as many as there are. Nobody knows
the log-probs of whoever wrote them, so objectives take the policy's own of the round's beginning in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from models.bounds import Positive
from models.engine.engine import Sampling
from models.loop.problem_rows import known_answers
from models.loop.rollout import Known, Problem, Rollout
from models.loop.slots import Rollouts
from models.loop.world import World
from models.parts import part


def as_rollout(problem: Problem, group: int, known: Known) -> Rollout:
    """An answer of the data as a completion."""
    return Rollout(
        problem,
        group,
        known.completion,
        None,
        known.text,
        finished=True,
        reference_log_probs=known.reference_log_probs,
        origin=known.origin,
        flaw=known.flaw,
    )


@part("dataset")
class Dataset(Rollouts):
    """Answers of the data. Stands under `rollouts:`."""

    draws = False
    reads: Literal["preferences", "demonstrations"] = "preferences"
    """Which answers: pairs of a better and a worse one, or demonstrations."""
    prompts: Positive = 64
    """Prompts of one round."""
    max_tokens: Positive = 64
    """Longest answer, in tokens; longer ones are left out."""

    @property
    def group_size(self) -> int:
        """Two of a preference; demonstrations are not counted on."""
        return 2 if self.reads == "preferences" else 1

    @property
    def sampling(self) -> Sampling:
        """The distribution that log-probs mean: the policy's own."""
        return Sampling(max_tokens=self.max_tokens)

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """As many answers as the data hold of one of `problems`; of a preference two."""
        return int(known_answers(problems).max()) if problems else self.group_size

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """The answers to `problems`, those of one prompt side by side, [completions]."""
        return [
            as_rollout(problem, number, known) for number, problem in enumerate(problems) for known in problem.known
        ]
