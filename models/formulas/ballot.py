"""The answer that most of several texts state (self-consistency, arXiv 2203.11171)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from models.text.answers import answer_key, extract_answer


def vote_of(text: str) -> str:
    """What a text votes for: the answer that it states, in the form in which equal answers are equal; where it states
    none, itself, but for white space."""
    answer = extract_answer(text)
    return f"say {' '.join(text.split())}" if answer is None else f"answer {answer_key(answer)}"


def winner(texts: Sequence[str]) -> int:
    """Place of the first text that states what most of them state; of several that are stated as often, the one that
    was stated first. Empty texts have no vote, unless there are no others.

    Args:
        texts: of one question, not none.
    """
    votes = [vote_of(text) if text.strip() else "" for text in texts]
    counts = Counter(vote for vote in votes if vote)
    if not counts:
        return 0
    most = max(counts.values())
    return next(place for place, vote in enumerate(votes) if vote and counts[vote] == most)
