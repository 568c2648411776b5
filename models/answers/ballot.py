"""The answer that most of several texts state (self-consistency, arXiv 2203.11171)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from models.answers.answers import answer_key, extract_answer


def vote_of(text: str) -> str:
    """Return the vote of a text: the answer that it states, in a form in which equal answers are equal.

    Without an answer it is the text itself, its white space normalised.
    """
    answer = extract_answer(text)
    return f"say {' '.join(text.split())}" if answer is None else f"answer {answer_key(answer)}"


def winner(texts: Sequence[str], weights: Sequence[float] | None = None) -> int:
    """Return the index of the first text that states the answer with the largest sum of weights.

    Of several such answers, the one that was stated first counts. Empty texts have no vote, unless all texts are empty.

    Args:
        texts: answers to one question, at least one.
        weights: weight of each text, at least 0, [texts]; None: 1 each, so that the most frequent answer wins.
    """
    votes = [vote_of(text) if text.strip() else "" for text in texts]
    totals: dict[str, float] = defaultdict(float)
    for vote, weight in zip(votes, weights if weights is not None else [1.0] * len(votes), strict=True):
        if vote:
            totals[vote] += weight
    if not totals:
        return 0
    most = max(totals.values())
    return next(place for place, vote in enumerate(votes) if vote and totals[vote] == most)
