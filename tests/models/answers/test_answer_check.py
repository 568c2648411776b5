"""AnswerCheck: whether a recipe's verifier accepts the answers of its data, and how an answer must be written."""

import pytest

from models.answers.answer_check import MOST_RUN, AnswerCheck
from models.base.errors import UserError
from models.method.attempt import Verifying
from models.method.reward import Reward
from models.parts.rewards.code.sql import Sql
from models.parts.rewards.judges.justified_refusal import JustifiedRefusal
from models.parts.rewards.rules.abstention import Abstention
from models.parts.rewards.rules.choice import Choice
from models.parts.rewards.rules.constraints import ConstraintsMet
from models.parts.rewards.rules.exact_answer import ExactAnswer
from models.parts.rewards.rules.logic import Logic
from models.parts.rewards.rules.math_verify import MathVerify
from models.parts.rewards.rules.similarity import Similarity
from models.recipes.load import load_recipe

MARKED = ["5", "#### 5", "$\\boxed{5}$", "2 + 3 = 5\n#### 5", "<answer>5</answer>", "Answer: 5", "Dr. Smith", "(1, 2)"]
BY_WORDING = (ExactAnswer(), MathVerify(), Abstention(), Similarity(right_from=1.0))


def checked(verifier: Verifying | None, *answers: str, by_wording: bool = True) -> dict[str, list[bool]]:
    rows = [
        {"id": f"p{number}", "prompt": "?", "answer": answer, "tests": "", "entry_point": "f"}
        for number, answer in enumerate(answers)
    ]
    return AnswerCheck(verifier, by_wording)(rows)


@pytest.mark.parametrize("verifier", BY_WORDING, ids=lambda part: part.name)
def test_an_answer_is_accepted_alone_and_in_its_mark(verifier: Reward) -> None:
    every = [True] * len(MARKED)
    names = ("answer_is_accepted", "answer_is_short", "answer_is_marked")
    assert checked(verifier, *MARKED) == dict.fromkeys(names, every)


def test_an_answer_that_its_verifier_refuses_is_found() -> None:
    assert checked(ExactAnswer(), "5", "two\nlines", " ")["answer_is_accepted"] == [True, False, True]
    assert checked(Choice(), "B", "(b)", "Z", "12")["answer_is_accepted"] == [True, False, False, False]
    assert checked(Choice(labels=("a", "b"), reads="whole"), "#### a", "c")["answer_is_accepted"] == [True, False]
    assert checked(Logic(), "forall x (p(x))", "forall forall")["answer_is_accepted"] == [True, False]
    constraints = '{"constraints": [{"kind": "lower"}]}'
    assert checked(ConstraintsMet(), constraints, "lower case")["answer_is_accepted"] == [True, False]
    with pytest.raises(UserError, match="the answer is none of"):
        checked(ConstraintsMet(), "lower case")


def test_what_needs_more_than_the_answer_is_not_refused() -> None:
    assert checked(JustifiedRefusal(), "refuse", "kit")["answer_is_accepted"] == [True, True]
    assert checked(Similarity(reads="before_answer"), "a passage")["answer_is_accepted"] == [True]
    assert checked(None, '{"secret": "fox"}', "two\nlines")["answer_is_accepted"] == [True, True]


@pytest.mark.parametrize(
    ("verifier", "marked"),
    [
        (ExactAnswer(), True),
        (Similarity(right_from=1.0), True),
        (Similarity(reads="whole", right_from=1.0), False),
        (Choice(labels=("a", "b")), True),
        (Choice(labels=("a", "b"), reads="whole"), False),
        (Sql(), False),
        (None, True),
    ],
)
def test_an_answer_is_marked_unless_the_verifier_accepts_it_bare(verifier: Verifying | None, marked: bool) -> None:
    assert checked(verifier, "a")["answer_is_marked"] == [marked]
    assert checked(verifier, " ")["answer_is_marked"] == [True]


def test_a_whole_sentence_is_no_answer_where_wording_counts() -> None:
    answers = ("There are 5 apples left.", "#### 5", "The answer is 5.", "The capital of France is Paris. It is large.")
    assert checked(ExactAnswer(), *answers)["answer_is_short"] == [False, True, True, False]
    assert checked(ExactAnswer(), *answers, by_wording=False)["answer_is_short"] == [True] * 4


class Slow(Verifying):
    """A verifier that declares that it needs tests, and rejects every answer."""

    slot = "rewards"
    needs_tests = True

    def accepts(self, problems: list[object]) -> list[bool]:  # type: ignore[override]
        """Reject every problem's answer."""
        return [False] * len(problems)


def test_where_programs_run_some_rows_of_all_places_are_tried() -> None:
    held = checked(Slow(), *map(str, range(10 * MOST_RUN)))["answer_is_accepted"]
    assert held.count(False) == MOST_RUN and not held[0] and False in held[-10:]
    demonstrations = [{"id": "d", "prompt": "?", "answer": "1"}]  # without tests
    assert AnswerCheck(Slow(), False)(demonstrations)["answer_is_accepted"] == [True]


@pytest.mark.parametrize(
    ("recipe", "verifier", "by_wording"),
    [
        ("arithmetic", "exact_answer", True),
        ("math_verify", "math_verify", True),
        ("alphamed", "choice", False),
        ("light_if", "constraints", False),
        ("twenty_questions", None, False),
    ],
)
def test_a_recipe_checks_answers_by_the_verifier_that_decides(
    recipe: str, verifier: str | None, by_wording: bool
) -> None:
    check = load_recipe(recipe, []).answer_check
    assert (check.verifier.name if check.verifier else None) == verifier
    assert check.by_wording == by_wording
