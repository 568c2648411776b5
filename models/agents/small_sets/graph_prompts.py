"""Graphs of five nodes whose class is the more frequent of two kinds, and prompts that were chosen at random."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from models.agents.environments.graph_prompts import GraphPrompts
from models.agents.play.graph_network import PROMPTS, random_graph
from models.agents.small_sets.rows import SmallSet, SmallTask

TARGET = "cd"
"""The kinds whose counts make the class; the frozen network compares two others."""


@dataclass(frozen=True)
class GraphPromptsSet(SmallSet):
    """Random connected graphs without a tie."""

    nodes: int = 5
    """Number of nodes of each graph."""
    aimless: str = "aimless"
    """Flaw of the demonstrations, whose choices are random."""

    def draw(self, random: Random) -> SmallTask:
        """Draw a graph; the prompt states the kind of each node and the edges."""
        numbers = np.random.default_rng(random.randrange(2**32))
        while True:
            graph = random_graph(numbers, self.nodes, "abccdd")
            counts = [graph.kinds.count(kind) for kind in TARGET]
            if counts[0] != counts[1]:
                break
        nodes = " , ".join(f"{number} {kind}" for number, kind in enumerate(graph.kinds, 1))
        edges = " , ".join(f"{node + 1} {other + 1}" for node, other in graph.edges)
        label = int(counts[0] < counts[1])
        answer = json.dumps({"kinds": graph.kinds, "edges": graph.edges, "label": label})
        return SmallTask(f"graph : {nodes} ; {edges}", answer, self.nodes)

    def script(self, random: Random, task: SmallTask) -> tuple[str, Sequence[str]]:
        """Draw random prompts, as many as an episode has."""
        environment = self.environment()
        assert isinstance(environment, GraphPrompts)
        turns = [f"{random.randint(1, self.nodes)} {random.choice(PROMPTS)}" for _ in range(environment.prompts)]
        return self.aimless, turns


SET = GraphPromptsSet(GraphPrompts)
