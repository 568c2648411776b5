"""A search through each problem's episodes: at every node several turns are tried, and values go up the tree.

    prompt | turn 1 a | heard | turn 2 a          rollouts are turns: the prompt of each is all that stands before it,
                              | turn 2 b          its group is its node, its value what the search says of it
           | turn 1 b | heard | turn 2 c

Monte-Carlo tree search as in Agent Q (paper 82), iTool (paper 312) and step-level Q (paper 355), depth first as in
ToolLLM's decision trees (paper 359), best first or breadth first (models.episodes.tree). Which nodes are grown hangs on
run, round and problem alone. An environment has no snapshot: to go on from a node it is opened again and the turns
before are replayed from its seed, and an environment that then answers otherwise is refused
(models.episodes.search). Equal turns at a node are the same node, so these are no samples of a policy gradient:
make pairs of them (select siblings), or imitate the best.

What sequences begin with alike, prompt and turns, the learner reads once. Evaluations play episodes without a search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import NonNegativeFloat

from models.bounds import Count, Positive, Share
from models.episodes.critique import Kind, Verdict, by_likelihood
from models.episodes.search import Critique, Search, Worth
from models.episodes.tree import Backup, Growth, Node, Order, Tree, Valuing
from models.loop.rollout import Problem, Rollout
from models.loop.round_seeds import round_seed
from models.loop.world import World
from models.parts import part
from models.rollouts.episodes import Episodes

WORTH: dict[Literal["solved", "rewards"], Worth] = {
    "solved": lambda turns, solved: float(solved),
    "rewards": lambda turns, solved: sum(turn.reward for turn in turns),
}


@part("tree")
class Searched(Episodes):
    """Turns that a search tried, each with its value. Stands under `rollouts:`; `group_size` turns a node."""

    gives = ("values",)
    search: Order = "uct"
    """Which node is expanded next: by upper confidence bounds, the best, level by level, or the deepest."""
    nodes: Positive = 32
    """Turns that are drawn of a problem before its search ends; episodes that are under way then go on to their end."""
    goals: Count = 0
    """Episodes that reach the goal before it ends; 0: only `nodes` ends it."""
    exploration: NonNegativeFloat = 1.0
    """Of uct: weight of what was rarely tried."""
    worth: Literal["solved", "rewards"] = "solved"
    """What an episode is worth: one where it reached the goal, or the environment's rewards together."""
    backup: Backup = "mean"
    """A node is worth the mean of the episodes below it, or what its best child is worth."""
    critique: Kind = "none"
    """What the policy thinks of its turns while they are tried: nothing, how sure it was, or its verdict."""
    critique_share: Share = 0.5
    """What its critique counts in the value of a node; without one nothing."""
    question: str = "Is the last step right?"
    """Of verdict: what the policy is asked; it says yes or no."""

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """The turns of the trees of `problems` whose value is known, those of a node side by side, [turns]."""
        search = Search(
            engine=world.sampler(),
            codec=world.codec,
            episodes=self.episodes,
            sampling=self.sampling,
            growth=self._growth,
            worth=WORTH[self.worth],
            critique=self._critique(world),
        )
        trees = search.grow(problems, round_seed(world.seed, round_number))
        valuing = self._growth.valuing
        return turns_of_trees(problems, trees, lambda node: node.value(valuing))

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

    def _critique(self, world: World) -> Critique | None:
        match self.critique:
            case "likelihood":
                return by_likelihood
            case "verdict":
                return Verdict(world.sampler(), world.codec, self.question)
        return None


def turns_of_trees(
    problems: Sequence[Problem], trees: Sequence[Tree], value_of: Callable[[Node], float | None]
) -> list[Rollout]:
    """Every turn whose value is known as a rollout behind its history, those of a node side by side, [turns]."""
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
        node.turn.said,
        finished=node.finished,
        trained=(False,) * len(node.tokens) if node.masked else None,
        cut=node.cut,
        solved=node.reached,
        history=len(history),
        value=value,
    )
