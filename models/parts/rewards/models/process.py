"""Step values of a process reward model, with two changes against reward hacking of their sum (paper 86, 2410.15115).

Source: "On Designing Effective RL Reward at Training Time for LLM Reasoning" (arXiv 2410.15115; paper 86).

    Clip    r_k <- min(r_k, eta) - eta            never above zero: no extra step is profitable by itself
    Delta   r_k <- r_k - r_{k+1}                  the return from step k on is r_k, whatever follows

Raw values are positive, so a completion of more steps earns more, and a policy learns to repeat steps that are
certainly right. With Clip a further step can only cost. With Delta the sum of a completion telescopes to its first
step's value and is bounded whatever its length. With both, the sum is in [-eta, 0]. The last step is left to the
outcome reward, which knows its value, while the model only estimates it (`last_step`).

Each value is given at the last token of its step; the other tokens have none.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.base.bounds import Share
from models.base.errors import UserError
from models.learner.packing import Sequences
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import TokenReward
from models.method.rollout import Rollout
from models.reward_models.scorer import StepScorer


def shaped_steps(values: Tensor, clip: float | None, delta: bool, last_step: bool) -> Tensor:
    """Compute the rewards of a completion's steps, [steps], by Clip, last step and Delta, in this order.

    Args:
        values: values of the steps, [steps].
        clip: eta; None: no Clip.
        delta: whether to apply Delta.
        last_step: whether the model also rewards the last step.
    """
    rewards = values if clip is None else values.clamp(max=clip) - clip
    if len(rewards) and not last_step:
        rewards = torch.cat([rewards[:-1], rewards.new_zeros(1)])
    return rewards - torch.cat([rewards[1:], rewards.new_zeros(1)]) if delta and len(rewards) else rewards


@part("process")
class ProcessReward(TokenReward):
    """Value of each step by the process reward model of this run."""

    needs_reward_model = True
    needs_steps = True
    one_sequence = True
    clip: Share | None = None
    """eta of Clip: steps of this value or above get 0, all others less; null: no Clip."""
    delta: bool = False
    """Whether the value of the next step is subtracted from that of each step."""
    last_step: bool = False
    """Whether the step that states the answer gets its value too, in addition to the outcome."""

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return the rewards at the last token of each step, zero elsewhere, [completions] tensors of [tokens of it].

        Steps of an episode's environment get none. An empty completion has no step.

        Raises:
            UserError: the reward model of the run is not a process reward model.
        """
        scorer = resources.score_with_reward_model
        if not isinstance(scorer, StepScorer):
            raise UserError(f"reward {self.label} reads the values of steps: fit them with reward_model.process")
        rows = [torch.zeros(len(rollout.completion)) for rollout in rollouts]
        nonempty = [place for place, rollout in enumerate(rollouts) if rollout.completion]
        prompts = [rollouts[place].problem.tokens for place in nonempty]
        ends, values = scorer.steps(Sequences(prompts, [rollouts[place].completion for place in nonempty]))
        for place, cut, step_values in zip(nonempty, ends, values, strict=True):
            written = torch.tensor(rollouts[place].written)[list(cut)]
            written_ends = torch.tensor(cut)[written]
            rows[place][written_ends] = shaped_steps(step_values[written], self.clip, self.delta, self.last_step)
        return rows
