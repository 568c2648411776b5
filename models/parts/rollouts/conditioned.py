"""Answers from the data with their source's quality in the prompt (OpenChat's C-RLFT, arXiv 2309.11235; paper 316).

    pi(y | x, c),   c: the class of the source of y

The prompt states which class wrote the answer, so that the policy learns the language from poor answers without
learning to be poor. The best class needs no words: its prompt is the plain one, which is also the prompt after
training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from models.method.problem import KnownAnswer, Problem, systems_of
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.dataset import Dataset, as_rollout
from models.text.encoding import Codec


@part("conditioned")
class Conditioned(Dataset):
    """Answers from the data; the prompts of poor answers mark them as poor. Set under `rollouts:`."""

    reads: Literal["preferences", "demonstrations"] = "demonstrations"
    flawed_prompt: str = "A careless answer to: {prompt}"
    """Prompt of flawed and rejected answers; `{prompt}` is replaced by the plain prompt."""

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """Return the tokens that a poor answer's prompt adds to the question, [problems]; 0 without a poor answer."""
        return [
            max(0, len(ids) - len(problem.tokens)) if any(map(_is_poor, problem.known)) else 0
            for problem, ids in zip(problems, self._poor_prompts(codec, problems), strict=True)
        ]

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return the answers to `problems`, each under its class's prompt, those of one prompt next to each other."""
        rollouts = []
        for number, (problem, ids) in enumerate(
            zip(problems, self._poor_prompts(resources.codec, problems), strict=True)
        ):
            poor = replace(problem, tokens=tuple(ids))
            for known in problem.known:
                if _is_poor(known):
                    # the reference's log-probs were computed under the plain prompt
                    rollouts.append(as_rollout(poor, number, replace(known, reference_log_probs=None)))
                else:
                    rollouts.append(as_rollout(problem, number, known))
        return rollouts

    def _poor_prompts(self, codec: Codec, problems: Sequence[Problem]) -> list[list[int]]:
        """Return prompts that request a poor answer, [problems] lists of token ids."""
        return codec.prompts(
            [self.flawed_prompt.replace("{prompt}", problem.prompt) for problem in problems], systems_of(problems)
        )


def _is_poor(known: KnownAnswer) -> bool:
    return bool(known.flaw) or known.origin == "rejected"
