"""Reward for answering what can be answered and abstaining from the rest (SALU, paper 229, arXiv 2507.16951).

                            can be answered     cannot be answered
    the right answer        right               -
    abstains                withheld            abstained
    anything else           wrong               invented
    no answer at all        wrong               invented

A problem cannot be answered if its own answer is one of `abstentions`. A wrong or invented answer costs in addition
`confidence` times the probability of the completion's tokens (their geometric mean, under the policy that sampled
them), so that a confident error is worse than a guess. A completion is correct, also in evaluations and at the gate, if
it gives the right answer, or abstains where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.answers.answers import answer_key, expected_answer, extract_answer, same_answer
from models.answers.exact import marked
from models.answers.quantities import LONGEST_NUMBER
from models.base.bounds import Number
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout

Outcome = Literal["right_worth", "abstained", "withheld", "wrong", "invented"]
"""Outcome of a question, named after the setting that holds its reward."""


@part("abstention")
class Abstention(Reward):
    """Rewards of right answers, abstentions and inventions."""

    needs_answers = True
    verifies = True
    by_wording = True
    renamed: ClassVar[Mapping[str, str]] = {"says": "abstentions"}
    abstentions: tuple[str, ...] = ("unknown", "i don't know", "unanswerable")
    """Answers that abstain, ignoring case."""
    right_worth: Number = 1.0
    """Reward of the right answer."""
    abstained: Number = 1.0
    """Reward of abstaining if the problem has no answer."""
    withheld: Number = -0.2
    """Reward of abstaining if the problem has an answer."""
    wrong: Number = -0.5
    """Reward of a wrong or missing answer if the problem has an answer."""
    invented: Number = -1.0
    """Reward of anything but abstaining if the problem has no answer."""
    confidence: NonNegativeFloat = 0.0
    """Additional cost of a wrong or invented answer whose every token had probability 1 under the policy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_keys", keys_of(self.abstentions))

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the reward of each answer, [completions]."""
        return torch.tensor([self._worth(rollout) for rollout in rollouts])

    def stated(self, problem: Problem) -> str:
        """Return the answer after its mark."""
        return marked(problem.answer)

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ends with the right answer, or abstains if there is none, [attempts]."""
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
        return matches_any(answer, keys)


def keys_of(answers: Sequence[str]) -> frozenset[str]:
    """Return the set of keys that `matches_any` searches."""
    return frozenset(map(answer_key, answers))


def matches_any(answer: str, keys: frozenset[str]) -> bool:
    """Return whether an answer is one of those that `keys` were made from, ignoring case."""
    return len(answer) <= LONGEST_NUMBER and answer_key(answer) in keys


def _certainty(rollout: Rollout) -> float:
    """Return the geometric mean of the token probabilities of a completion, in [0, 1]; 0 if they are not known."""
    known = rollout.behaviour_log_probs
    return 0.0 if known is None or not known.numel() else math.exp(min(0.0, float(known.mean())))
