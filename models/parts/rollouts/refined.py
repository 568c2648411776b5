"""Refinements of the policy's own answers by feedback in words (Critique-GRPO, paper 11; ILF, paper 200).

    y ~ pi(. | x)                       G answers
    c = feedback(x, y)
    y' ~ pi(. | x, y, c)                placed under x alone

The feedback names the fault of an answer, so that a policy that keeps failing can still write a right one. The policy
is trained on the plain prompt followed by the refinement: it learns to give that answer at once. The refinement was not
drawn from pi(. | x), so it has no behaviour log-probs. The form of the context must suit the policy's tokenizer; a new
policy learns to read it in the warm start (`warm_start.context` with `shows: feedback`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.answers.exact import solves
from models.base.bounds import Positive
from models.base.seeds import round_seed, second_sampling_seed
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.improved import Improved
from models.parts.rollouts.sample import draw


@part("refined")
class Refined(Improved):
    """Samples, and refinements of them by feedback. Set under `rollouts:`."""

    refinements: Positive = 1
    """Refinements per sample."""
    only_wrong: bool = False
    """Whether samples that state the problem's answer are not refined."""

    @property
    def training_context(self) -> str:
        """Empty text: refinements are trained after the plain prompt."""
        return ""

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the number of samples and refinements."""
        return self.group_size * (1 + self.refinements)

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return samples, then refinements, prompt by prompt, [prompts * G and more]."""
        seed = round_seed(resources.seed, round_number)
        sampled = draw(resources, problems, self.sampling, seed)
        refined = self._refine(resources, sampled, second_sampling_seed(seed))
        rollouts = []
        for number in range(len(problems)):
            rollouts += sampled[number * self.group_size : (number + 1) * self.group_size]
            rollouts += [rollout for rollout in refined if rollout.group == number]
        return rollouts

    def _refine(self, resources: RunResources, sampled: Sequence[Rollout], seed: int) -> list[Rollout]:
        """Return refinements of each sample, each under the plain prompt and in the sample's group."""
        tried = [rollout for rollout in sampled if not (self.only_wrong and solves(rollout))]
        if not tried:
            return []
        context_problems, feedback_texts = self._with_feedback(resources, tried)
        refinements = draw(
            resources, context_problems, replace(self.sampling, samples=self.refinements), seed, origin="refined"
        )
        return [
            replace(
                rollout,
                problem=tried[rollout.group].problem,
                group=tried[rollout.group].group,
                behaviour_log_probs=None,
                source=replace(rollout.source, feedback=feedback_texts[rollout.group]),
            )
            for rollout in refinements
        ]
