"""Check that the verifier of a recipe accepts the answers that the data expect.

An expected answer that no completion can match gives every completion the reward zero, and an evaluation of 0 %. So the
validation of the data states each answer as a completion would, and has the recipe's own verifier judge it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.answers.answers import expected_answer, extract_answer
from models.method.attempt import Verifying
from models.method.problem import Problem
from models.text.sentences import is_sentence

MOST_RUN = 128
"""Problems of a piece that are checked, evenly spaced, if each check runs a program."""


@dataclass(frozen=True)
class AnswerCheck:
    """Check of the expected answers of a recipe's data."""

    verifier: Verifying | None
    """Decides what is right; None: an environment does, and no answer is checked."""
    by_wording: bool
    """Whether an expected answer that is a whole sentence fails the check `answer_is_short`."""

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[bool]]:
        """Return columns of checks, each [rows].

        Args:
            rows: rows with `prompt` and `answer`, and for problems with `tests` and `entry_point`.
        """
        answers = [str(row["answer"]).strip() for row in rows]
        short = {answer: not self.by_wording or not is_sentence(expected_answer(answer)) for answer in set(answers)}
        return {
            "answer_is_accepted": self._accepted(rows, answers),
            "answer_is_short": [short[each] for each in answers],
            "answer_is_marked": [self._is_marked(row) for row in rows],
        }

    def _is_marked(self, row: Mapping[str, Any]) -> bool:
        """Return whether a completion must mark the row's answer; False if the verifier accepts the bare answer."""
        if self.verifier is None or not str(row["answer"]).strip():
            return True
        stated = self.verifier.stated(_problem(row))
        return stated is None or extract_answer(stated) is not None

    def _accepted(self, rows: Sequence[Mapping[str, Any]], answers: Sequence[str]) -> list[bool]:
        places = [place for place, answer in enumerate(answers) if answer]
        verifier = self.verifier
        if verifier is None or (verifier.needs_tests and any("tests" not in rows[place] for place in places)):
            return [True] * len(rows)
        if verifier.needs_tests:
            places = places[:: -(-len(places) // MOST_RUN)] if places else []
        problems = [_problem(rows[place]) for place in places]
        verdicts = dict(zip(places, verifier.accepts(problems), strict=True))
        return [verdicts.get(place, True) for place in range(len(rows))]


def _problem(row: Mapping[str, Any]) -> Problem:
    tests, entry_point = (str(row.get(name, "")) for name in ("tests", "entry_point"))
    return Problem(str(row["id"]), str(row["prompt"]), str(row["answer"]), tests=tests, entry_point=entry_point)
