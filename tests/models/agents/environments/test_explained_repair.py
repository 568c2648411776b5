"""Explanation and repair: each has its own reward, which does not depend on the other."""

from dataclasses import replace
from random import Random

import pytest

from models.agents.environments.explained_repair import ExplainedRepair
from models.base.errors import UserError
from models.learner.packing import Sequences
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.reward import TokenReward
from models.recipes.load import load_recipe
from models.sandbox.settings import SandboxSettings
from models.task_sets.repairs import SAYS, RepairsSettings
from tests.support.malformed_texts import TEXTS
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

ENVIRONMENT = ExplainedRepair(sandbox=SandboxSettings(seconds=20, workers=2))
PROBLEM = Problem(
    "p", 'repair f ( x ) : " add 3 " ; x += 4 ; return x', "step 1 must be add 3", tests="assert f(2) == 5\n",
    entry_point="f",
)  # fmt: skip
RIGHT, WRONG = "def f ( x ) : x += 3 ; return x", "def f ( x ) : x += 4 ; return x"


def played(explanation: str, repair: str, problem: Problem = PROBLEM) -> tuple[float, float, bool]:
    opened = ENVIRONMENT.open(problem)
    opened.reset(0)
    said, explained, over, _, _ = opened.step(explanation)
    assert said == SAYS and not over
    said, repaired, over, cut, info = opened.step(repair)
    assert (said, over, cut) == ("", True, False)
    return explained, repaired, info["solved"]


@pytest.mark.parametrize(
    "explanation, explained",
    [("step 1 must be add 3", 1.0), ("step 1 must be add 4", 2 * 5 / 12), ("must add", 2 * 2 / 8), ("", 0.0)],
)
@pytest.mark.parametrize("repair, repaired", [(RIGHT, 1.0), (WRONG, 0.0)])
def test_each_turn_is_worth_its_own(explanation: str, explained: float, repair: str, repaired: float) -> None:
    """By hand, the longest common subsequences with the six expected words have 6, 5, 2 and 0 words."""
    first, second, solved = played(explanation, repair)
    assert first == pytest.approx(explained)
    assert (second, solved) == (repaired, bool(repaired))


def test_a_repair_is_a_program_by_itself() -> None:
    as_python = replace(PROBLEM, prompt="def f(x):\n    return x + 4\n")
    assert played("", "    pass\n", as_python)[1] == 0.0
    assert played("", "```python\ndef f(x):\n    return x + 3\n```", as_python)[1] == 1.0


def test_whatever_is_said_has_a_worth() -> None:
    for text in TEXTS:
        explained, repaired, solved = played(text, text)
        assert 0 <= explained < 1 and repaired == 0 and not solved


def test_a_problem_without_tests_is_refused() -> None:
    with pytest.raises(UserError, match="has no tests"):
        ENVIRONMENT.open(replace(PROBLEM, tests=" "))


@pytest.mark.rotating(of=6)
def test_demonstrations_are_what_their_flaw_says() -> None:
    settings = RepairsSettings(problems={}, misread=0.4, kept=0.5)
    random, seen = Random(0), set()
    for _ in range(40):
        task = settings.draw(random)
        flaw, (explanation, between, repair) = settings.demonstrate(random, task)
        problem = Problem("p", task.prompt, task.answer, tests=task.tests, entry_point=task.entry_point)
        explained, _, solved = played(explanation, repair, problem)
        assert between == SAYS and solved == (flaw == "none") and (explained == 1.0) == (flaw != "misread")
        seen.add(flaw)
    assert seen == {"none", "misread", "kept"}


def test_the_recipe_credits_each_turn_with_its_own_reward() -> None:
    """One episode explains better, the other repairs better. In each turn, the worse one has a negative advantage."""
    said = scored([1.5, 1.0], [2], sequences=Sequences([[3]] * 2, [[1, 1, 5, 1]] * 2))
    earned = [(0.5, 1.0), (1.0, 0.0)]
    rollouts = [
        replace(made, episode=replace(made.episode, turns=(Turn(0, 2, first), Turn(3, 4, second))))
        for made, (first, second) in zip(said.rollouts, earned, strict=True)
    ]
    resources, recipe = make_resources(), load_recipe("self_debug")
    earns = recipe.rewards[0]
    assert isinstance(earns, TokenReward)
    rows = earns.tokens(resources, rollouts)
    signal = recipe.advantage(resources, replace(said, rollouts=rollouts, token_rewards=rows))
    assert [row.tolist() for row in signal.tokens] == [[-0.5, -0.5, 0, 1], [0.5, 0.5, 0, -1]]
