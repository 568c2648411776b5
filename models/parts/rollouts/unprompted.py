"""Samples of the policy, with a context that has no prompt, or another one, for classifier-free guidance (paper 149).

y ~ pi(. | x),   guided away from   judge(. | c),   c the same for all prompts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.sample import Sample
from models.text.encoding import Codec


@part("unprompted")
class Unprompted(Sample):
    """Samples whose judge also reads them without their prompt. Set under `rollouts:`."""

    gives = ("privileged",)
    context: str = ""
    """Text that the judge also reads instead of the prompt, such as a negative prompt; empty: the end token alone, as
    before the first word of a text."""

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """Return the length of the context beyond the prompt, [problems]."""
        length = len(self._ids(codec))
        return [max(0, length - len(problem.tokens)) for problem in problems]

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return completions of `problems`, each with the context, [prompts * G]."""
        ids = self._ids(resources.codec)
        rollouts = super().__call__(resources, problems, round_number)
        return [replace(rollout, source=replace(rollout.source, privileged=ids)) for rollout in rollouts]

    def _ids(self, codec: Codec) -> tuple[int, ...]:
        """Return the ids of the context, at least one."""
        return tuple(codec.prompts([self.context])[0]) if self.context.strip() else (codec.end,)
