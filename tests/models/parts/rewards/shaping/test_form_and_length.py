"""The reward for form and length: values by hand, the update from which length counts, and texts without a number."""

import itertools

import pytest
import torch

from models.answers.exact import is_right
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode
from models.parts.rewards.shaping.form_and_length import FormAndLength, length_score
from models.task_sets.drawing import make_rows
from models.task_sets.habits import HabitsSettings
from tests.support.tiny_resources import make_resources

PAPER = FormAndLength(longest=3072)
STATED, UNSTATED = "so 7 #### 7", "so 7"


def rollout(text: str, length: int, finished: bool = True, answer: str = "8") -> Rollout:
    return Rollout(Problem("p", "", answer), 0, (5,) * length, torch.zeros(length), text, finished)


def values(reward: FormAndLength, *rollouts: Rollout, updates: int = 0) -> list[float]:
    resources = make_resources()
    resources.learner.updates = updates
    return reward(resources, list(rollouts)).tolist()


def test_the_length_by_hand() -> None:
    shares = [0.0, 0.125, 0.25, 0.5, 0.625, 0.75, 1.0]
    assert [length_score(x, 0.5) for x in shares] == pytest.approx([0.0, 0.4375, 0.75, 1.0, 0.875, 0.5, -1.0])
    assert [length_score(x, 0.25) for x in (0.125, 0.25, 0.625, 1.0)] == pytest.approx([0.75, 1.0, 0.5, -1.0])


@pytest.mark.parametrize("best", [0.1, 0.5, 0.9])
def test_the_length_is_continuous_and_flat_at_its_best_rises_before_and_falls_behind(best: float) -> None:
    grid = [n / 1000 for n in range(1001)]
    scores = [length_score(x, best) for x in grid]
    assert max(range(1001), key=scores.__getitem__) == round(1000 * best)
    slopes = [after - before for before, after in itertools.pairwise(scores)]
    assert all((slope > 0) == (x < best) for x, slope in zip(grid, slopes, strict=False))
    assert max(abs(slope) for slope in slopes) < 0.05
    step = 1e-6
    assert length_score(best + step, best) == pytest.approx(length_score(best - step, best), abs=1e-9)


def test_the_reward_by_hand_and_whether_the_answer_is_right_changes_nothing() -> None:
    lengths = [0, 384, 1536, 2304, 3072]
    for answer in ("7", "8", ""):
        stated = values(PAPER, *[rollout(STATED, length, answer=answer) for length in lengths])
        assert stated == pytest.approx([0.5, 0.9375, 1.5, 1.0, -0.5])
        unstated = values(PAPER, *[rollout(UNSTATED, length, answer=answer) for length in lengths])
        assert unstated == pytest.approx([0.0, 0.0, 0.0, 0.0, -1.0])


def test_nothing_is_longer_than_the_longest() -> None:
    reward = FormAndLength(longest=10)
    assert values(reward, rollout(STATED, 10), rollout(STATED, 10_000)) == pytest.approx([-0.5, -0.5])


def test_the_length_counts_after_so_many_steps_and_the_form_always() -> None:
    reward = FormAndLength(longest=10, length_after=3)
    stated, unstated = rollout(STATED, 5), rollout(UNSTATED, 10)
    assert values(reward, stated, unstated, updates=2) == [0.5, 0.0]
    assert values(reward, stated, unstated, updates=3) == [1.5, -1.0]


def test_of_an_episode_the_words_of_the_policy_are_counted_alone() -> None:
    talk = Rollout(
        Problem("p", ""), 0, (5,) * 10, None, STATED, True, episode=RolloutEpisode(turns=(Turn(0, 2), Turn(7, 10)))
    )
    assert values(FormAndLength(longest=10), talk) == pytest.approx([1.5])


@pytest.mark.parametrize(
    "text",
    ["", "####", "#### seven", "#### 5 or 6", "7", "\x00\x01", "\ud800", "#### " + "9" * 300_000, "{" * 300_000],
    ids=range(9),
)
def test_what_states_no_number_has_no_form_whatever_it_is(text: str) -> None:
    assert values(PAPER, rollout(text, 1536)) == [0.0]


def test_a_number_in_any_dress_has_the_form_and_a_cut_completion_has_none() -> None:
    said = ["#### 7", "\\boxed{\\frac{1}{2}}", "The answer is -3.5.", "#### 1,200 dollars"]
    assert values(PAPER, *[rollout(text, 1536) for text in said]) == [1.5] * 4
    assert values(PAPER, rollout(STATED, 3072, finished=False)) == [-1.0]


def test_sound_demonstrations_of_bad_habits_are_worth_most_and_are_the_only_right_ones() -> None:
    settings = HabitsSettings(
        problems={"train": 40, "validation": 5, "gate": 5}, demonstrations={"train": 200}, start=(1, 20),
        operand=(1, 9), levels=[2], rash=0.4, unstated=0.5,
    )  # fmt: skip
    rows = make_rows(settings)
    answers = {row["prompt"]: str(row["answer"]) for row in rows["problems"]["train"]}
    worth: dict[str, list[float]] = {}
    for row in rows["demonstrations"]["train"]:
        text = str(row["completion"])
        assert is_right(text, answers[row["prompt"]], finished=True) == (row["flaw"] == "none")
        said = rollout(text, len(text.split()) + 1)
        worth.setdefault(str(row["flaw"]), []).extend(values(FormAndLength(longest=32), said))
    assert set(worth) == {"none", "rash", "unstated"}
    assert min(worth["none"]) > max(worth["rash"]) > max(worth["unstated"])
