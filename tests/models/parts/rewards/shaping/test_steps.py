"""The reward for steps: counts by hand, its limit, cut completions, and its place next to the verifier."""

from dataclasses import replace

import pytest
import torch

from models.base.errors import UserError
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode
from models.parts.rewards.shaping.steps import Steps
from models.recipes.load import load_recipe
from models.training.score import score
from tests.support.tiny_resources import CODEC, make_resources


def written(text: str, finished: bool = True) -> Rollout:
    [ids] = CODEC.completions([text])
    return Rollout(Problem("p", "", "7", tokens=(3,)), 0, tuple(ids), None, text, finished)


def test_steps_by_hand() -> None:
    texts = ["#### 7", "1 + 2 = 3 ; #### 3", "1 ; 2 ; 3 ; #### 7"]
    values = Steps(most=4, marks=(";",))(make_resources(), [written(text) for text in texts])
    assert values.tolist() == [0.25, 0.5, 1.0]


def test_no_more_than_the_limit_is_rewarded_and_the_value_never_falls_with_another_step() -> None:
    texts = [" ; ".join(["1"] * count) for count in range(1, 9)]
    values = Steps(most=3, marks=(";",))(make_resources(), [written(text) for text in texts])
    assert values[2:].tolist() == [1.0] * 6 and (values.diff() >= 0).all()


def test_steps_without_text_do_not_count() -> None:
    texts = ["; ; ; ; ; ; ; ; #### 7", "", "1 ; ; 2 ; #### 7"]
    values = Steps(marks=(";",))(make_resources(), [written(text) for text in texts])
    assert values.tolist() == [0.125, 0.0, 0.375]


def test_a_completion_that_was_cut_has_no_value() -> None:
    assert Steps(marks=(";",))(make_resources(), [written("1 ; 2 ; 3", finished=False)]).tolist() == [0.0]


def test_only_the_tokens_that_the_policy_wrote_are_counted() -> None:
    rollout = written("1 ; 2 ; 3")
    turns = (Turn(0, 2), Turn(4, len(rollout.completion)))
    episode = replace(rollout, episode=RolloutEpisode(turns=turns))
    assert Steps(most=4, marks=(";",))(make_resources(), [rollout, episode]).tolist() == [0.75, 0.5]


def test_both_signals_are_logged_apart_and_the_total_is_their_convex_sum() -> None:
    recipe = load_recipe("rlsp")
    weights = {reward.label: reward.weight for reward in recipe.rewards}
    assert weights == {"exact_answer": 0.8, "steps": 0.2} and sum(weights.values()) == pytest.approx(1.0)
    rollouts = [written("1 ; 2 ; #### 7"), written("#### 7"), written("1 ; 2 ; #### 3")]
    scored = score(make_resources(), recipe.rewards, rollouts)
    assert set(scored.components) == {"exact_answer", "steps"}
    expected = 0.8 * scored.components["exact_answer"] + 0.2 * scored.components["steps"]
    torch.testing.assert_close(scored.rewards, expected)
    assert scored.rewards[0] > scored.rewards[1] > scored.rewards[2]


def test_a_limit_of_no_steps_is_refused() -> None:
    with pytest.raises(UserError, match=r"most"):
        load_recipe("rlsp", ["rewards.1.most=0"])
