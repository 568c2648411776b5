"""The goal of a reward model: it is stored in the model's folder, and tokens get their cosine with it as value."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.models.goal_nearness import FARTHEST, GoalNearness
from models.policies.folder import save_model_folder
from models.recipes.load import load_recipe
from models.reward_models.goal import FILE, goal_of, nearness, read_goal, states_of, write_goal
from models.reward_models.model import reward_model_from_policy
from models.reward_models.scorer import GoalScorer, open_scorer
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import CODEC, make_resources


def test_nearness_is_the_cosine_with_the_goal_at_every_token() -> None:
    states = torch.tensor([[3.0, 4.0], [0.0, -2.0], [5.0, 0.0]])
    (row,) = nearness([states], torch.tensor([1.0, 0.0]))
    assert row.tolist() == pytest.approx([0.6, 0.0, 1.0])


def test_a_folder_without_a_goal_has_none_and_one_with_a_foreign_file_is_refused(tmp_path: Path) -> None:
    assert read_goal(tmp_path) is None
    write_goal(tmp_path, torch.tensor([0.6, 0.8]))
    kept = read_goal(tmp_path)
    assert kept is not None and kept.tolist() == pytest.approx([0.6, 0.8])
    (tmp_path / FILE).write_bytes(b"not tensors")
    with pytest.raises(UserError, match="holds no goal"):
        read_goal(tmp_path)


def test_a_reward_model_with_a_goal_scores_as_before_and_tells_how_near_each_token_is(tmp_path: Path) -> None:
    save_model_folder(tiny_policy(torch.float32), CODEC.tokenizer, tmp_path / "policy")
    model: Any = reward_model_from_policy(tmp_path / "policy", seed=0, head_std=1.0)
    model.config.pad_token_id = CODEC.pad
    prompts, completions = CODEC.prompts(["1 + 2 =", "4 +"]), CODEC.completions(["3", "5 = 9"])
    sequences = Sequences(prompts, completions)
    save_model_folder(model, CODEC.tokenizer, tmp_path / "model")
    plain = open_scorer(tmp_path / "model", CODEC, token_budget=512, autocast_for=lambda model: None)
    goal = goal_of(model, sequences)
    assert float(goal.norm()) == pytest.approx(1.0)
    write_goal(tmp_path / "model", goal)
    scorer = open_scorer(tmp_path / "model", CODEC, token_budget=512, autocast_for=lambda model: None)
    assert isinstance(scorer, GoalScorer) and not isinstance(plain, GoalScorer)
    assert torch.equal(scorer(sequences), plain(sequences))
    rows = scorer.nearness(sequences)
    last = torch.stack([of[-1] / of[-1].norm() for of in states_of(model, sequences)])
    assert torch.stack([row[-1] for row in rows]).tolist() == pytest.approx((last @ goal).tolist(), abs=1e-5)
    assert [len(row) for row in rows] == [len(ids) for ids in completions]


def by_place(sequences: Sequences) -> list[Tensor]:
    """Score each token by its position: the nth of k tokens has the value n / k."""
    return [torch.arange(1, len(ids) + 1) / len(ids) for ids in sequences.completions]


SCORER = GoalScorer(lambda sequences: torch.zeros(len(sequences)), by_place)


def rollout(ids: Sequence[int], finished: bool = True) -> Rollout:
    return Rollout(Problem("p", "", tokens=(5,)), 0, tuple(ids), None, "", finished)


def test_a_beginning_is_read_at_its_last_token() -> None:
    resources, made = make_resources(scorer=SCORER), [rollout(range(5, 15)), rollout([5, 6, 7, 8])]
    assert GoalNearness()(resources, made).tolist() == pytest.approx([1.0, 1.0])
    assert GoalNearness(share=0.5)(resources, made).tolist() == pytest.approx([0.5, 0.5])
    assert GoalNearness(share=0.3)(resources, made).tolist() == pytest.approx([0.3, 0.5])


def test_one_that_was_cut_is_worth_no_more_than_the_worst_but_its_beginning_is_what_it_is() -> None:
    resources, made = make_resources(scorer=SCORER), [rollout([5, 6], finished=False), rollout([]), rollout([5])]
    assert GoalNearness()(resources, made).tolist() == [FARTHEST, FARTHEST, 1.0]
    assert GoalNearness(share=0.5)(resources, made).tolist() == [0.5, FARTHEST, 1.0]


@pytest.mark.parametrize("ids", [(), (5,), (5,) * 5000])
def test_whatever_is_said_has_a_defined_value(ids: tuple[int, ...]) -> None:
    values = GoalNearness()(make_resources(scorer=SCORER), [rollout(ids), rollout((6,))])
    assert values.shape == (2,) and bool(torch.isfinite(values).all())


def test_a_reward_model_without_a_goal_is_refused_in_the_run_and_in_the_recipe() -> None:
    with pytest.raises(UserError, match=r"reward_model\.fit\.contrast\.goal"):
        GoalNearness()(make_resources(scorer=lambda sequences: torch.zeros(len(sequences))), [rollout([5])])
    with pytest.raises(UserError, match=r"goal_nearness needs a goal"):
        load_recipe("recipes/reward-modelling/goal_rm.yaml", ["reward_model.fit.contrast=null"])
    with pytest.raises(UserError, match="knows no pairs to contrast"):
        load_recipe("recipes/reward-modelling/goal_rm.yaml", ["reward_model.process={}"])
