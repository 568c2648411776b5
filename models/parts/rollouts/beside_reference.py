"""Sample from the policy, and add samples of the reference for the same prompt.

For methods that explore relative to the reference (XPO). The engine draws for the policy; the reference is the
learner's own and decodes there. Both are trained on, unlike the opponents of `sample_beside_mixture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.base.bounds import Positive
from models.base.seeds import round_seed
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.mixture import draw_from_mixture
from models.parts.rollouts.sample import Sample, draw


@part("sample_beside_reference")
class BesideReference(Sample):
    """Samples of the policy and of the reference, drawn alike. Set under `rollouts:`; needs a reference."""

    needs_reference = True
    reads_models = True
    references: Positive = 1
    """Completions of the reference per prompt."""

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the number of completions of the policy and the reference."""
        return self.group_size + self.references

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return the policy's completions, then the reference's, prompt by prompt, [prompts * (G + references)]."""
        seed = 2 * round_seed(resources.seed, round_number)
        own = draw(resources, problems, self.sampling, seed)
        of_reference = replace(self.sampling, samples=self.references)
        others = draw_from_mixture(resources, problems, of_reference, 1.0, seed + 1, origin="reference")
        return [
            rollout
            for number in range(len(problems))
            for rollout in (
                *own[number * self.group_size : (number + 1) * self.group_size],
                *others[number * self.references : (number + 1) * self.references],
            )
        ]
