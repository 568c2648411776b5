"""maj@k: probability that the most frequent answer of k samples is right, exact (self-consistency, Wang et al. 2022).

The value is the expectation over all subsets of k of a prompt's n samples, counted and not drawn. A sample votes for
its extracted answer. A sample without an answer, or cut before its end, has no vote but counts among the k. If several
answers lead with the same number of votes, one of them is taken at random: the value counts 1/(leaders) for each.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import comb

from models.answers.answers import answer_key, extract_answer
from models.base.errors import UserError
from models.evaluation.records import Completion


def majority(samples: tuple[Completion, ...], k: int) -> float:
    """Return the probability that the majority answer of a random subset of `k` samples is right, 0 to 1.

    The correctness of an answer is the share of its samples that the verifier accepts: all or none of them with an
    exact-answer verifier.

    Raises:
        UserError: there are fewer than `k` samples.
    """
    if not 1 <= k <= len(samples):
        raise UserError(f"evaluation: maj@{k} needs {k} samples a prompt, there are {len(samples)}")
    votes: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for sample in samples:
        answer = extract_answer(sample.text) if sample.finished else None
        if answer is not None:
            votes[answer_key(answer)] += 1
            right[answer_key(answer)] += sample.correct
    silent = len(samples) - votes.total()
    total = 0.0
    for answer, accepted in right.items():
        if accepted:
            others = tuple(sorted(count for other, count in votes.items() if other != answer))
            total += accepted / votes[answer] * _leads(votes[answer], others, silent, k)
    return total


@lru_cache(maxsize=65536)
def _leads(own: int, others: tuple[int, ...], silent: int, k: int) -> float:
    """Return the probability that an answer with `own` samples is taken, against answers with `others` samples each."""
    taken = 0.0
    for votes in range(1, min(own, k) + 1):
        # ways[drawn, tied]: ways to draw `drawn` samples of the other answers, none above `votes`, `tied` equal to it
        ways: Counter[tuple[int, int]] = Counter({(0, 0): 1})
        for count in others:
            grown: Counter[tuple[int, int]] = Counter()
            for (drawn, tied), number in ways.items():
                for more in range(min(count, votes, k - votes - drawn) + 1):
                    grown[drawn + more, tied + (more == votes)] += number * comb(count, more)
            ways = grown
        taken += comb(own, votes) * sum(
            number * comb(silent, k - votes - drawn) / (1 + tied) for (drawn, tied), number in ways.items()
        )
    return taken / comb(own + sum(others) + silent, k)
