"""Clusters of the texts in a game, and the game restricted to the clusters as actions.

After LSPO (paper 77, arXiv 2502.04686):

    texts -> words that each has, [texts, words] -> k-means -> cluster -> the action that most of its texts are

The paper's latent space is k-means on embeddings of a language model; here word vectors replace the embeddings.
Clusters that map to the same action lead to the same states, so they are one action of the latent game, which is small
enough to be solved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from models.agents.play.games.game import Game, State

RESTARTS = 10
"""Restarts of k-means; the run with the smallest sum of squares is used."""
STEPS = 100
"""Maximum number of steps of each run."""


def clustered(texts: Sequence[str], count: int) -> list[int]:
    """Return the cluster of each text, [texts]; the same texts give the same clusters.

    Args:
        texts: texts, repeated as often as they occurred.
        count: maximum number of clusters.
    """
    counts = Counter(" ".join(text.split()) for text in texts)
    distinct = sorted(counts)
    words = sorted({word for text in distinct for word in text.split()})
    points = np.array([[float(word in text.split()) for word in words] for text in distinct]).reshape(len(distinct), -1)
    weights = np.array([float(counts[text]) for text in distinct])
    chance = Random(0)
    runs = [_k_means(points, weights, min(count, len(distinct)), chance) for _ in range(RESTARTS)]
    _, labels = min(runs, key=lambda run: run[0])
    cluster_of = dict(zip(distinct, labels, strict=True))
    return [cluster_of[" ".join(text.split())] for text in texts]


def _k_means(
    points: NDArray[np.float64], weights: NDArray[np.float64], count: int, chance: Random
) -> tuple[float, list[int]]:
    """Return the weighted sum of squares and the cluster of each point, from centres drawn far apart (k-means++)."""
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
            members = labels == number
            centres[number] = np.average(points[members], axis=0, weights=weights[members])
    return float((weights * _squares(points, centres).min(axis=1)).sum()), labels.tolist()


def _squares(points: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return squared distances, [points, centres]."""
    squares: NDArray[np.float64] = np.square(points[:, None] - centres[None]).sum(axis=2)
    return squares


class LatentGame:
    """A game restricted to the actions to which some cluster of texts maps."""

    def __init__(self, game: Game, remaining: Mapping[tuple[str, ...], frozenset[str]]) -> None:
        """Restrict a game.

        Args:
            game: game whose rules apply.
            remaining: actions that remain for each set of actions that a mover may have; a set that is not a key keeps
                all actions.
        """
        self._game, self._remaining = game, remaining
        self.name, self.seats, self.least = game.name, game.seats, game.least

    def deals(self) -> Sequence[tuple[float, str]]:
        """Return the deals of the game."""
        return self._game.deals()

    def dealt(self, deal: str, seat: int) -> str:
        """Return a seat's view of the deal, as in the game."""
        return self._game.dealt(deal, seat)

    def mover(self, state: State) -> int | None:
        """Return the seat to move, as in the game; None: the game is over."""
        return self._game.mover(state)

    def actions(self, state: State) -> tuple[str, ...]:
        """Return the actions of the seat to move that remain."""
        actions = self._game.actions(state)
        return tuple(action for action in actions if action in self._remaining.get(actions, actions))

    def worth(self, state: State) -> tuple[float, ...]:
        """Return the outcome for each seat, as in the game, [seats]."""
        return self._game.worth(state)
