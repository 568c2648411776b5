"""A curriculum by level: the order of levels, and it reaches a level that uniform sampling does not."""

from collections import Counter

import pytest
import torch

from models.method.curriculum import CurriculumSettings, choose, level_reached, note, prompts_of_round
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.method.tally import Tally

MANY = [Problem(f"q{number}", "", level=1 + number % 4) for number in range(40)]


def chosen(tally: Tally, number: int = 0, **settings: float) -> list[int]:
    rule = CurriculumSettings(order="by_level", **settings)  # type: ignore[arg-type]
    return [problem.level for problem in choose(MANY, rule, tally, 8, number, 30, 7)]


def test_the_lowest_level_that_is_not_mastered_comes_with_some_of_those_below() -> None:
    assert chosen(Tally()) == [1] * 8
    tally = Tally(levels={1: (8.0, 10.0), 2: (7.0, 10.0), 3: (6.9, 10.0)})
    assert Counter(chosen(tally, again=0.25)[:6]) == {3: 6} and set(chosen(tally, again=0.25)[6:]) <= {1, 2}
    assert chosen(tally, again=0.0) == [3] * 8
    assert chosen(Tally(levels=dict.fromkeys(range(1, 5), (1.0, 1.0))), again=0.0) == [4] * 8


def test_a_level_that_is_lost_again_comes_back() -> None:
    levels = [1, 2, 3]
    assert level_reached(levels, Tally(levels={1: (9, 10), 2: (9, 10)}), 0.7) == 3
    assert level_reached(levels, Tally(levels={1: (5, 10), 2: (9, 10)}), 0.7) == 1


def test_what_is_counted_by_level_is_discounted_round_by_round() -> None:
    tally, settings = Tally(), CurriculumSettings(order="by_level", discount=0.5)
    for worth in ([1.0, 0.0, 1.0], [0.0, 0.0, 1.0]):
        rollouts = [Rollout(MANY[place], place, (3,), None, "", True) for place in (0, 4, 1)]
        note(tally, Scored(rollouts, torch.tensor(worth), {}, {}), settings)
    assert tally.levels == {1: (0.5, 3.0), 2: (1.5, 1.5)}


HIGHEST, SAMPLES, ROUNDS = 8, 8, 100
PROBLEMS = [
    Problem(f"{level}/{number}", "", level=level) for level in range(1, HIGHEST + 1) for number in range(3**level)
]
"""A higher level, with more sub-goals, has more problems."""


def reached(way: str, seed: int) -> list[float]:
    """Return the chance of each level's goal after a training.

    A problem of level n needs n right choices of four. REINFORCE trains a table of choices that the levels share, as
    forms with more fields share the fields of smaller ones. Only the goal is rewarded.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(HIGHEST, 4, dtype=torch.float64)
    tally, rule = Tally(), CurriculumSettings(order="by_level", mastery=0.7, again=0.25)
    for number in range(ROUNDS):
        if way == "by_level":
            problems = choose(PROBLEMS, rule, tally, 8, number, ROUNDS, seed)
        else:
            problems = prompts_of_round(PROBLEMS, 8, number, seed)
        gradient, rollouts, worth = torch.zeros_like(logits), [], []
        chances = torch.softmax(logits, dim=1)
        for group, problem in enumerate(problems):
            picks = torch.multinomial(chances[: problem.level], SAMPLES, replacement=True, generator=generator)
            right = (picks == 0).all(dim=0).double()
            for picked, advantage in zip(picks.T, (right - right.mean()).tolist(), strict=True):
                gradient[: problem.level] += advantage * (torch.eye(4).double()[picked] - chances[: problem.level])
            rollouts += [Rollout(problem, group, (3,), None, "", True)] * SAMPLES
            worth += right.tolist()
        logits += 0.2 * gradient
        note(tally, Scored(rollouts, torch.tensor(worth), {}, {}), rule)
    return torch.softmax(logits, dim=1)[:, 0].cumprod(0).tolist()


@pytest.mark.parametrize("seed", [1, 2])
def test_levels_reach_the_highest_where_uniform_sampling_of_as_many_tries_fails(seed: int) -> None:
    by_level, uniform = reached("by_level", seed), reached("uniform", seed)
    assert by_level[-1] > 0.7
    assert uniform[-1] < 0.2
