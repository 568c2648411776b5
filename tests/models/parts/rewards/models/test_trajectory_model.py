"""The reward model of relabelled episodes: its triplets, and the score of episodes that fit their goal."""

from dataclasses import replace

import pytest
import torch

from models.answers.exact import is_right
from models.learner.optimiser import OptimiserSettings
from models.method.problem import Origin, Problem
from models.method.rollout import Rollout, RolloutSource
from models.parts.rewards.models.trajectory_model import TrajectoryModel, triplets
from tests.support.tiny_loops import SCHEDULE, new_learner
from tests.support.tiny_resources import make_resources


def episode(goal: int, said: int, origin: Origin = "relabelled") -> Rollout:
    """Make an episode with `goal` in its prompt and `said` as its completion."""
    problem = Problem(f"to {goal}", f"{goal} +", tokens=(3 + goal, 20))
    return Rollout(problem, 0, (3 + said, 1), None, str(said), True, source=RolloutSource(origin=origin))


def test_an_episode_meets_those_that_did_something_else() -> None:
    made = [episode(2, 2), episode(3, 3), episode(5, 4, "policy"), episode(2, 2, "policy"), episode(2, 6, "policy")]
    # A negative has another problem. Episode 3 is left out, since its text is that of a relabelled episode.
    assert triplets(made) == [(0, 1), (0, 2), (1, 0), (1, 2)]
    assert triplets(made[2:]) == [] and triplets(made[:1]) == []


@pytest.mark.rotating(of=6)
def test_it_learns_which_episode_does_what_its_prompt_asks_for() -> None:
    learner = new_learner(SCHEDULE)
    part = TrajectoryModel(passes=1, optimiser=OptimiserSettings(learning_rate=3e-3, warmup_steps=1))
    learner.companions[part.companion] = part.accompany(learner.policy)
    resources = make_resources(learner=learner)
    # Over four steps, each goal gets every other goal as its negative.
    for step in range(60):
        numbers = [place * (1 + step % 4) % 5 for place in range(5)]
        seen = part.learn(resources, [episode(number, number) for number in numbers], {"exact_answer": torch.ones(5)})
    assert seen["accuracy"] == 1.0 and seen["loss"] < 0.2 and seen["triplets"] == 5
    right = part(resources, [episode(number, number) for number in range(5)])
    wrong = [episode(number, said) for number in range(5) for said in range(5) if said != number]
    assert bool((right.repeat_interleave(4) > part(resources, wrong) + 0.5).all())
    cut = replace(episode(0, 0), finished=False)
    assert float(part(resources, [*wrong, cut])[-1]) <= float(part(resources, wrong).min()) + 1e-6


def test_no_episode_that_solves_a_goal_stands_as_wrong_under_it() -> None:
    """Two episodes with the same answer form no triplet, and every negative is wrong for its goal."""

    def states(goal: str, text: str, answer: str, origin: Origin) -> Rollout:
        return replace(episode(1, 1, origin), problem=Problem(goal, goal, answer, tokens=(4, 20)), text=text)

    made = [
        states("3 + 4", "calc 3 + 4 #### 7", "7", "relabelled"),
        states("9 - 2", "calc 9 - 2 #### 7", "7", "relabelled"),
        states("1 + 1", "calc 1 + 1 #### 2", "2", "relabelled"),
        states("5 + 5", "calc 8 - 1 #### 7.0", "10", "policy"),
    ]
    made[3] = replace(made[3], finished=False)
    seen = triplets(made)
    assert seen == [(0, 2), (1, 2), (2, 0), (2, 3)]
    for positive, negative in seen:
        answer = made[positive].problem.answer
        assert is_right(made[positive].text, answer, finished=True)
        assert not is_right(made[negative].text, answer, finished=True)
