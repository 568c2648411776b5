"""Feature prompts are attached to nodes of a graph, so that a frozen graph network does another task (RELIEF).

    prompt   graph : 1 c , 2 d , 3 c , 4 a ; 1 2 , 1 3 , 3 4       kinds of the nodes, then the edges
    turns    1 +a | 3 +a | 2 -b                                    the environment answers with the loss: 0.91 | 0.40
    reward   loss before the turn - loss after it, of the frozen network at the graph's label

After "RELIEF: Reinforcement Learning Empowered Graph Feature Prompt Tuning" (paper 24). A turn selects a node and the
content of its prompt. The network was fitted to another task (`models.agents.play.graph_network`) and never changes;
the policy has to infer the class from the graph. The published content is a vector, here it is a word for a direction.
The smallest loss is known, because all choices of prompts are compared.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb
from typing import Annotated, Literal

from pydantic import Field

from models.agents.play.graph_network import PROMPTS, KindGraph, Prompt, graph_network
from models.answers.hidden import Hidden, hidden
from models.base.bounds import Share
from models.base.errors import UserError
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part

MOST_CHOICES = 50_000
"""Largest number of choices of prompts, all of which are compared to know the best one."""


class HiddenGraph(Hidden):
    """Hidden answer of a problem: its graph and its class."""

    kinds: Annotated[str, Field(pattern=r"^[abcd]{2,12}$")]
    """Kind of each node."""
    edges: tuple[tuple[int, int], ...]
    """Pairs of nodes, counted from 0."""
    label: Literal[0, 1]
    """Class of the graph."""


@part("graph_prompts")
class GraphPrompts(Environment):
    """Choices of nodes and of the prompts that are added to their features."""

    needs_answers = True
    prompts: Annotated[int, Field(ge=1, le=4)] = 3
    """Number of prompts of an episode, one a turn."""
    near: Share = 0.95
    """Share of the largest possible decrease of the loss from which on the goal is reached."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem, whose answer is `{"kinds": "cda", "edges": [[0, 1]], "label": 1}`.

        Raises:
            UserError: the answer has another form, or there are too many choices of prompts.
        """
        known = hidden(problem, HiddenGraph, self.name)
        nodes = len(known.kinds)
        if any(not 0 <= node < nodes for edge in known.edges for node in edge):
            raise UserError(
                f"problem {problem.id}: an edge names a node that the graph does not have (0 to {nodes - 1})"
            )
        count = comb(nodes * len(PROMPTS) + self.prompts - 1, self.prompts)
        if count > MOST_CHOICES:
            raise UserError(
                f"problem {problem.id}: {nodes} nodes have {count} choices of prompts, and at most {MOST_CHOICES} are "
                "compared; use smaller graphs, or lower rollouts.environment.prompts"
            )
        return _Prompting(self, KindGraph(known.kinds, known.edges), known.label)


@lru_cache(maxsize=4096)
def least_loss(graph: KindGraph, label: int, count: int) -> float:
    """Return the smallest loss of a graph with `count` prompts, nats, computed once."""
    return graph_network().least_loss(graph, label, count)


class _Prompting:
    def __init__(self, settings: GraphPrompts, graph: KindGraph, label: int) -> None:
        self._settings, self._graph, self._label = settings, graph, label
        self._given: list[Prompt] = []

    def reset(self, seed: int) -> tuple[str, Info]:
        self._given = []
        return "", self._info(solved=False)

    def _info(self, *, solved: bool) -> Info:
        actions = tuple(f"{node + 1} {word}" for node in range(len(self._graph.kinds)) for word in PROMPTS)
        return {"state": str(sorted(self._given)), "actions": actions, "solved": solved}

    def _loss(self) -> float:
        return graph_network().loss(self._graph, self._label, self._given)

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        info = self._info(solved=False)
        if turn.strip() not in info["actions"]:
            return f"error: node {PROMPTS[0]}", 0.0, False, False, info
        before, (number, word) = self._loss(), turn.split()
        self._given.append((int(number) - 1, word))
        after, ended = self._loss(), len(self._given) == self._settings.prompts
        return f"{after:.2f}", before - after, ended, False, self._info(solved=ended and self._is_near(after))

    def _is_near(self, loss: float) -> bool:
        """Return whether a loss at the end of the episode reaches the goal."""
        first = graph_network().loss(self._graph, self._label)
        least = least_loss(self._graph, self._label, self._settings.prompts)
        return first - loss >= self._settings.near * (first - least) - 1e-12

    def close(self) -> None:
        return None
