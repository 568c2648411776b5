"""Texts that are said in a game as a few clusters, and the game that is left where the clusters are the actions (LSPO,
paper 77, arXiv 2502.04686).

    texts -> words that each has, [texts, words] -> k-means -> cluster -> the action that most of its texts are

The paper's latent space is k-means on embeddings of a language model; words stand for these. Clusters that are the same
action lead to the same states, so they are one action of the latent game, which is small enough to be solved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from models.episodes.games.game import Game, State

RESTARTS = 10
"""Of k-means; the one with the smallest sum of squares counts."""
STEPS = 100
"""Of each at most."""


def clustered(texts: Sequence[str], count: int) -> list[int]:
    """Cluster of each text, [texts]; the same texts give the same ones.

    Args:
        texts: as often as they were said.
        count: of clusters at most.
    """
    counts = Counter(" ".join(text.split()) for text in texts)
    distinct = sorted(counts)
    words = sorted({word for text in distinct for word in text.split()})
    points = np.array([[float(word in text.split()) for word in words] for text in distinct]).reshape(len(distinct), -1)
    weights = np.array([float(counts[text]) for text in distinct])
    chance = Random(0)
    runs = [_k_means(points, weights, min(count, len(distinct)), chance) for _ in range(RESTARTS)]
    _, labels = min(runs, key=lambda run: run[0])
    known = dict(zip(distinct, labels, strict=True))
    return [known[" ".join(text.split())] for text in texts]


def _k_means(
    points: NDArray[np.float64], weights: NDArray[np.float64], count: int, chance: Random
) -> tuple[float, list[int]]:
    """Weighted sum of squares and the cluster of each point, from centres drawn far apart (k-means++)."""
    centres = points[chance.choices(range(len(points)), weights.tolist())]
    while len(centres) < count:
        far = weights * _squares(points, centres).min(axis=1)
        centres = np.concatenate([centres, points[chance.choices(range(len(points)), far.tolist())]])
    labels = np.full(len(points), -1)
    for _ in range(STEPS):
        nearest = _squares(points, centres).argmin(axis=1)
        if (nearest == labels).all():
            break
        labels = nearest
        for number in set(labels.tolist()):
            mine = labels == number
            centres[number] = np.average(points[mine], axis=0, weights=weights[mine])
    return float((weights * _squares(points, centres).min(axis=1)).sum()), labels.tolist()


def _squares(points: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances, [points, centres]."""
    squares: NDArray[np.float64] = np.square(points[:, None] - centres[None]).sum(axis=2)
    return squares


class LatentGame:
    """A game of which only those actions are left that some cluster of texts is."""

    def __init__(self, game: Game, said: Mapping[tuple[str, ...], frozenset[str]]) -> None:
        """Restrict it.

        Args:
            game: whose rules hold.
            said: of every set of actions that a mover may have, those that are left; of one that is not named, all.
        """
        self._game, self._said = game, said
        self.name, self.seats, self.least = game.name, game.seats, game.least

    def deals(self) -> Sequence[tuple[float, str]]:
        """As in the game."""
        return self._game.deals()

    def dealt(self, deal: str, seat: int) -> str:
        """As in the game."""
        return self._game.dealt(deal, seat)

    def mover(self, state: State) -> int | None:
        """As in the game."""
        return self._game.mover(state)

    def actions(self, state: State) -> tuple[str, ...]:
        """Those that are left."""
        actions = self._game.actions(state)
        return tuple(action for action in actions if action in self._said.get(actions, actions))

    def worth(self, state: State) -> tuple[float, ...]:
        """As in the game."""
        return self._game.worth(state)
