"""Sample from the geometric mixture of policy and reference (Nash-MD, arXiv 2312.00886; papers 49 and 348).

    mu(token | before)  proportional to  pi(token | before)^(1 - share) * ref(token | before)^share

normalised at every token, as in "Nash Learning from Human Feedback": whole completions of the mixture could not be
drawn one token after the other. The mixture is the policy regularised towards the reference. Learning from its
completions, or against them, makes the last policy converge, whereas self-play alone would cycle.

    mixture                 all completions come from the mixture, and all are learned from (IPO-MD)
    sample_beside_mixture   the policy's own completions are learned from, those of the mixture are their opponents

Both models are the learner's own and decode in step, so no engine is needed. The recorded log-probs are those of the
sampling distribution: the mixture's for its completions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.base.bounds import Positive, Share
from models.base.seeds import round_seed
from models.engines.engine import Sampling
from models.method.problem import Origin, Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.voices import JointSampling, policy_voice, reference_voice, sample_jointly


@part("mixture")
class Mixture(JointSampling):
    """Completions of the mixture, which the policy is trained on. Set under `rollouts:`."""

    reference_share: Share = 0.125
    """Exponent of the reference: 0 is the policy alone, 1 the reference alone."""

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return completions of the mixture, those of one prompt next to each other, [prompts * G]."""
        seed = round_seed(resources.seed, round_number)
        return draw_from_mixture(resources, problems, self.sampling, self.reference_share, seed)


@part("sample_beside_mixture")
class SampleBesideMixture(Mixture):
    """The policy's completions, which are trained on, and opponents from the mixture, which are not."""

    gives = ("opponents",)
    opponents: Positive = 1
    """Completions of the mixture per prompt."""

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the number of samples and opponents."""
        return self.group_size + self.opponents

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return the policy's completions, then the opponents, prompt by prompt, [prompts * (G + opponents)]."""
        seed = 2 * round_seed(resources.seed, round_number)
        own = draw_from_mixture(resources, problems, self.sampling, 0.0, seed)
        against = replace(self.sampling, samples=self.opponents)
        drawn = draw_from_mixture(resources, problems, against, self.reference_share, seed + 1, origin="reference")
        held_back = [replace(rollout, trained=(False,) * len(rollout.completion)) for rollout in drawn]
        return [
            rollout
            for number in range(len(problems))
            for rollout in (
                *own[number * self.group_size : (number + 1) * self.group_size],
                *held_back[number * self.opponents : (number + 1) * self.opponents],
            )
        ]


def draw_from_mixture(
    resources: RunResources,
    problems: Sequence[Problem],
    sampling: Sampling,
    share: float,
    seed: int,
    origin: Origin = "policy",
) -> list[Rollout]:
    """Sample the mixture's completions of `problems`, those of one prompt next to each other, [prompts * G].

    Args:
        share: exponent of the reference, in [0, 1]; at its ends only one of the models is read.
        seed: seed of a generator of its own; torch's global one is not used.
        origin: label of the completions' source.

    Raises:
        UserError: the recipe has no reference but the mixture needs one.
    """
    learner = resources.learner
    voices = [policy_voice(learner, 1.0 - share), replace(reference_voice(learner), weight=share)]
    return sample_jointly(resources, problems, [voice for voice in voices if voice.weight > 0], sampling, seed, origin)
