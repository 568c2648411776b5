"""A frozen graph network that classifies graphs, and the loss of a graph whose nodes have feature prompts.

    H1 = relu(N X W + b)      H2 = relu(N H1 V + c)      logits = [mean(H2), 1] R
    X: one row per node, its kind one-hot, plus the prompts of the node      N = D^-1/2 (A + I) D^-1/2

The two layers are those of Kipf and Welling's graph convolution with random weights. The readout is fitted, on random
graphs, to the network's own task: whether kind a or kind b is more frequent. All weights are float64, depend on nothing
but the constants of this file, and never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
KINDS = "abcd"
"""Kinds of nodes, each a dimension of the features."""
SOURCE = "ab"
"""The kinds whose counts the network was fitted to compare."""
WIDTH, GRAPHS, SEED = 24, 600, 0
"""Hidden units of a layer, graphs that the readout is fitted to, and the seed of all weights."""
STRENGTH = 0.5
"""Magnitude of a prompt."""
PROMPTS = tuple(sign + kind for kind in KINDS for sign in "+-")
"""Words of the prompts: a kind that is added to the features of a node, or subtracted."""
_RIDGE = 1e-3
_SHARPNESS = 4.0
"""Logit of a class that the readout is fitted to, plus or minus."""

Prompt = tuple[int, str]
"""A node, counted from 0, and the word of its prompt."""


@dataclass(frozen=True)
class KindGraph:
    """A connected graph whose nodes have kinds."""

    kinds: str
    """Kind of each node, [nodes]."""
    edges: tuple[tuple[int, int], ...]
    """Pairs of nodes, counted from 0, the smaller one first."""

    @property
    def features(self) -> Array:
        """Kind of each node, one-hot, [nodes, kinds]."""
        return np.eye(len(KINDS))[[KINDS.index(kind) for kind in self.kinds]]

    @property
    def neighbourhood(self) -> Array:
        """The normalised adjacency matrix with self-loops, [nodes, nodes]."""
        matrix = np.eye(len(self.kinds))
        for node, other in self.edges:
            matrix[node, other] = matrix[other, node] = 1.0
        root = 1.0 / np.sqrt(matrix.sum(1))
        normalised: Array = root[:, None] * matrix * root
        return normalised


def random_graph(random: np.random.Generator, nodes: int, kinds: str) -> KindGraph:
    """Draw a connected graph: a random tree and up to two further edges.

    Args:
        kinds: kinds that are drawn from.
    """
    tree = {(int(random.integers(node)), node) for node in range(1, nodes)}
    pairs = [(node, other) for other in range(nodes) for node in range(other) if (node, other) not in tree]
    more = random.permutation(len(pairs))[: random.integers(0, 3)]
    edges = tree | {pairs[index] for index in more}
    return KindGraph("".join(random.choice(list(kinds), nodes)), tuple(sorted(edges)))


def prompted(features: Array, prompts: Sequence[Prompt]) -> Array:
    """Return the features with prompts added, [nodes, kinds]."""
    changed = features.copy()
    for node, word in prompts:
        changed[node, KINDS.index(word[1])] += STRENGTH if word[0] == "+" else -STRENGTH
    return changed


class GraphNetwork:
    """The frozen network."""

    def __init__(self) -> None:
        random = np.random.default_rng(SEED)
        self._layers = tuple(
            (random.standard_normal((inputs, WIDTH)) / np.sqrt(inputs), 0.3 * random.standard_normal(WIDTH))
            for inputs in (len(KINDS), WIDTH)
        )
        states, classes = list[Array](), list[float]()
        while len(classes) < GRAPHS:
            graph = random_graph(random, int(random.integers(4, 8)), KINDS)
            counts = [graph.kinds.count(kind) for kind in SOURCE]
            if counts[0] != counts[1]:
                states.append(self._state(graph.neighbourhood, graph.features))
                classes.append(_SHARPNESS if counts[0] < counts[1] else -_SHARPNESS)
        matrix = np.stack(states)
        penalty = _RIDGE * GRAPHS * np.eye(matrix.shape[1])
        self._readout: Array = np.linalg.solve(matrix.T @ matrix + penalty, matrix.T @ np.array(classes))

    def _state(self, neighbourhood: Array, features: Array) -> Array:
        """Return the state of one graph or of several with the same edges, [..., width + 1]."""
        hidden = features
        for weights, offset in self._layers:
            hidden = np.maximum(neighbourhood @ hidden @ weights + offset, 0.0)
        mean = hidden.mean(-2)
        return np.concatenate([mean, np.ones((*mean.shape[:-1], 1))], -1)

    def margin(self, graph: KindGraph, features: Array) -> Array:
        """Return the logit of class 1 minus that of class 0, [...].

        Args:
            graph: the graph, whose edges are used.
            features: features of its nodes, [..., nodes, kinds].
        """
        margin: Array = self._state(graph.neighbourhood, features) @ self._readout
        return margin

    def loss(self, graph: KindGraph, label: int, prompts: Sequence[Prompt] = ()) -> float:
        """Return the cross-entropy of a graph's label with prompts, nats."""
        return float(self._losses(graph, label, prompted(graph.features, prompts)))

    def least_loss(self, graph: KindGraph, label: int, count: int) -> float:
        """Return the smallest loss that `count` prompts can reach, nats. All choices of prompts are compared."""
        features = graph.features
        every = np.stack([prompted(features, prompts) for prompts in choices(len(graph.kinds), count)])
        return float(self._losses(graph, label, every).min())

    def _losses(self, graph: KindGraph, label: int, features: Array) -> Array:
        losses: Array = np.logaddexp(0.0, (1 - 2 * label) * self.margin(graph, features))
        return losses


def choices(nodes: int, count: int) -> Iterator[tuple[Prompt, ...]]:
    """Yield all choices of `count` prompts; their order does not matter, and a node may have several."""
    every = [(node, word) for node in range(nodes) for word in PROMPTS]
    yield from combinations_with_replacement(every, count)


@lru_cache(maxsize=1)
def graph_network() -> GraphNetwork:
    """Return the frozen network, made once."""
    return GraphNetwork()
