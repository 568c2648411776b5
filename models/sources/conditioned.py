"""Answers of the data with the quality of their source in the prompt (OpenChat's C-RLFT, arXiv 2309.11235; paper 316).

    pi(y | x, c),   c: the class of whoever wrote y

The policy is told which class wrote the answer it learns, so that poor answers teach it the language without teaching
it to be poor. The best class needs no words: its prompt is the plain one, and it is what the policy is asked for later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from models.loop.rollout import Problem, Rollout
from models.loop.slots import World
from models.parts import part
from models.sources.dataset import Dataset, as_rollout


@part("rollouts", "conditioned")
class Conditioned(Dataset):
    """Answers of the data; prompts of the poor ones say so. Stands under `rollouts:`."""

    reads: Literal["preferences", "demonstrations"] = "demonstrations"
    flawed_prompt: str = "A careless answer to: {prompt}"
    """The prompt of flawed and rejected answers; `{prompt}` is where the plain one stands."""

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """The answers to `problems`, each under the prompt of its class, those of one prompt side by side."""
        texts = [self.flawed_prompt.replace("{prompt}", problem.prompt) for problem in problems]
        rollouts = []
        for number, (problem, ids) in enumerate(zip(problems, world.codec.prompts(texts), strict=True)):
            told = replace(problem, tokens=tuple(ids))
            for known in problem.known:
                if known.flaw or known.origin == "rejected":
                    # what a reference said of it was said under the plain prompt
                    rollouts.append(as_rollout(told, number, replace(known, reference_log_probs=None)))
                else:
                    rollouts.append(as_rollout(problem, number, known))
        return rollouts
