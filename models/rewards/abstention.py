"""Answer what can be answered and say so where it cannot (SALU, paper 229, arXiv 2507.16951).

                            can be answered     cannot be answered
    the right answer        right               -
    abstains                withheld            abstained
    anything else           wrong               invented
    no answer at all        wrong               invented

A problem cannot be answered where its own answer is one of `says`. What is wrong or invented costs besides
`confidence` times the probability of the completion's tokens (their geometric mean, under the policy that sampled
them): to be sure of what is not so is worse than to guess. Right, in evaluations and at the gate too, is the right
answer, and abstaining where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.bounds import Number
from models.loop.attempt import Attempt
from models.loop.rollout import Problem, Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.rewards.exact_answer import marked
from models.text.answers import answer_key, expected_answer, extract_answer, same_answer
from models.text.quantities import LONGEST_NUMBER

Outcome = Literal["right_worth", "abstained", "withheld", "wrong", "invented"]
"""What became of a question, by the setting that says what it is worth."""


@part("abstention")
class Abstention(Reward):
    """Worths of answers, of abstaining and of inventing."""

    needs_answers = True
    verifies = True
    by_wording = True
    says: tuple[str, ...] = ("unknown", "i don't know", "unanswerable")
    """Answers that abstain, without regard to case."""
    right_worth: Number = 1.0
    """Of the right answer."""
    abstained: Number = 1.0
    """Of abstaining where there is no answer."""
    withheld: Number = -0.2
    """Of abstaining where there is one."""
    wrong: Number = -0.5
    """Of a wrong answer where there is a right one, and of none."""
    invented: Number = -1.0
    """Of an answer where there is none."""
    confidence: NonNegativeFloat = 0.0
    """What a wrong or invented answer costs besides, where the policy was certain of its every token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_keys", keys_of(self.says))

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """The worth of each answer, [completions]."""
        return torch.tensor([self._worth(rollout) for rollout in rollouts])

    def stated(self, problem: Problem) -> str:
        """Return the answer behind its mark."""
        return marked(problem.answer)

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Which attempts end with the right answer, or abstain where there is none, [attempts]."""
        outcomes = [self._outcome(problem.answer, text, finished) for problem, text, finished in attempts]
        return [outcome in ("right_worth", "abstained") for outcome in outcomes]

    def _worth(self, rollout: Rollout) -> float:
        outcome = self._outcome(rollout.problem.answer, rollout.text, rollout.finished)
        worth: float = vars(self)[outcome]
        return worth - self.confidence * _certainty(rollout) if outcome in ("wrong", "invented") else worth

    def _outcome(self, answer: str, text: str, finished: bool) -> Outcome:
        given = extract_answer(text) if finished else None
        abstains = given is not None and self._abstains(given)
        if self._abstains(expected_answer(answer)):
            return "abstained" if abstains else "invented"
        if same_answer(given, answer):
            return "right_worth"
        return "withheld" if abstains else "wrong"

    def _abstains(self, answer: str) -> bool:
        keys: frozenset[str] = vars(self)["_keys"]
        return says_any(answer, keys)


def keys_of(answers: Sequence[str]) -> frozenset[str]:
    """What `says_any` looks an answer up in."""
    return frozenset(map(answer_key, answers))


def says_any(answer: str, keys: frozenset[str]) -> bool:
    """Whether an answer is one of those that `keys` are of, without regard to case."""
    return len(answer) <= LONGEST_NUMBER and answer_key(answer) in keys


def _certainty(rollout: Rollout) -> float:
    """Geometric mean of the probabilities of a completion's tokens, in [0, 1]; 0 where nobody knows them."""
    known = rollout.behaviour_log_probs
    return 0.0 if known is None or not known.numel() else math.exp(min(0.0, float(known.mean())))
