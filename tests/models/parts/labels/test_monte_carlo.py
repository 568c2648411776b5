"""Monte-Carlo labels: a step has the share of the continuations from it that end with the right answer."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from models.answers.exact import by_answer
from models.engines.engine import Sampling
from models.method.problem import Problem
from models.parts.labels.monte_carlo import MonteCarlo, success_rates
from models.reward_models.solution_rows import read_solutions, write_solutions
from models.reward_models.solutions import LabellingTools, Solution, known_labels
from tests.support.tiny_engines import Saying
from tests.support.tiny_resources import CODEC

Say = Callable[[list[str], int], str]
PROBLEM = Problem("p", "3 + 4", "7", tokens=tuple(CODEC.prompts(["3 + 4"])[0]))


def bench(say: Say, max_tokens: int = 20, samples: int = 2) -> LabellingTools:
    sampling = Sampling(max_tokens=max_tokens, samples=samples)
    return LabellingTools(Saying(CODEC, say), CODEC, by_answer, sampling, ("\n", ";"), 0, {})


def solution(work: LabellingTools, text: str, finished: bool = True) -> Solution:
    ids = CODEC.completions([text])[0]
    (made,) = work.read([PROBLEM], [tuple(ids if finished else ids[:-1])], [finished])
    return made


def rightly_from_seven(words: list[str], seed: int) -> str:
    """Return the right answer if the text so far contains a 7."""
    return "#### 7" if "7" in words else "#### 8"


def test_a_step_is_worth_the_share_of_continuations_that_end_right() -> None:
    work = bench(lambda words, seed: "#### 7" if "7" in words or seed % 4 == 0 else "#### 8")
    made = solution(work, "3 = 3 ; 7 = 7 ; #### 8")
    assert made.ends == (3, 7, 10) and not made.right
    (soft,) = MonteCarlo(continuations=64).label(work, [made])
    assert 0.1 < float(soft[0]) < 0.45 and soft[1:].tolist() == [1.0, 0.0]  # the last: the solution's verdict
    (hard,) = MonteCarlo(continuations=64, kind="hard").label(work, [made])
    assert hard.tolist() == [1.0, 1.0, 0.0]


def test_equal_beginnings_are_gone_on_from_once_and_the_whole_problem_where_no_step_is_named() -> None:
    work = bench(rightly_from_seven)
    first, second = solution(work, "7 = 7 ; #### 7"), solution(work, "7 = 7 ; #### 8")
    assert success_rates(work, [(first, 0), (second, 0), (first, -1)], 5) == [1.0, 1.0, 0.0]
    assert isinstance(work.engine, Saying)
    assert len(work.engine.asked) == 10


def test_a_solution_that_was_cut_has_no_room_to_go_on_and_is_wrong() -> None:
    made = solution(bench(rightly_from_seven), "7 = 7 ; 7", finished=False)
    (row,) = MonteCarlo().label(bench(rightly_from_seven, max_tokens=len(made.completion)), [made])
    assert row.tolist() == [1.0, 0.0]


def test_drawn_solutions_come_with_a_label_a_step_and_the_same_ones_each_time() -> None:
    def say(words: list[str], seed: int) -> str:
        return rightly_from_seven(words, seed) if ";" in words else f"{seed % 9} = 1 ; #### 8"

    first, again = (MonteCarlo(continuations=2)(bench(say), [PROBLEM, PROBLEM]) for _ in range(2))
    assert [each.labels for each in first] == [each.labels for each in again] and len(first) == 4
    assert all(len(each.labels) == len(each.ends) == 2 for each in first)


@pytest.mark.parametrize("text", ["", ";", "; ; ;", "#### ####", "= " * 500, "\x00\udcff", "ä" * 50])
def test_whatever_is_said_has_labels(text: str) -> None:
    work = bench(lambda words, seed: text.encode("utf-8", "replace").decode())
    for each in MonteCarlo(continuations=2)(work, [PROBLEM]):
        assert len(each.labels) == len(each.ends) > 0 and all(0 <= label <= 1 for label in each.labels)


def test_solutions_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    work = bench(rightly_from_seven)
    made = solution(work, "7 = 7 ; #### 7").labelled(torch.tensor([0.25, math.nan]))
    write_solutions(tmp_path / "made.jsonl", [made])
    (read,) = read_solutions(tmp_path / "made.jsonl")
    assert (read.completion, read.ends, read.problem) == (made.completion, made.ends, made.problem)
    assert (read.text, read.right, read.labels[0]) == (made.text, True, 0.25)
    assert known_labels(read).tolist() == [True, False]
