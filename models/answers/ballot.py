"""The answer that most of several texts state (self-consistency, arXiv 2203.11171)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from models.answers.answers import answer_key, extract_answer


def vote_of(text: str) -> str:
    """Return the vote of a text: the answer that it states, in a form in which equal answers are equal.

    Without an answer it is the text itself, its white space normalised.
    """
    answer = extract_answer(text)
    return f"say {' '.join(text.split())}" if answer is None else f"answer {answer_key(answer)}"


def winner(texts: Sequence[str]) -> int:
    """Return the index of the first text that states the most frequent answer.

    Of several equally frequent answers, the one that was stated first counts. Empty texts have no vote, unless all
    texts are empty.

    Args:
        texts: of one question, at least one.
    """
    votes = [vote_of(text) if text.strip() else "" for text in texts]
    counts = Counter(vote for vote in votes if vote)
    if not counts:
        return 0
    most = max(counts.values())
    return next(place for place, vote in enumerate(votes) if vote and counts[vote] == most)
