"""Twenty questions: a secret among listed things, and yes or no to questions about their attributes.

    ant bat cow elk fox owl        fur? | yes | big? | no | fly? | no | #### fox

A turn whose last line ends with a question mark asks for an attribute; any other is a guess and ends the episode. The
problem's answer holds the secret and the attributes of all things: the policy knows the attributes from its training,
or from a prompt that lists them. A question may cost, and may earn the expected information of its answer, in bits: the
entropy of the answer over the things that are still possible, which reveals nothing about the secret itself.
"""

from __future__ import annotations

from pydantic import NonNegativeFloat

from models.agents.play.questions import attributes_of, expected_information, left_after
from models.answers.answers import extract_answer
from models.answers.hidden import Hidden, hidden
from models.answers.marked_answers import without_reasoning
from models.base.errors import UserError
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part


class Secret(Hidden):
    """Hidden answer of a problem: the secret, and the attributes of all things."""

    secret: str
    things: dict[str, tuple[str, ...]]
    """Attributes of all listed things, by name."""


@part("twenty_questions")
class TwentyQuestions(Environment):
    """A guess of a secret thing after yes-or-no questions."""

    needs_answers = True
    cost: NonNegativeFloat = 0.0
    """Cost of a question; a right guess earns 1."""
    information: NonNegativeFloat = 0.0
    """Reward per bit of a question's expected information."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem, whose answer is `{"secret": "fox", "things": {"fox": ["fur"], ...}}`."""
        known = hidden(problem, Secret, self.name)
        if known.secret not in known.things:
            raise UserError(f"problem {problem.id}: the secret is none of the things that are listed")
        return _Questions(self, known)


class _Questions:
    def __init__(self, settings: TwentyQuestions, known: Secret) -> None:
        self._settings, self._known = settings, known
        self._possible = list(known.things)

    def reset(self, seed: int) -> tuple[str, Info]:
        return "", {"state": " ".join(self._possible)}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        lines = turn.strip().splitlines() or [""]
        last_line = lines[-1].strip()
        if not last_line.endswith("?"):
            guess = extract_answer(last_line) or without_reasoning(last_line)
            right = guess.strip() == self._known.secret
            return "", float(right), True, False, {"solved": right}
        attribute, things = last_line.removesuffix("?").strip(), self._known.things
        if attribute not in attributes_of(things):
            return "error: unknown", -self._settings.cost, False, False, self._info()
        gain = self._settings.information * expected_information(things, self._possible, attribute)
        answer = attribute in things[self._known.secret]
        self._possible = left_after(things, self._possible, attribute, answer)
        return "yes" if answer else "no", gain - self._settings.cost, False, False, self._info()

    def _info(self) -> Info:
        return {"state": " ".join(self._possible), "solved": False}

    def close(self) -> None:
        return None
