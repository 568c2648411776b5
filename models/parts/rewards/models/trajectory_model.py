"""A reward model of whole episodes without human labels: episodes are relabelled in hindsight (ARMAP; paper 71).

    triplets   (x', y, y-)      x': the goal that y reached, verified; y-: an episode that did something else
    fit        -log sigmoid(s(x', y) - s(x', y-))         Bradley-Terry on the score at an episode's last token

The actor explores, and hindsight gives the task that each episode solves (rollouts relabelled). A negative is made by
pairing another episode with the same task, as an example of a mismatch between task and actions. The answers of the
data are not read. The model is the policy's backbone with a head, and is trained together with the policy, before it
scores. The paper fits it once and plans with it around a frozen actor; here the policy is trained on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from models.answers.exact import is_right
from models.base.bounds import Positive
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.learner.rows import rows_of
from models.method.learner import Companion
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.method.schedule import BUDGET_KEY
from models.method.truncation import worst_where_cut
from models.reward_models.critic.fit import critic_of
from models.reward_models.critic.model import Critic, new_critic, read_values
from models.reward_models.critic.settings import CriticSettings


def triplets(rollouts: Sequence[Rollout]) -> list[tuple[int, int]]:
    """Return the indices of a relabelled episode and of another episode as its negative under the same goal, [pairs].

    A relabelled episode is paired with the next one of another goal, and with one that was not relabelled, of another
    problem. An episode that states the answer of that goal, in any way, is not a valid negative and is skipped.
    """
    labelled = [index for index, rollout in enumerate(rollouts) if rollout.source.origin == "relabelled"]
    known = {rollouts[index].text for index in labelled}
    others = [
        i for i, rollout in enumerate(rollouts) if rollout.source.origin == "policy" and rollout.text not in known
    ]
    made: list[tuple[int, int]] = []
    for place, index in enumerate(labelled):
        for waiting in (labelled, others):
            turned = [*waiting[place + 1 :], *waiting[: place + 1]]
            goal = rollouts[index].problem
            apart = (i for i in turned if rollouts[i].problem.prompt != goal.prompt and not _states(rollouts[i], goal))
            made += [(index, negative) for negative in list(apart)[:1]]
    return made


def _states(rollout: Rollout, goal: Problem) -> bool:
    """Return whether an episode, cut or not, states the answer of a goal."""
    return is_right(rollout.text, goal.answer, finished=True)


@part("trajectory_model")
class TrajectoryModel(Reward):
    """Score by a model of episodes relabelled in hindsight. The model learns from the round before it scores."""

    companion = "trajectory_model"
    one_sequence = True
    reads_learner = True
    by: str = "exact_answer"
    """Label of an earlier reward that the scores are compared with in metrics; it is not used for training."""
    passes: Positive = 4
    """Optimiser steps on each round's triplets."""
    optimiser: OptimiserSettings = field(default_factory=lambda: OptimiserSettings(learning_rate=3e-4, warmup_steps=5))
    """Optimiser of the model."""

    def accompany(self, policy: nn.Module) -> Companion:
        """Create a critic from the backbone of the initial policy, with a new head."""
        return new_critic(policy, CriticSettings(optimiser=self.optimiser))

    def learn(
        self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]
    ) -> dict[str, float]:
        """Fit the model to the round's triplets.

        Returns loss and accuracy before the last step, and the mean score of completions whose reward `by` is above
        average minus that of the others.
        """
        pairs = triplets(rollouts)
        if not pairs:
            return {}
        companion = resources.learner.companions[self.companion]
        critic = critic_of(companion)
        prompts = [rollouts[index].problem.tokens for index, _ in pairs for _ in range(2)]
        sequences = Sequences(prompts, [_closed(rollouts[index]) for pair in pairs for index in pair])
        together = [place // 2 for place in range(len(prompts))]
        metrics: dict[str, float] = {}
        for _ in range(self.passes):
            loss_sum, right = 0.0, 0
            for row in rows_of(critic, sequences, resources.token_budget, together=together, setting=BUDGET_KEY):
                order = sorted(range(len(row.indices)), key=row.indices.__getitem__)
                scores = _last(critic, row.sequences, resources.learner.autocast)[order].view(-1, 2)
                losses = -logsigmoid(scores[:, 0] - scores[:, 1])
                row.backward(losses.sum() / len(pairs))
                loss_sum += row.counts * float(losses.detach().sum())
                right += row.counts * int((scores[:, 0] > scores[:, 1]).sum())
            companion.step(self.optimiser, f"rewards.{self.label}.optimiser")
            metrics = {"loss": loss_sum / len(pairs), "accuracy": right / len(pairs), "triplets": float(len(pairs))}
        good = components[self.by] > components[self.by].mean()
        if good.any() and not good.all():
            scores = self(resources, rollouts)
            metrics["gap"] = float(scores[good].mean() - scores[~good].mean())
        return metrics

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the score of each episode under its own prompt, [completions].

        An episode that was cut gets the least of all.
        """
        critic = critic_of(resources.learner.companions[self.companion])
        sequences = Sequences([r.problem.tokens for r in rollouts], [_closed(r) for r in rollouts])
        rows = read_values(critic, sequences, autocast=resources.learner.autocast, token_budget=resources.token_budget)
        return worst_where_cut(torch.stack([row[-1] for row in rows]).float(), rollouts)


def _closed(rollout: Rollout) -> tuple[int, ...]:
    """Return an episode up to the policy's last token, with one token appended.

    The score is read at the position that predicts the appended token.
    """
    ids = rollout.completion[: rollout.episode.turns[-1].stop] if rollout.episode.turns else rollout.completion
    return (*ids, ids[-1])


def _last(critic: Critic, sequences: Sequences, autocast: torch.dtype | None) -> Tensor:
    ends = torch.tensor([len(completion) for completion in sequences.completions]).cumsum(0) - 1
    outputs = critic.outputs(sequences, autocast).squeeze(-1)
    return outputs[ends.to(outputs.device)]
