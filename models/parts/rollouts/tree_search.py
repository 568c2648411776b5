"""A search over the steps of each problem's answers, guided by values and by the policy's probabilities.

    rollouts: whole answers of the tree, each with the search's value of every step (emit: paths), or
              steps after their histories, those of a node next to each other (emit: steps; pairs by select siblings)

Monte-Carlo tree search with PUCT (models.agents.play.tree, models.agents.play.step_search) gives process supervision
without human labels of steps: outcomes are backed up the tree and become values of steps. AlphaMath (paper 292) trains
a value model on them, which then guides the search instead of outcomes (`critic_share`). ReST-MCTS* (paper 294) derives
a quality from how far each step leads (`values: quality`, models.parts.shared.step_quality). MedS3 (paper 320) keeps
the answers that were drawn to the end. Step-level preferences are siblings of different value (paper 34). Where no
outcome exists, rewards of single steps guide the search (`step_rewards`; COS(M+O)S, paper 134).

The nodes that are expanded depend on the policy, critic, seed, round and problem alone. An answer is right if it ends
in the problem's answer. Paths are not samples for a policy gradient: imitate the right ones (advantage step_values).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.agents.play.step_search import Estimate, StepSearch
from models.agents.play.tree import Backup, Growth, Node, SearchTree, Valuing
from models.base.bounds import Count, Positive, Share
from models.base.seeds import round_seed
from models.learner.packing import Sequences
from models.method.problem import Problem
from models.method.registry import part, slot_type
from models.method.resources import RunResources
from models.method.reward import Blend, Reward
from models.method.rollout import Extra, Rollout, RolloutEpisode, RolloutSource
from models.parts.rollouts.sample import Sample
from models.parts.rollouts.tree import turns_of_trees
from models.parts.shared.step_quality import step_quality
from models.reward_models.critic.fit import critic_of
from models.reward_models.critic.model import read_values

if TYPE_CHECKING:
    StepRewards = list[Reward]
else:
    StepRewards = slot_type("rewards")

Known = dict[int, float]
"""Values of nodes by their identity; nodes without a known value are left out."""


@part("tree_search")
class TreeSearch(Sample):
    """Answers or steps that a search tried. Set under `rollouts:`; `group_size` steps are drawn per node."""

    group_size: Positive = 4
    """Steps, or answers, that are drawn at a node."""
    nodes: Positive = 16
    """Answers, or steps if the critic alone guides, that are drawn for a problem before its search ends."""
    goals: Count = 0
    """Right answers that end the search early; 0: only `nodes` ends it."""
    exploration: NonNegativeFloat = 1.0
    """Weight of rarely tried steps."""
    backup: Backup = "mean"
    """Value of a step: the mean of the results below it, the value of its best child, or the mean of its children
    weighted by how often the policy drew them, which is the chance that the policy continues to a right answer."""
    critic_share: Share = 0.0
    """Weight of the critic's estimate in the value of a new step, next to its outcome; 1: no step is continued to the
    end of the answer."""
    step_rewards: StepRewards = field(default_factory=list)
    """Rewards of a new step after the steps before it; their weighted sum, held in [0, 1], guides the search. Empty:
    outcomes and the critic do."""
    reward_share: Share = 1.0
    """Weight of `step_rewards`, if there are any, in the value of a new step, next to its outcome; 1: no step is
    continued to the end of the answer, and outcomes do not count."""
    marks: tuple[str, ...] = ("\n", ";")
    """Texts that end a step: a token whose text holds one of them is the last of its step."""
    values: Literal["backed_up", "quality"] = "backed_up"
    """Value of a step: its value in the tree, or its quality by distance from a right answer."""
    emit: Literal["paths", "steps"] = "paths"
    """Kind of rollouts: whole answers, or single steps."""

    @property
    def misfit(self) -> str:
        """Error message if rewards of steps are set that cannot be read during a search."""
        if self.step_rewards and self.critic_share:
            return f"rollouts.critic_share is {self.critic_share}, but step_rewards guide the search; leave one out"
        for reward in self.step_rewards:
            if reward.companion or reward.needs_reward_model or reward.needs_judge or isinstance(reward, Blend):
                return (
                    f"rollouts.step_rewards: {reward.name} needs a model or a reward that a search does not have; use "
                    "a reward that reads the step alone, or the policy or the reference"
                )
        return ""

    @property
    def needs_reference(self) -> bool:
        """Whether a reward of the steps reads the reference."""
        return any(reward.needs_reference for reward in self.step_rewards)

    @property
    def gives(self) -> tuple[Extra, ...]:
        """Values of steps, given with the steps or along the answers."""
        return ("step_values",) if self.emit == "paths" else ("values",)

    @property
    def needs_companion(self) -> str:
        """The critic, if it guides the search."""
        return "critic" if self.critic_share else ""

    @property
    def reads_models(self) -> bool:
        """Whether the critic, or a reward that reads the policy or the reference, guides the search."""
        return self.critic_share > 0 or any(reward.reads_learner for reward in self.step_rewards)

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the number of answers that are drawn, or of steps at a node."""
        return self.nodes if self.emit == "paths" else self.group_size

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return the content of the trees of `problems`, [answers] grouped by problem or [steps] by node."""
        valuing = Valuing(backup=self.backup)
        search = StepSearch(
            engine=resources.sampler(),
            codec=resources.codec,
            sampling=self.sampling,
            growth=Growth(
                order="puct",
                candidates=self.group_size,
                nodes=self.nodes,
                goals=self.goals,
                exploration=self.exploration,
                valuing=valuing,
            ),
            marks=self.marks,
            estimate=self._estimate(resources),
            estimate_share=self.reward_share if self.step_rewards else self.critic_share,
            estimate_ends=bool(self.step_rewards),
        )
        trees = search.grow(problems, round_seed(resources.seed, round_number))
        known = [qualities(tree) if self.values == "quality" else backed_up(tree) for tree in trees]
        if self.emit == "paths":
            return whole_answers(resources, problems, trees, known)
        worth = {node: value for values in known for node, value in values.items()}
        return turns_of_trees(problems, trees, lambda node: worth.get(id(node)))

    def _estimate(self, resources: RunResources) -> Estimate | None:
        if self.step_rewards:
            return partial(rewarded_steps, resources, self.step_rewards)
        return partial(critic_estimates, resources) if self.critic_share else None


def rewarded_steps(
    resources: RunResources, rewards: Sequence[Reward], problems: Sequence[Problem], nodes: Sequence[Node]
) -> list[float]:
    """Return the weighted sum of the rewards of the nodes' steps, [nodes], held within [0, 1].

    A reward reads a step as a completion after the prompt and the steps before it, which counts as finished.
    """
    rollouts = [
        Rollout(
            replace(problem, tokens=(*problem.tokens, *node.history[: len(node.history) - len(node.tokens)])),
            number,
            node.tokens,
            node.log_probs,
            node.turn.text,
            True,
        )
        for number, (problem, node) in enumerate(zip(problems, nodes, strict=True))
    ]
    total = torch.zeros(len(rollouts))
    for reward in rewards:
        total += reward.weight * reward(resources, rollouts).to(total)
    return [min(1.0, max(0.0, value)) for value in total.tolist()]


def critic_estimates(resources: RunResources, problems: Sequence[Problem], nodes: Sequence[Node]) -> list[float]:
    """Return the critic's estimate after each node, [nodes], within the range of an answer's value, [0, 1]."""
    critic = critic_of(resources.learner.companions["critic"])
    # The critic reads a value before each token: one more token, any one, gives the value after the step.
    read = Sequences([problem.tokens for problem in problems], [(*node.history, node.tokens[-1]) for node in nodes])
    rows = read_values(critic, read, autocast=resources.learner.autocast, token_budget=resources.token_budget)
    return [min(1.0, max(0.0, float(row[-1]))) for row in rows]


def backed_up(tree: SearchTree) -> Known:
    """Return the backed-up value of every node that has one."""
    worth = ((node, node.value(tree.growth.valuing)) for node in tree.root.below())
    return {id(node): value for node, value in worth if value is not None}


def qualities(tree: SearchTree) -> Known:
    """Return the quality of every node, from its distance to a right answer that the search knows.

    The formula is in `models.parts.shared.step_quality`.

    A step below which no right answer is known counts as wrong, at the same distance as the step before it, because it
    brought the answer no nearer. If the whole tree has no right answer, all nodes have quality 0.
    """
    distances: dict[int, int | None] = {}
    for node in reversed(list(tree.root.below())):
        below = [known + 1 for child in node.children if (known := distances[id(child)]) is not None]
        distances[id(node)] = 0 if node.over and node.solved else min(below, default=None)
    made = {id(tree.root): 0.0}
    for node in tree.root.below():
        if node.parent is None:
            continue
        distance, before = distances[id(node)], distances[id(node.parent)]
        wrong = distance is None
        if distance is None:
            distance = distances[id(node)] = before
        made[id(node)] = 0.0 if distance is None else step_quality(made[id(node.parent)], distance, float(wrong))
    return made


def whole_answers(
    resources: RunResources, problems: Sequence[Problem], trees: Sequence[SearchTree], known: Sequence[Known]
) -> list[Rollout]:
    """Return every answer that was drawn, as often as it was, those of a problem next to each other, [answers].

    If each counted once, imitation would raise rare answers as much as frequent ones.
    """
    ends = [(number, node) for number, tree in enumerate(trees) for node in tree.root.below() if node.over]
    texts = resources.codec.text([node.history for _, node in ends])
    made: list[Rollout] = []
    for (number, end), text in zip(ends, texts, strict=True):
        values: list[float | None] = []
        for node in end.path:
            values += [known[number].get(id(node.parent)), *[None] * (len(node.tokens) - 1)]
        answer = Rollout(
            problems[number],
            number,
            end.history,
            _log_probs(end),
            text,
            end.finished,
            episode=RolloutEpisode(cut=end.cut),
            source=RolloutSource(value=known[number].get(id(end)), step_values=tuple(values)),
        )
        made += [replace(answer) for _ in range(end.times)]
    return made


def _log_probs(end: Node) -> Tensor | None:
    """Return the log-probs of a whole answer under the policy that drew its steps, [tokens], nats."""
    rows = [node.log_probs for node in end.path]
    return None if any(row is None for row in rows) else torch.cat([row for row in rows if row is not None])
