"""Unit tests as a reward: the grade of each outcome, malformed completions, and the verdict in evaluations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from models.base.errors import UserError
from models.engines.engine import Generated, Sampling
from models.evaluation.evaluate import evaluate
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rewards.code.unit_tests import UnitTests
from models.recipes.load import load_recipe
from models.sandbox.settings import SandboxSettings
from models.sandbox.written import written_code, written_program
from models.text.encoding import Codec
from tests.support.tiny_models import word_tokenizer

TESTS = """
def check(candidate):
    assert candidate(1) == 2
    assert candidate(5) == 6
    assert candidate(-3) == -2
    assert candidate(0) == 1
"""
PROMPT = 'def f(x):\n    """One more than x."""\n'
PROBLEM = Problem("p", PROMPT, tests=TESTS, entry_point="f")
REWARD = UnitTests(sandbox=SandboxSettings(seconds=30, seconds_together=60, workers=2))
HURRIED = UnitTests(sandbox=SandboxSettings(seconds=1, seconds_together=1, workers=1))
RESOURCES = cast(RunResources, None)


def _rollout(text: str, problem: Problem = PROBLEM, finished: bool = True) -> Rollout:
    return Rollout(problem, 0, (1,), None, text, finished)


@pytest.mark.parametrize(
    "text, value",
    [
        ("    return x + 1\n", 1.0),
        ("    return 6\n", -0.3 + 0.6 / 4),
        ("    return x + 1 if x > 0 else 0\n", -0.3 + 0.6 * 2 / 4),
        ("    return x\n", -0.3),
        ("    return None\n", -0.3),
        ("    return 1 / 0\n", -0.6),
        ("    return x +\n", -1.0),
        ("  What a nice function this is.", -1.0),
        ("Surely:\n```python\ndef f(x):\n    return x + 1\n```\nThat is all.", 1.0),
        ("\n", -0.3),
        ("\x00\ud800", -1.0),
        ("def f(x):\n    return x + 1\n", 1.0),
    ],
)
def test_each_grade(text: str, value: float) -> None:
    assert REWARD(RESOURCES, [_rollout(text)]).tolist() == pytest.approx([value])


@pytest.mark.rotating(of=6)
def test_a_program_without_end_fails_and_the_reward_ends() -> None:
    assert HURRIED(RESOURCES, [_rollout("    while True: pass\n")]).tolist() == pytest.approx([-0.6])


def test_what_was_cut_and_what_has_no_tests_is_not_run_and_has_a_value() -> None:
    right = "    return x + 1\n"
    no_tests, useless = replace(PROBLEM, tests=" "), replace(PROBLEM, tests="assert True\n")
    rollouts = [_rollout(right, finished=False), _rollout(right, no_tests), _rollout(right, useless), _rollout(right)]
    assert REWARD(RESOURCES, rollouts).tolist() == [-1.0, 0.0, 0.0, 1.0]
    assert REWARD(RESOURCES, []).tolist() == []


def test_every_grade_is_a_setting() -> None:
    grades = UnitTests(
        uncompilable=-7, failed=-6, wrong=-5, nearly=-1, passed=9, untested=2, sandbox=SandboxSettings(workers=1)
    )
    texts = ["    return (\n", "    raise KeyError\n", "    return x\n", "    return 6\n", "    return x + 1\n"]
    assert grades(RESOURCES, [_rollout(text) for text in texts]).tolist() == [-7, -6, -5, -4, 9]
    assert grades(RESOURCES, [_rollout("", replace(PROBLEM, tests=""))]).tolist() == [2]


def test_a_program_is_the_last_block_that_defines_the_function_or_goes_on_where_the_prompt_ends() -> None:
    assert written_program(PROMPT, "    return 1\n", "f") == PROMPT + "    return 1\n"
    block = "```python\ndef f(x):\n    return 1\n```"
    assert written_program("Write f.", f"So:\n{block}\nand\n```\nprint(f(2))\n```", "f") == "def f(x):\n    return 1\n"
    assert written_program("import math\n" + PROMPT, block, "f").startswith("import math\n")
    assert written_program("Write f.", "def f(x): return 1", "f") == "def f(x): return 1"


class _Says:
    """An engine that returns the same texts as the completions of every prompt."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def generate(self, prompts: Any, sampling: Sampling, seed: int) -> list[list[Generated]]:
        chosen = self._texts if sampling.samples > 1 else self._texts[:1]
        rows = [Generated(tuple(text.encode()), None, True) for text in chosen]
        return [rows for _ in prompts]


class _Bytes(Codec):
    def text(self, completions: Any) -> list[str]:
        return [bytes(ids).decode() for ids in completions]


def test_a_block_is_found_in_time_linear_in_a_text_of_white_space() -> None:
    assert written_code("``` py3\n1\n```") == "``` py3\n1\n```"
    for mark in ("```", "``` python", "```python3 \t ", "```\t"):
        assert written_code(f"{mark}\n1\n```") == "1\n"
    endless = "```" + " " * 1_000_000 + "x"  # quadratic time would take more than an hour
    assert written_code(endless) == endless


def test_evaluations_count_what_the_rewards_tests_count() -> None:
    engine = cast(Any, _Says("    return x + 1\n", "    return x\n", "    return (\n"))
    problems = [replace(PROBLEM, tokens=(3,)), replace(PROBLEM, id="q", tests="", tokens=(4,))]
    sampling = Sampling(max_tokens=9, samples=3)
    records = evaluate(engine, _Bytes(word_tokenizer()), problems, sampling, 0, None, verify=REWARD.right)
    assert [[sample.correct for sample in record.samples] for record in records] == [[True, False, False], [False] * 3]
    assert [record.greedy.correct for record in records] == [True, False]
    rewards = REWARD(RESOURCES, [_rollout(sample.text) for sample in records[0].samples])
    assert (rewards == 1.0).tolist() == [sample.correct for sample in records[0].samples]


def test_the_recipe_names_its_verifier_once() -> None:
    recipe = load_recipe("humaneval")
    assert recipe.verifier is recipe.rewards[0] and recipe.verifier.name == "unit_tests"
    assert load_recipe("arithmetic").verifier is None
    with pytest.raises(UserError, match="would both decide what is right"):
        load_recipe("humaneval", ['rewards=[{"name": "unit_tests"}, {"name": "unit_tests", "label": "again"}]'])


def test_a_group_of_references_and_stumps_of_humaneval_is_graded(shared_data: Path) -> None:
    rows = [json.loads(line) for line in (shared_data / "humaneval.jsonl").read_text().splitlines()[:4]]
    problems = [
        Problem(row["task_id"], row["prompt"], tests=row["test"], entry_point=row["entry_point"]) for row in rows
    ]
    reward = UnitTests()
    attempts = [Attempt(problem, row["canonical_solution"], True) for problem, row in zip(problems, rows, strict=True)]
    assert reward.right(attempts) == [True] * 4
    stumps = torch.tensor([reward(RESOURCES, [_rollout("    pass\n", problem)])[0] for problem in problems])
    assert (stumps < 0.3).all()
