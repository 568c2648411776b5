"""Problems of Reasoning Gym (arXiv 2505.24760), each drawn from a set by its seed, answered in one turn.

    prompt     How many legs are there in total if you have 2 sheep? Give a number.
    turn       #### 8

A problem's answer is `{"set": "leg_counting", "seed": 1, "settings": {}}`. If its prompt does not hold the question,
the environment asks it first. The set scores the text after the answer's sign, or else the whole turn. The package is
an extra: reasoning-gym.lock.

Some sets evaluate the text that they score. That text is the policy's, and must not be run outside the sandbox: a set
whose code evaluates anything is refused.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from models.agents.play.extras import extra
from models.answers.answers import extract_answer
from models.answers.hidden import Hidden, hidden
from models.answers.marked_answers import without_reasoning
from models.base.errors import UserError, shortened
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part

_EVALUATES = re.compile(r"\b(eval|exec|compile|parse_expr|sympify|__import__)\(|\bsympy\b|\bpickle\b")
"""Calls that evaluate text; sympy evaluates any text that it is given as an expression."""


class GymAnswer(Hidden):
    """Hidden answer of a problem: the set, seed and settings from which Reasoning Gym makes it."""

    set: str
    seed: int
    settings: Mapping[str, Any] = {}
    """Settings of the set, as in Reasoning Gym; empty: its defaults."""


@part("reasoning_gym")
class ReasoningGym(Environment):
    """A question of Reasoning Gym."""

    needs_answers = True

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem.

        Raises:
            UserError: the package is not installed, the set does not exist, or it evaluates what it scores.
        """
        extra("reasoning_gym")
        known = hidden(problem, GymAnswer, self.name)
        try:
            drawn = _set(known.set, known.seed, json.dumps(known.settings))
        except (TypeError, ValueError, AssertionError) as error:
            raise UserError(f"problem {shortened(problem.id)}: {shortened(str(error), 200)}") from None
        return _Asked(drawn, problem.prompt)


@cache
def _set(name: str, seed: int, settings: str) -> Any:
    if name == "composite":
        raise ValueError("set composite is made of others: name one of them")
    drawn = extra("reasoning_gym").create_dataset(name, size=1, seed=seed, **json.loads(settings))
    if _EVALUATES.search(inspect.getsource(sys.modules[type(drawn).__module__])):
        raise ValueError(f"set {name} evaluates texts, and the policy's are not to be")
    return drawn


class _Asked:
    def __init__(self, drawn: Any, prompt: str) -> None:
        self._set, self._entry = drawn, drawn[0]
        question = str(self._entry["question"])
        self._question = "" if question in prompt else question

    def reset(self, seed: int) -> tuple[str, Info]:
        return self._question, {}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        answer = extract_answer(turn)
        score = float(
            self._set.score_answer(without_reasoning(turn).strip() if answer is None else answer, self._entry)
        )
        return "", score, True, False, {"solved": score >= 1.0}

    def close(self) -> None:
        return None
