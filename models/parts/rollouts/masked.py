"""Sample from the policy among the tokens that a lagged copy of it finds likely (NLPO, RL4LMs; paper 4).

    mask(before)          = smallest set of tokens that the lagged policy gives `mask_top_p` together
    mu(token | before)    = pi(token | before) / Z(before) within the mask, zero outside;  Z = sum of pi over the mask

"Is Reinforcement Learning (Not) for Natural Language Processing" reduces the space of actions, tens of thousands of
tokens, to those that a policy known to be fluent would write, and renews that policy after a fixed number of updates.
Here the lagged policy is the recipe's reference: `previous_round` with `every` renews it, `frozen` never does.

All log-probs are those of mu: the recorded ones and the learner's own (`models.learner.mask`), that is old, new and the
reference's. Ratios are therefore between masked policies, as in the published code; the gradient moves no probability
into or out of the mask by itself. The policy is used as it was trained, within the mask of the lagged policy, which is
stored in `mask/` of its model folder; its behaviour outside the mask is not checked. With a mask of 1 the method is
plain sampling from the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from models.base.seeds import round_seed
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.voices import JointSampling, policy_voice, reference_voice, sample_jointly, save_reference
from models.policies.use import MASK, PolicyUse, write_use
from models.text.encoding import Codec


@part("masked")
class Masked(JointSampling):
    """Completions of the policy within the lagged policy's mask. Set under `rollouts:`."""

    exports = True
    mask_top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Probability mass of the mask under the lagged policy; 1 masks nothing."""

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return completions of `problems`, [prompts * G]; the same seed and round give the same completions.

        Raises:
            UserError: the recipe has no reference, which is the lagged policy.
        """
        voices = [policy_voice(resources.learner)]
        if self.mask_top_p < 1.0:  # else the lagged policy masks nothing
            voices.append(replace(reference_voice(resources.learner), veto_top_p=self.mask_top_p))
        return sample_jointly(resources, problems, voices, self.sampling, round_seed(resources.seed, round_number))

    def export(self, learner: Learner, codec: Codec, start: Path, folder: Path) -> None:
        """Write the lagged policy next to the policy, because both are used together. See `Rollouts.export`."""
        if self.mask_top_p < 1.0:
            save_reference(learner, start, folder / MASK)
            write_use(folder, PolicyUse(mask_top_p=self.mask_top_p))
