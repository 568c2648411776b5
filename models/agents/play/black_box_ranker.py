"""A ranker of documents that others see only by its ranks, and a surrogate that is fitted to these ranks.

    score(query, document) = sum over the query's words of idf * tf (k + 1) / (tf + k (1 - b + b length / mean length))

This is BM25, except that a word among the first `LEAD` words of a document counts 1 + `lead` times. So the order of
sentences matters, as it does to neural rankers. The surrogate ranks by a weighted sum of three features: BM25 without
the lead, BM25 of the first words alone, and the length. Its weights are fitted to pairs of neighbours in the ranks that
the ranker returns for queries made of the documents' words. It never sees a score.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import numpy as np
from numpy.typing import NDArray

from models.agents.play.documents import words_of

Array = NDArray[np.float64]
LEAD = 6
"""Number of first words of a document that count more."""
_K, _B = 1.2, 0.75


class Ranker(ABC):
    """Ranks of a document among others."""

    rows: list[list[str]]
    """Words of the other documents, [documents][words]."""

    @abstractmethod
    def score(self, query: Sequence[str], words: Sequence[str]) -> float:
        """Return the score of a document for a query, both as words."""

    def rank(self, query: str, text: str) -> int:
        """Return the rank of a document for a query, from 1; others with an equal score are ranked before it."""
        words = words_of(query)
        own = self.score(words, words_of(text))
        return 1 + sum(self.score(words, row) >= own for row in self.rows)


class BlackBoxRanker(Ranker):
    """A ranker whose statistics of words are those of the other documents."""

    def __init__(self, texts: Sequence[str], lead: float) -> None:
        """Build the index.

        Args:
            texts: the other documents, at least one.
            lead: how much more a word counts at the beginning of a document, at least 0.
        """
        self.rows = [words_of(text) for text in texts]
        self._lead = lead
        self._mean = sum(len(row) for row in self.rows) / len(self.rows) or 1.0
        holds = Counter(word for row in self.rows for word in set(row))
        count = len(self.rows)
        self._idf = {word: math.log(1 + (count - n + 0.5) / (n + 0.5)) for word, n in holds.items()}
        self._unknown = math.log(1 + (count + 0.5) / 0.5)

    def score(self, query: Sequence[str], words: Sequence[str]) -> float:
        """See `Ranker.score`."""
        norm = _K * (1 - _B + _B * len(words) / self._mean)
        total = 0.0
        for term in query:
            times = sum(1.0 + self._lead * (place < LEAD) for place, word in enumerate(words) if word == term)
            total += self._idf.get(term, self._unknown) * times * (_K + 1) / (times + norm)
        return total


class SurrogateRanker(Ranker):
    """A ranker that imitates the ranks of another one."""

    def __init__(self, ranker: BlackBoxRanker, asked: int) -> None:
        """Fit the surrogate.

        Args:
            ranker: the ranker, of which only ranks are used.
            asked: number of queries that it answers for the fit, at least 1.
        """
        self.rows = ranker.rows
        texts = [" ".join(row) for row in self.rows]
        self._plain, self._first = (
            BlackBoxRanker(texts, 0.0),
            BlackBoxRanker([" ".join(row[:LEAD]) for row in self.rows], 0.0),
        )
        random = Random(len(self.rows))
        differences = []
        for _ in range(asked):
            row = random.choice(self.rows)
            query = random.sample(row, min(2, len(row)))
            ranked = sorted(self.rows, key=lambda words: -ranker.score(query, words))[:12]
            features = [self._features(query, words) for words in ranked]
            differences += [better - worse for better, worse in pairwise(features)]
        self.weights = _fitted(np.array(differences))
        """Weights of the three features, [3]."""

    def score(self, query: Sequence[str], words: Sequence[str]) -> float:
        """See `Ranker.score`."""
        return float(self._features(query, words) @ self.weights)

    def _features(self, query: Sequence[str], words: Sequence[str]) -> Array:
        return np.array([self._plain.score(query, words), self._first.score(query, words[:LEAD]), len(words) / 10])


def _fitted(differences: Array, steps: int = 300) -> Array:
    """Return the weights of a logistic regression by which better documents score higher, by Newton's method.

    Args:
        differences: features of the better minus the worse document, [pairs, features].
        steps: largest number of steps.
    """
    weights = np.zeros(differences.shape[1])
    for _ in range(steps):
        wrong = 1.0 / (1.0 + np.exp(differences @ weights))
        gradient = -differences.T @ wrong + 1e-2 * weights
        curvature = (differences * (wrong * (1 - wrong))[:, None]).T @ differences + 1e-2 * np.eye(len(weights))
        step = np.linalg.solve(curvature, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-10:
            break
    return weights
