"""The environment `experiments`: scores by hand, gains of real runs in the sandbox, and scripts that try to cheat."""

import json
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest

from models.agents.environments.experiments import Experiments, score_of_script
from models.agents.play.experiment_tasks import SCRIPTS, ExperimentData, TaskName, data_of, score_of
from models.agents.small_sets.experiments import SET, scores
from models.base.errors import UserError
from models.method.environment import EnvironmentAnswer
from models.method.problem import Problem
from models.sandbox.settings import SandboxSettings

SCRIPT = SCRIPTS["neighbours"].source(("25", "9"))


def problem(script: str = SCRIPT, task: TaskName = "neighbours", goal: float = 0.8) -> Problem:
    return Problem("p", "", json.dumps({"task": task, "seed": 1, "script": script, "goal": goal}))


def play(turns: list[str], start: Problem, edits: int = 3) -> list[EnvironmentAnswer]:
    opened = Experiments(edits=edits).open(start)
    assert opened.reset(0)[0] == ""
    answers = []
    for turn in turns:
        answers.append(opened.step(turn))
        if answers[-1][2]:
            break
    return answers


def test_scores_by_hand() -> None:
    data = ExperimentData(np.zeros(1), np.zeros(1), np.zeros(4), np.array([0.0, 1.0, 1.0, 2.0]))
    assert score_of("classes", data, "[0, 1, 0, 2]") == 0.75
    assert score_of("curve", data, "[0, 1, 1, 2]") == 1.0
    assert score_of("curve", data, "[1, 1, 1, 1]") == 0.0  # the mean explains nothing
    assert score_of("curve", data, "[0, 1, 1, 1]") == pytest.approx(1 - 0.25 / 0.5)
    assert score_of("curve", data, "[9, 9, 9, 9]") == 0.0
    rock = ExperimentData(np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]]), np.zeros(1), np.zeros(1), np.zeros(3))
    assert score_of("game", rock, "[1, 1, 1]") == pytest.approx(1.0)
    assert score_of("game", rock, "[1, 0, 0]") == 0.0
    assert score_of("game", rock, "[-1, 1, 1]") == score_of("game", rock, "[0, 0.5, 0.5]")


@pytest.mark.parametrize("output", ["", "none", "[1, 2, 3]", "[1, 2, NaN, 4]", "7", '["a", 1, 2, 3]', "[[1], 1, 2, 3]"])
def test_other_output_has_no_score(output: str) -> None:
    data = ExperimentData(np.zeros(1), np.zeros(1), np.zeros(4), np.array([0.0, 1.0, 1.0, 2.0]))
    assert score_of("curve", data, output) is None


def test_the_reward_is_the_gain_over_the_first_script() -> None:
    sandbox = SandboxSettings()
    first = score_of_script(sandbox, "neighbours", 1, SCRIPT)[0]
    better = score_of_script(sandbox, "neighbours", 1, SCRIPTS["neighbours"].source(("5", "0")))[0]
    assert first is not None and better is not None and better > first
    answers = play(["1: k = 5", "2: scale = 0", "done"], problem())
    assert [answer[1] for answer in answers] == [0.0, 0.0, pytest.approx(better - first)]
    assert answers[1][0] == f"score {better:.2f}" and answers[2][4]["solved"] == (better >= 0.8)
    assert play(["done"], problem())[0][1] == 0.0


def test_the_last_edit_ends_the_episode_with_its_gain() -> None:
    short, long = play(["2: scale = 0"], problem(), edits=1), play(["2: scale = 0", "done"], problem())
    assert short[-1][2] and short[-1][1] == long[-1][1]


@pytest.mark.parametrize(
    ("turn", "answer"),
    [
        ("scale = 0", "error: number of a line, colon, new line"),
        ("9: scale = 0", "error: number of a line, colon, new line"),
        ("2: scale = ", "error: "),
        ("2: raise ValueError('no')", "error: "),
        ("5: print([1])", "error: it must print a list of 40 numbers"),
        ("5: print([float('nan')] * 40)", "error: it must print a list of 40 numbers"),
    ],
)
def test_an_edit_without_a_score_is_answered_and_taken_back(turn: str, answer: str) -> None:
    answers = play([turn, "1: k = 5"], problem())
    assert answers[0][0].startswith(answer) and answers[0][1] == 0.0
    assert answers[1][0] == play(["1: k = 5"], problem())[0][0]


def test_the_targets_of_the_test_are_not_where_the_script_runs() -> None:
    for task in SCRIPTS:
        data = data_of(task, 3)
        if task != "game":
            assert str(data.test_targets.tolist()) not in data.preamble
    cheat = "5: print([v for k, v in globals().items() if 'test' in k or 'target' in k][0])"
    assert play([cheat], problem())[0][0].startswith("error: ")


def test_an_endless_script_ends_by_its_time() -> None:
    score, why = score_of_script(SandboxSettings(seconds=0.5), "curve", 1, "while True: pass")
    assert score is None and why == "it took too long"


def test_every_task_is_improved_by_its_settings_and_data_depend_on_the_seed() -> None:
    for task, script in SCRIPTS.items():
        by_values = scores(task, 2)
        assert set(by_values) == set(product(*script.settings.values()))
        assert max(by_values.values()) - min(by_values.values()) > 0.05
        assert data_of(task, 2).preamble == data_of.__wrapped__(task, 2).preamble != data_of(task, 3).preamble


def test_scripted_edits_reach_the_goal_and_random_edits_rarely() -> None:
    environment, random = Experiments(), Random(3)
    small = replace(SET, data_seeds=2, sound=0.4)
    solved: dict[str, list[bool]] = {"none": [], "aimless": []}
    for _ in range(40):
        task = small.draw(random)
        flaw, turns = small.script(random, task)
        opened = environment.open(Problem("p", task.prompt, task.answer))
        opened.reset(0)
        answer: EnvironmentAnswer = "", 0.0, False, False, {}
        for turn in turns:
            answer = opened.step(turn)
        solved[flaw].append(bool(answer[4]["solved"]))
    assert solved["none"] and all(solved["none"])
    assert sum(solved["aimless"]) <= 0.5 * len(solved["aimless"])


def test_a_problem_whose_script_fails_is_refused_in_a_line() -> None:
    with pytest.raises(
        UserError, match=r"problem p: its script gives no score .*NameError.*; correct the problem's ans"
    ):
        Experiments().open(problem("print(unknown)"))
    with pytest.raises(UserError, match="problem p: the answer is none of environment experiments"):
        Experiments().open(Problem("p", "", '{"task": "vision"}'))
