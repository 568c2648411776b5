"""A reward model of whole episodes that needs no labels: what an episode did is labelled afterwards (ARMAP; paper 71).

    triplets   (x', y, y-)      x': the goal that y reached, verified; y-: an episode that did something else
    fit        -log sigmoid(s(x', y) - s(x', y-))         Bradley-Terry on the score at an episode's last token

The actor explores, and hindsight says which task each episode solves (rollouts relabelled); a negative is synthesised
by putting another episode under the same task, which shows how it looks when words and deeds do not fit. No answer of
the data is read. The model is the policy's backbone with a head, and learns beside the policy before it judges; where
the paper fits it once and plans with it around a frozen actor, here the policy is trained on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from models.bounds import Positive
from models.critic.fit import critic_of
from models.critic.model import Critic, new_critic, read_values
from models.critic.settings import CriticSettings
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.learner.rows import rows_of
from models.loop.learner import Companion
from models.loop.rollout import Problem, Rollout
from models.loop.slots import Reward
from models.loop.truncation import worst_where_cut
from models.loop.world import World
from models.parts import part
from models.rewards.exact_answer import is_right

BUDGET = "schedule.token_budget"


def triplets(rollouts: Sequence[Rollout]) -> list[tuple[int, int]]:
    """Indices of a relabelled episode and of another to put under its goal in its stead, [pairs].

    A relabelled episode meets the next one of another goal, and one that was not relabelled, about another problem. One
    that states the answer of its own goal, by whatever way, is no wrong episode there, and is passed over.
    """
    labelled = [index for index, rollout in enumerate(rollouts) if rollout.origin == "relabelled"]
    known = {rollouts[index].text for index in labelled}
    others = [i for i, rollout in enumerate(rollouts) if rollout.origin == "policy" and rollout.text not in known]
    made: list[tuple[int, int]] = []
    for place, index in enumerate(labelled):
        for waiting in (labelled, others):
            turned = [*waiting[place + 1 :], *waiting[: place + 1]]
            goal = rollouts[index].problem
            apart = (i for i in turned if rollouts[i].problem.prompt != goal.prompt and not _states(rollouts[i], goal))
            made += [(index, negative) for negative in list(apart)[:1]]
    return made


def _states(rollout: Rollout, goal: Problem) -> bool:
    """Whether an episode, cut or not, states the answer of a goal."""
    return is_right(rollout.text, goal.answer, finished=True)


@part("trajectory_model")
class TrajectoryModel(Reward):
    """What a model of hindsight-labelled episodes says. Its companion learns before it judges."""

    companion = "trajectory_model"
    one_sequence = True
    reads_learner = True
    by: str = "exact_answer"
    """Label of a reward before this one that its scores are held against in metrics; nothing is learned from it."""
    passes: Positive = 4
    """Optimiser steps on each round's triplets."""
    optimiser: OptimiserSettings = field(default_factory=lambda: OptimiserSettings(learning_rate=3e-4, warmup_steps=5))
    """How it moves."""

    def accompany(self, policy: nn.Module) -> Companion:
        """The policy's backbone as it begins, with a fresh head."""
        return new_critic(policy, CriticSettings(optimiser=self.optimiser))

    def learn(self, world: World, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> dict[str, float]:
        """Fit the model to the round's triplets. Returns loss and accuracy before the last step, and the mean score of
        what the reward labelled `by` takes for good less that of the others."""
        pairs = triplets(rollouts)
        if not pairs:
            return {}
        companion = world.learner.companions[self.companion]
        critic = critic_of(companion)
        prompts = [rollouts[index].problem.tokens for index, _ in pairs for _ in range(2)]
        sequences = Sequences(prompts, [_closed(rollouts[index]) for pair in pairs for index in pair])
        together = [place // 2 for place in range(len(prompts))]
        metrics: dict[str, float] = {}
        for _ in range(self.passes):
            loss_sum, right = 0.0, 0
            for row in rows_of(
                critic, sequences, world.token_budget, together=together, setting="schedule.token_budget"
            ):
                order = sorted(range(len(row.indices)), key=row.indices.__getitem__)
                scores = _last(critic, row.sequences, world.learner.autocast)[order].view(-1, 2)
                losses = -logsigmoid(scores[:, 0] - scores[:, 1])
                row.backward(losses.sum() / len(pairs))
                loss_sum += row.counts * float(losses.detach().sum())
                right += row.counts * int((scores[:, 0] > scores[:, 1]).sum())
            companion.step(self.optimiser, f"rewards.{self.label}.optimiser")
            metrics = {"loss": loss_sum / len(pairs), "accuracy": right / len(pairs), "triplets": float(len(pairs))}
        good = components[self.by] > components[self.by].mean()
        if good.any() and not good.all():
            scores = self(world, rollouts)
            metrics["gap"] = float(scores[good].mean() - scores[~good].mean())
        return metrics

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Score of each episode under its own prompt, [completions]; of one that was cut the least of all."""
        critic = critic_of(world.learner.companions[self.companion])
        sequences = Sequences([r.problem.tokens for r in rollouts], [_closed(r) for r in rollouts])
        rows = read_values(critic, sequences, autocast=world.learner.autocast, token_budget=world.token_budget)
        return worst_where_cut(torch.stack([row[-1] for row in rows]).float(), rollouts)


def _closed(rollout: Rollout) -> tuple[int, ...]:
    """An episode up to the policy's last word, with a token behind it: the score is read where that would be
    predicted."""
    ids = rollout.completion[: rollout.turns[-1].stop] if rollout.turns else rollout.completion
    return (*ids, ids[-1])


def _last(critic: Critic, sequences: Sequences, autocast: torch.dtype | None) -> Tensor:
    ends = torch.tensor([len(completion) for completion in sequences.completions]).cumsum(0) - 1
    outputs = critic.outputs(sequences, autocast).squeeze(-1)
    return outputs[ends.to(outputs.device)]
