"""Pairwise comparison of completions by a judge, in both orders, so that position bias cancels.

    preference = mean over both orders and their votes of 1 (this one), 1/2 (neither), 0 (the other)
    place      = the same for the completion shown first: 1/2 without position bias, 1 if the first always wins

Position bias of judges, and the swap against it: "Judging LLM-as-a-Judge" (arXiv 2306.05685), section 3.3.

A verdict may be weighted by the judge's confidence in its own words, the inverse of their perplexity (paper 278):

    1/2 + (verdict - 1/2) * exp(mean log-prob of the answer's tokens)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.method.judge import Answer, GenerativeJudge
from models.reward_models.judges.question import fill
from models.reward_models.judges.verdict import choice

WORDS = ("first", "second", "neither")
"""Possible verdicts of a comparison."""
_WORTH = (1.0, 0.0, 0.5)


@dataclass(frozen=True)
class CompletionPair:
    """Two answers to a prompt."""

    prompt: str
    mine: str
    other: str
    placeholder_values: Mapping[str, str]
    """Values of the template's other placeholders, by name."""


@dataclass(frozen=True)
class PairComparison:
    """The result of comparing a pair."""

    forward: tuple[float, ...]
    """Values of the readable verdicts for the completion shown first, with `mine` first: 1, 1/2 or 0 each, moved
    towards 1/2 if they are weighted by confidence."""
    backward: tuple[float, ...]
    """The same with `other` first: values for `other`, which is then shown first."""
    answers: tuple[Answer, ...]
    """All answers of both orders."""
    both_orders: bool = True
    """Whether both orders were asked."""

    @property
    def preference(self) -> float | None:
        """Preference for `mine`, in [0, 1]; None if an order that was asked has no readable verdict."""
        if not self.forward or (self.both_orders and not self.backward):
            return None
        if not self.both_orders:
            return _mean(self.forward)
        return (_mean(self.forward) + 1.0 - _mean(self.backward)) / 2.0

    @property
    def place(self) -> float | None:
        """Preference for the answer that is shown first, in [0, 1]; None unless both orders have a verdict."""
        return (_mean(self.forward) + _mean(self.backward)) / 2.0 if self.forward and self.backward else None

    @property
    def agreed(self) -> bool | None:
        """Whether both orders prefer the same answer; None unless both have a verdict."""
        if not self.forward or not self.backward:
            return None
        return (_mean(self.forward) - 0.5) * (0.5 - _mean(self.backward)) > 0

    @property
    def unread(self) -> int:
        """Number of answers without a verdict."""
        return len(self.answers) - len(self.forward) - len(self.backward)


def compare(
    judge: GenerativeJudge,
    template: str,
    pairs: Sequence[CompletionPair],
    votes: int = 1,
    *,
    swap: bool = True,
    by_likelihood: bool = False,
) -> list[PairComparison]:
    """Compare each pair by the judge's verdicts, [pairs].

    Args:
        template: text with the places {prompt}, {first} and {second}, and those of `CompletionPair.placeholder_values`.
        votes: answers in each order.
        swap: ask in both orders.
        by_likelihood: weight a verdict by the judge's confidence in its words; weight 1 if log-probs are not known.

    Raises:
        models.base.http_client.NoAnswer: no question got an answer.
    """
    questions = [
        fill(template, {**pair.placeholder_values, "prompt": pair.prompt, "first": first, "second": second})
        for pair in pairs
        for first, second in ((pair.mine, pair.other), (pair.other, pair.mine))[: 1 + swap]
    ]
    answers = iter(judge.ask(questions, votes))
    comparisons = []
    for _ in pairs:
        forward = next(answers)
        backward = next(answers) if swap else []
        worths = [_worth(order, by_likelihood) for order in (forward, backward)]
        comparisons.append(PairComparison(worths[0], worths[1], (*forward, *backward), swap))
    return comparisons


def _worth(answers: Sequence[Answer], by_likelihood: bool) -> tuple[float, ...]:
    chosen = [(choice(answer, WORDS), certainty(answer) if by_likelihood else 1.0) for answer in answers]
    return tuple(0.5 + (_WORTH[place] - 0.5) * weight for place, weight in chosen if place is not None)


def certainty(answer: Answer) -> float:
    """Return the judge's confidence in its words, in [0, 1]: the geometric mean of the token probabilities.

    It is 1 if the probabilities are not known.
    """
    return math.exp(min(0.0, _mean(answer.log_probs))) if answer.log_probs else 1.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
