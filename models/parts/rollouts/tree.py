"""A search over each problem's episodes: several turns are tried at every node, and values are backed up the tree.

    prompt | turn 1 a | reply | turn 2 a          each rollout is a turn: its prompt is the whole history before it,
                              | turn 2 b          its group is its node, its value is the one that the search gives it
           | turn 1 b | reply | turn 2 c

Monte-Carlo tree search as in Agent Q (paper 82), iTool (paper 312) and step-level Q (paper 355), depth first as in
ToolLLM's decision trees (paper 359), best first or breadth first (models.agents.play.tree). The nodes that are expanded
depend on the run, round and problem alone. An environment has no snapshot: to continue from a node, it is opened again
and the earlier turns are replayed from its seed. An environment whose answers then differ is refused
(models.agents.play.search). Equal turns at a node are the same node, so the turns are not samples for a policy
gradient: make pairs of them (select siblings), or imitate the best.

The learner reads the common beginning of sequences, prompt and turns, once. Evaluations play episodes without a search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import NonNegativeFloat

from models.agents.play.critique import Kind, VerdictCritique, by_likelihood
from models.agents.play.search import Critique, Search, Worth
from models.agents.play.tree import Backup, Growth, Node, Order, SearchTree, Valuing
from models.base.bounds import Count, Positive, Share
from models.base.seeds import round_seed
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutEpisode, RolloutSource
from models.parts.rollouts.episodes import Episodes

WORTH: dict[Literal["solved", "rewards"], Worth] = {
    "solved": lambda turns, solved: float(solved),
    "rewards": lambda turns, solved: sum(turn.reward for turn in turns),
}


@part("tree")
class Searched(Episodes):
    """Turns that a search tried, each with its value. Set under `rollouts:`; `group_size` turns per node."""

    gives = ("values",)
    search: Order = "uct"
    """Order of expansion: by upper confidence bounds, the best node, level by level, or the deepest node."""
    nodes: Positive = 32
    """Turns that are drawn for a problem before its search ends; episodes in progress are then played to their end."""
    goals: Count = 0
    """Episodes that reach the goal and so end the search early; 0: only `nodes` ends it."""
    exploration: NonNegativeFloat = 1.0
    """Weight of rarely tried turns (uct)."""
    worth: Literal["solved", "rewards"] = "solved"
    """Value of an episode: 1 if it reached the goal, or the sum of the environment's rewards."""
    backup: Backup = "mean"
    """Value of a node: the mean of the episodes below it, or the value of its best child."""
    critique: Kind = "none"
    """Critique of the turns by the policy during the search: none, its own confidence, or its verdict."""
    critique_share: Share = 0.5
    """Share of the critique in the value of a node; without a critique it is 0."""
    question: str = "Is the last step right?"
    """Question to the policy for the verdict; it answers yes or no."""

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return the turns of known value of the trees of `problems`, those of a node next to each other, [turns]."""
        search = Search(
            engine=resources.sampler(),
            codec=resources.codec,
            episodes=self.episodes,
            sampling=self.sampling,
            growth=self._growth,
            worth=WORTH[self.worth],
            critique=self._critique(resources),
        )
        trees = search.grow(problems, round_seed(resources.seed, round_number), self._prior_weights(problems))
        valuing = self._growth.valuing
        return turns_of_trees(problems, trees, lambda node: node.value(valuing))

    def _prior_weights(self, problems: Sequence[Problem]) -> list[float] | None:
        """Return the weight of the policy's prior in each tree, [problems]; None: zero."""
        return None

    @property
    def _growth(self) -> Growth:
        share = 0.0 if self.critique == "none" else self.critique_share
        return Growth(
            order=self.search,
            candidates=self.group_size,
            nodes=self.nodes,
            goals=self.goals,
            exploration=self.exploration,
            valuing=Valuing(backup=self.backup, critique_share=share),
        )

    def _critique(self, resources: RunResources) -> Critique | None:
        match self.critique:
            case "likelihood":
                return by_likelihood
            case "verdict":
                return VerdictCritique(resources.sampler(), resources.codec, self.question)
        return None


def turns_of_trees(
    problems: Sequence[Problem], trees: Sequence[SearchTree], value_of: Callable[[Node], float | None]
) -> list[Rollout]:
    """Return every turn of known value as a rollout after its history, those of a node next to each other, [turns]."""
    rollouts: list[Rollout] = []
    group = 0
    for problem, tree in zip(problems, trees, strict=True):
        for node in tree.root.below():
            known = [(child, value_of(child)) for child in node.children]
            made = [
                _as_rollout(problem, group, child, value) for child, value in known if value is not None or child.masked
            ]
            group += bool(made)
            rollouts += made
    return rollouts


def _as_rollout(problem: Problem, group: int, node: Node, value: float | None) -> Rollout:
    assert node.parent is not None, "the root has no turn"
    history = node.parent.history
    return Rollout(
        replace(problem, tokens=(*problem.tokens, *history)) if history else problem,
        group,
        node.tokens,
        node.log_probs,
        node.turn.text,
        finished=node.finished,
        trained=(False,) * len(node.tokens) if node.masked else None,
        episode=RolloutEpisode(cut=node.cut, solved=node.reached, history=len(history)),
        source=RolloutSource(value=value),
    )
