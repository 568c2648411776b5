"""Tests of questions of Reasoning Gym as an environment. The package is optional (reasoning-gym.lock)."""

import importlib.util
import json
from typing import Any

import pytest

from models.agents.environments.reasoning_gym import ReasoningGym
from models.agents.play.extras import extra
from models.base.errors import UserError
from models.method.problem import Problem

INSTALLED = importlib.util.find_spec("reasoning_gym") is not None
EXTRA = pytest.mark.skipif(
    not INSTALLED, reason="reasoning_gym is not installed: pip install --no-deps -r reasoning-gym.lock"
)


def problem(name: str, prompt: str = "", **known: Any) -> Problem:
    return Problem("p", prompt, json.dumps({"set": name, "seed": 3, **known}))


@pytest.mark.skipif(INSTALLED, reason="reasoning_gym is installed")
def test_where_the_package_is_missing_a_line_says_how_to_install_it() -> None:
    with pytest.raises(UserError, match=r"not installed: pip install --no-deps -r reasoning-gym\.lock"):
        ReasoningGym().open(problem("chain_sum"))


@EXTRA
@pytest.mark.parametrize(
    "name", ["chain_sum", "leg_counting", "letter_counting", "maze", "syllogism", "tower_of_hanoi"]
)
def test_the_sets_own_answer_solves_its_question_and_another_does_not(name: str) -> None:
    entry = extra("reasoning_gym").create_dataset(name, size=1, seed=3)[0]
    for said in (entry["answer"], f"so\n#### {entry['answer']}") if "\n" not in entry["answer"] else (entry["answer"],):
        opened = ReasoningGym().open(problem(name))
        assert opened.reset(0)[0] == entry["question"]
        heard, reward, over, cut, info = opened.step(said)
        assert (heard, reward, over, cut, info["solved"]) == ("", 1.0, True, False, True)
    _, reward, over, _, info = ReasoningGym().open(problem(name)).step("#### no")
    assert reward < 1.0 and over and not info["solved"]


@EXTRA
def test_a_question_that_the_prompt_holds_is_not_asked_again_and_settings_are_the_sets() -> None:
    settings = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    question = ReasoningGym().open(problem("chain_sum", settings=settings)).reset(0)[0]
    assert question and len(question.split(":")[1].split()) == 4
    assert ReasoningGym().open(problem("chain_sum", f"{question}\n", settings=settings)).reset(0)[0] == ""


@EXTRA
@pytest.mark.parametrize(
    "known, said",
    [
        ({"set": "no_such"}, "not registered"),
        ({"set": "chain_sum", "settings": {"no_such": 1}}, "no_such"),
        ({"set": "chain_sum", "settings": {"min_terms": -1}}, "min_terms"),
        ({"set": "composite", "settings": {"datasets": [{"name": "n_queens"}]}}, "made of others"),
        ({"name": "chain_sum"}, "answer is none of environment reasoning_gym"),
    ],
)
def test_a_problem_that_is_about_no_set_is_refused_in_a_line(known: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=f"problem p: .*{said}"):
        ReasoningGym().open(Problem("p", "", json.dumps({"seed": 3, **known})))


@EXTRA
@pytest.mark.parametrize(
    "name",
    ["binary_matrix", "countdown", "intermediate_integration", "n_queens", "polynomial_multiplication", "puzzle24",
     "simple_integration", "spiral_matrix", "string_insertion"],
)  # fmt: skip
def test_a_set_that_evaluates_what_the_policy_writes_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"set {name} evaluates texts"):
        ReasoningGym().open(problem(name))


@EXTRA
def test_no_set_that_is_admitted_runs_what_an_answer_says(capfd: pytest.CaptureFixture[str]) -> None:
    admitted = 0
    for name in extra("reasoning_gym.factory").DATASETS:
        try:
            opened = ReasoningGym().open(problem(name))
        except UserError as error:
            assert "evaluates texts" in str(error) or name == "composite"
            continue
        admitted += 1
        opened.reset(0)
        try:
            opened.step("[print('it ran')]")
        except Exception:  # a set may fail at such an answer, which ends the episode
            continue
    assert admitted > 50 and "it ran" not in capfd.readouterr().out
