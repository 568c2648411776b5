"""Rewards of steps: clipping and differences by hand, aggregation, and the tokens that have a reward."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode
from models.parts.rewards.models.process import ProcessReward, shaped_steps
from models.reward_models.process import ProcessReading, aggregated
from models.reward_models.scorer import StepScorer
from tests.support.tiny_resources import CODEC, make_resources

VALUES = torch.tensor([0.9, 0.5, 0.7, 0.2])


def shaped(clip: float | None, delta: bool, last_step: bool = False, values: Tensor = VALUES) -> list[float]:
    made: list[float] = shaped_steps(values, clip, delta, last_step).tolist()
    return made


def test_by_hand() -> None:
    assert shaped(None, False, last_step=True) == pytest.approx([0.9, 0.5, 0.7, 0.2])
    assert shaped(None, False) == pytest.approx([0.9, 0.5, 0.7, 0.0])
    assert shaped(0.6, False, last_step=True) == pytest.approx([0.0, -0.1, 0.0, -0.4])
    assert shaped(None, True, last_step=True) == pytest.approx([0.4, -0.2, 0.5, 0.2])
    assert shaped(None, True) == pytest.approx([0.4, -0.2, 0.7, 0.0])
    assert shaped(0.6, True) == pytest.approx([0.1, -0.1, 0.0, 0.0])


def test_with_delta_the_sum_from_a_step_on_is_that_steps_value_and_so_bounded_whatever_the_length() -> None:
    for count in (2, 5, 400):
        values = torch.rand(count, generator=torch.Generator().manual_seed(count))
        to_go = shaped_steps(values, None, True, False).flip(0).cumsum(0).flip(0)
        torch.testing.assert_close(to_go[:-1], values[:-1], atol=1e-4, rtol=0)
        both = float(shaped_steps(values, 0.8, True, False).sum())
        assert -0.8 - 1e-4 <= both <= 1e-4


def test_raw_values_pay_for_every_further_step_and_clipped_ones_for_none() -> None:
    repeated = [torch.full((count,), 0.95) for count in (2, 20, 200)]
    assert [round(sum(shaped(None, False, values=row)), 2) for row in repeated] == [0.95, 18.05, 189.05]
    assert [sum(shaped(0.9, False, values=row)) for row in repeated] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("delta", [False, True])
def test_of_no_step_and_of_one_left_to_the_outcome_nothing_is_said(clip: float | None, delta: bool) -> None:
    assert shaped(clip, delta, values=torch.zeros(0)) == []
    assert shaped(clip, delta, values=torch.tensor([0.3])) == [0.0]


@pytest.mark.parametrize(("rule", "value"), [("min", 0.2), ("product", 0.063), ("mean", 0.575), ("last", 0.2)])
def test_a_completions_score_is_its_steps_values_as_one(rule: str, value: float) -> None:
    assert float(aggregated(VALUES, rule)) == pytest.approx(value)  # type: ignore[arg-type]
    assert float(aggregated(torch.zeros(0), rule)) == 0.0  # type: ignore[arg-type]


def by_length(sequences: Sequences, ends: Sequence[Sequence[int]]) -> list[Tensor]:
    """Return 1 / n as the value of a step that ends with the n-th token."""
    return [torch.tensor([1.0 / (end + 1) for end in cut]) for cut in ends]


SCORER = StepScorer(by_length, ProcessReading((";",)), CODEC)


def rollout(text: str, turns: tuple[Turn, ...] = (), ids: tuple[int, ...] | None = None) -> Rollout:
    (made,) = CODEC.completions([text]) if ids is None else [ids]
    return Rollout(Problem("p", "", tokens=(5,)), 0, tuple(made), None, text, True, episode=RolloutEpisode(turns=turns))


def test_values_stand_at_the_last_token_of_their_step_and_nowhere_else() -> None:
    made = rollout("3 ; 4")
    (row,) = ProcessReward(last_step=True).tokens(make_resources(scorer=SCORER), [made])
    assert row.tolist() == pytest.approx([0, 1 / 2, 0, 1 / 4])


@pytest.mark.parametrize("ids", [(), (5,), (5,) * 5000])
def test_whatever_is_said_has_a_defined_value(ids: tuple[int, ...]) -> None:
    rows = ProcessReward(clip=0.9, delta=True).tokens(
        make_resources(scorer=SCORER), [rollout("", ids=ids), rollout("")]
    )
    assert [len(row) for row in rows] == [len(ids), 1] and all(bool(torch.isfinite(row).all()) for row in rows)


def test_what_an_environment_says_is_worth_nothing() -> None:
    made = rollout("", turns=(Turn(0, 2),), ids=(5, 6, 7, 8))
    (row,) = ProcessReward(last_step=True).tokens(make_resources(scorer=SCORER), [made])
    assert row.tolist() == [0.0] * 4  # the only step ends with a token of the environment


def test_a_reward_model_of_whole_completions_is_refused() -> None:
    with pytest.raises(UserError, match=r"reward_model\.process"):
        ProcessReward().tokens(make_resources(scorer=lambda sequences: torch.zeros(len(sequences))), [rollout("a")])
