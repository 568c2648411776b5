"""A search through the steps of each problem's answers, guided by values and by what the policy holds likely.

    rollouts: whole answers of the tree, each with what the search says of every step (emit: paths), or
              steps behind their histories, those of a node side by side (emit: steps; pairs by select siblings)

Monte-Carlo tree search with PUCT (models.episodes.tree, models.episodes.step_search) as process supervision without
anybody who labels steps: outcomes go up the tree and become values of steps. AlphaMath (paper 292) trains a value model
by them that then guides the search in place of outcomes (`critic_share`); ReST-MCTS* (paper 294) grows a quality from
how far each step leads (`values: quality`, models.formulas.step_quality); MedS3 (paper 320) keeps what was drawn to the
end; step-level preferences are siblings of different value (paper 34).

Which nodes are grown hangs on policy, critic, seed, round and problem alone. Right is what ends in the problem's
answer. Paths are no samples of a policy gradient: imitate the right ones (advantage step_values).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.bounds import Count, Positive, Share
from models.critic.fit import critic_of
from models.critic.model import read_values
from models.episodes.step_search import StepSearch
from models.episodes.tree import Backup, Growth, Node, Tree, Valuing
from models.formulas.step_quality import step_quality
from models.learner.packing import Sequences
from models.loop.rollout import Extra, Problem, Rollout
from models.loop.round_seeds import round_seed
from models.loop.world import World
from models.parts import part
from models.rollouts.sample import Sample
from models.rollouts.tree import turns_of_trees

Known = dict[int, float]
"""What nodes are worth, by their identity; those of which nobody knows are left out."""


@part("tree_search")
class TreeSearch(Sample):
    """Answers or steps that a search tried. Stands under `rollouts:`; `group_size` steps are drawn at a node."""

    group_size: Positive = 4
    nodes: Positive = 16
    """Answers, or steps where the critic alone guides, that are drawn of a problem before its search ends."""
    goals: Count = 0
    """Right answers that end it before; 0: only `nodes` does."""
    exploration: NonNegativeFloat = 1.0
    """Weight of what was rarely tried."""
    backup: Backup = "mean"
    """A step is worth the mean of what was found below it, what its best child is worth, or the mean of its children by
    how often the policy drew them, which is the chance that the policy goes on to a right answer."""
    critic_share: Share = 0.0
    """What the critic's estimate counts in the worth of a new step beside its end; 1: nothing is drawn to its end."""
    marks: tuple[str, ...] = ("\n", ";")
    """A token whose text holds one of these ends a step."""
    values: Literal["backed_up", "quality"] = "backed_up"
    """What is said of a step: its worth in the tree, or its quality by distance from a right answer."""
    emit: Literal["paths", "steps"] = "paths"
    """What the rollouts are."""

    @property
    def gives(self) -> tuple[Extra, ...]:
        """Values of steps, with the steps or along the answers."""
        return ("step_values",) if self.emit == "paths" else ("values",)

    @property
    def needs_companion(self) -> str:
        """The critic, where it guides."""
        return "critic" if self.critic_share else ""

    @property
    def reads_models(self) -> bool:
        """Where the critic guides."""
        return self.critic_share > 0

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Every answer that is drawn, or every step at a node."""
        return self.nodes if self.emit == "paths" else self.group_size

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """What the trees of `problems` hold, [answers] side by side by problem or [steps] by node."""
        valuing = Valuing(backup=self.backup)
        search = StepSearch(
            engine=world.sampler(),
            codec=world.codec,
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
            estimate=partial(critic_estimates, world) if self.critic_share else None,
            estimate_share=self.critic_share,
        )
        trees = search.grow(problems, round_seed(world.seed, round_number))
        known = [qualities(tree) if self.values == "quality" else backed_up(tree) for tree in trees]
        if self.emit == "paths":
            return whole_answers(world, problems, trees, known)
        worth = {node: value for values in known for node, value in values.items()}
        return turns_of_trees(problems, trees, lambda node: worth.get(id(node)))


def critic_estimates(world: World, problems: Sequence[Problem], nodes: Sequence[Node]) -> list[float]:
    """What the critic expects behind each node, [nodes], within what an answer can be worth, [0, 1]."""
    critic = critic_of(world.learner.companions["critic"])
    # A value stands before a token: one more of them, whichever, asks for that behind the step.
    read = Sequences([problem.tokens for problem in problems], [(*node.history, node.tokens[-1]) for node in nodes])
    rows = read_values(critic, read, autocast=world.learner.autocast, token_budget=world.token_budget)
    return [min(1.0, max(0.0, float(row[-1]))) for row in rows]


def backed_up(tree: Tree) -> Known:
    """Worth of every node that has one, as it went up the tree."""
    worth = ((node, node.value(tree.growth.valuing)) for node in tree.root.below())
    return {id(node): value for node, value in worth if value is not None}


def qualities(tree: Tree) -> Known:
    """Quality of every node, from how far it leads to a right answer that the search knows (models.formulas).

    A step below which no right answer is known counts as wrong, and as far away as the step before it was: it brought
    nothing nearer. Where the whole tree has none, all are worth nothing.
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
    world: World, problems: Sequence[Problem], trees: Sequence[Tree], known: Sequence[Known]
) -> list[Rollout]:
    """Every answer that was drawn, as often as it was, those of a problem side by side, [answers].

    Where each counted once, imitation would raise what the policy hardly says as much as what it mostly says.
    """
    ends = [(number, node) for number, tree in enumerate(trees) for node in tree.root.below() if node.over]
    texts = world.codec.text([node.history for _, node in ends])
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
            cut=end.cut,
            value=known[number].get(id(end)),
            step_values=tuple(values),
        )
        made += [replace(answer) for _ in range(end.times)]
    return made


def _log_probs(end: Node) -> Tensor | None:
    """Of a whole answer under the policy that drew its steps, [tokens], nats."""
    rows = [node.log_probs for node in end.path]
    return None if any(row is None for row in rows) else torch.cat([row for row in rows if row is not None])
