"""Answers of the data with the quality of their source in the prompt (OpenChat's C-RLFT, arXiv 2309.11235; paper 316).

    pi(y | x, c),   c: the class of whoever wrote y

The policy is told which class wrote the answer it learns, so that it learns the language from poor answers without
learning to be poor. The best class needs no words: its prompt is the plain one, and it is what the policy is
asked for later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from models.loop.prompts import systems_of
from models.loop.rollout import Known, Problem, Rollout
from models.loop.world import World
from models.parts import part
from models.rollouts.dataset import Dataset, as_rollout
from models.text.encoding import Codec


@part("conditioned")
class Conditioned(Dataset):
    """Answers of the data; prompts of the poor ones say so. Stands under `rollouts:`."""

    reads: Literal["preferences", "demonstrations"] = "demonstrations"
    flawed_prompt: str = "A careless answer to: {prompt}"
    """The prompt of flawed and rejected answers; `{prompt}` is where the plain one stands."""

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """What the prompt of a poor answer says beside the question, [problems]; none where no answer is poor."""
        return [
            max(0, len(ids) - len(problem.tokens)) if any(map(_is_poor, problem.known)) else 0
            for problem, ids in zip(problems, self._poor_prompts(codec, problems), strict=True)
        ]

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """The answers to `problems`, each under the prompt of its class, those of one prompt side by side."""
        rollouts = []
        for number, (problem, ids) in enumerate(zip(problems, self._poor_prompts(world.codec, problems), strict=True)):
            poor = replace(problem, tokens=tuple(ids))
            for known in problem.known:
                if _is_poor(known):
                    # what a reference said of it was said under the plain prompt
                    rollouts.append(as_rollout(poor, number, replace(known, reference_log_probs=None)))
                else:
                    rollouts.append(as_rollout(problem, number, known))
        return rollouts

    def _poor_prompts(self, codec: Codec, problems: Sequence[Problem]) -> list[list[int]]:
        """Prompts that ask for a poor answer, [problems] lists of token ids."""
        return codec.prompts(
            [self.flawed_prompt.replace("{prompt}", problem.prompt) for problem in problems], systems_of(problems)
        )


def _is_poor(known: Known) -> bool:
    return bool(known.flaw) or known.origin == "rejected"
