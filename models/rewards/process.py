"""The value of every step by a process reward model, with the two changes that keep a sum of them from being hacked.

Source: "On Designing Effective RL Reward at Training Time for LLM Reasoning" (arXiv 2410.15115; paper 86).

    Clip    r_k <- min(r_k, eta) - eta            never above zero: no step is worth writing for its own sake
    Delta   r_k <- r_k - r_{k+1}                  what is still to come from step k on is r_k, whatever follows

Raw values are positive, so a completion of more steps earns more, and a policy learns to repeat steps that are surely
right. With Clip a further step can only cost; with Delta the sum of a completion telescopes to its first step's value
and is bounded whatever its length. Both: it lies in [-eta, 0]. The last step is left to the outcome, which says of it
what the model would only guess (`last_step`).

Each value stands at the last token of its step; the other tokens have none.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.bounds import Share
from models.errors import UserError
from models.learner.packing import Sequences
from models.loop.rollout import Rollout
from models.loop.slots import TokenReward
from models.loop.world import World
from models.parts import part
from models.reward_model.scorer import StepScorer


def shaped_steps(values: Tensor, clip: float | None, delta: bool, last_step: bool) -> Tensor:
    """Rewards of a completion's steps, [steps], in the order Clip, last step, Delta.

    Args:
        values: of the steps, [steps].
        clip: eta; None: no Clip.
        delta: whether there is Delta.
        last_step: whether the last step is rewarded by the model too.
    """
    rewards = values if clip is None else values.clamp(max=clip) - clip
    if len(rewards) and not last_step:
        rewards = torch.cat([rewards[:-1], rewards.new_zeros(1)])
    return rewards - torch.cat([rewards[1:], rewards.new_zeros(1)]) if delta and len(rewards) else rewards


@part("process")
class Process(TokenReward):
    """What the process reward model of this run says of each step."""

    needs_reward_model = True
    needs_steps = True
    one_sequence = True
    clip: Share | None = None
    """eta: no step is worth more than 0, which is what this value and all above it are worth; null: as they are."""
    delta: bool = False
    """A step is worth its value less that of the next one."""
    last_step: bool = False
    """Whether the step that states the answer is rewarded too, beside the outcome."""

    def tokens(self, world: World, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Rewards at the last token of each step, zero elsewhere, [completions] tensors of [tokens of it].

        Of an episode the steps of its environment are worth nothing. An empty completion has no step.

        Raises:
            UserError: the reward model of the run is none of steps.
        """
        scorer = world.score_with_reward_model
        if not isinstance(scorer, StepScorer):
            raise UserError(f"reward {self.label} reads the values of steps: fit them with reward_model.process")
        rows = [torch.zeros(len(rollout.completion)) for rollout in rollouts]
        some = [place for place, rollout in enumerate(rollouts) if rollout.completion]
        prompts = [rollouts[place].problem.tokens for place in some]
        ends, values = scorer.steps(Sequences(prompts, [rollouts[place].completion for place in some]))
        for place, cut, said in zip(some, ends, values, strict=True):
            written = torch.tensor(rollouts[place].written)[list(cut)]
            own = torch.tensor(cut)[written]
            rows[place][own] = shaped_steps(said[written], self.clip, self.delta, self.last_step)
        return rows
