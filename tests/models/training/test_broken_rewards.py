"""Rewards that hang, raise or return no number: retries, the replacement value, and the end of the run."""

import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.resources import RunResources
from models.method.reward import Limits, Reward, TokenReward
from models.method.rollout import Rollout
from models.method.slots import Slots
from models.training.score import Scoring, failures_of, score
from tests.support.tiny_loops import SCHEDULE, SLOTS, run, same_weights, save_start
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

ROLLOUTS = scored([0.0] * 4, [2, 2]).rollouts
GOOD = (1.0, 2.0, 3.0, 4.0)
Answer = Callable[[Sequence[Rollout]], Tensor]


@dataclass(frozen=True, kw_only=True)
class Scripted(Reward):
    """A reward whose nth call runs the nth function of the script; further calls run the last one."""

    script: tuple[Answer, ...]
    calls: list[int]
    name = "scripted"

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        self.calls.append(len(self.calls))
        return self.script[min(len(self.calls), len(self.script)) - 1](rollouts)


def good(rollouts: Sequence[Rollout]) -> Tensor:
    return torch.tensor([float(1 + index % 4) for index in range(len(rollouts))])


def hangs(rollouts: Sequence[Rollout]) -> Tensor:
    time.sleep(60)
    return good(rollouts)


def throws(rollouts: Sequence[Rollout]) -> Tensor:
    raise ConnectionError("the judge is away")


def one_nan(rollouts: Sequence[Rollout]) -> Tensor:
    return torch.tensor([1.0, 2.0, torch.nan, 4.0])


def infinite(rollouts: Sequence[Rollout]) -> Tensor:
    return torch.tensor([1.0, -torch.inf, torch.inf, 4.0])


def too_few(rollouts: Sequence[Rollout]) -> Tensor:
    return good(rollouts)[:-1]


def text(rollouts: Sequence[Rollout]) -> Tensor:
    return "good"  # type: ignore[return-value]


def made(*script: Answer, **limits: float) -> Scripted:
    given = {"seconds": 0.1 if hangs in script else 30.0, "value": -1.0, "retries": 1, "patience": 2} | limits
    return Scripted(script=script, calls=[], label="judge", limits=Limits(**given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("broken", "values", "reason"),
    [
        (hangs, [-1.0] * 4, "TimeoutError: took longer than 0.1 s"),
        (throws, [-1.0] * 4, "ConnectionError: the judge is away"),
        (one_nan, [1.0, 2.0, -1.0, 4.0], "no finite value for problem p1"),
        (infinite, [1.0, -1.0, -1.0, 4.0], "no finite value for problem p0"),
        (too_few, [-1.0] * 4, "ValueError: gave (3,) values for 4 completions"),
        (text, [-1.0] * 4, "AttributeError: 'str' object has no attribute 'shape'"),
    ],
)
def test_a_broken_reward_is_asked_again_and_then_has_the_defined_value_and_is_counted(
    broken: Answer, values: list[float], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    reward = made(broken)
    scored = score(make_resources(), [reward], ROLLOUTS)
    assert reward.calls == [0, 1]
    assert scored.components["judge"].tolist() == scored.rewards.tolist() == values
    assert scored.watched == {"rewards/judge/failures": values.count(-1.0)}
    missing = values.count(-1.0)
    assert f"reward judge: {missing} of 4 completions count -1 instead of a value ({reason})" in caplog.text


def test_a_failure_that_passes_leaves_nothing_but_time(caplog: pytest.LogCaptureFixture) -> None:
    for broken in (hangs, throws, one_nan, too_few, text):
        reward = made(broken, good)
        scored = score(make_resources(), [reward], ROLLOUTS)
        assert tuple(scored.rewards.tolist()) == GOOD and scored.watched == {} and reward.calls == [0, 1]
    assert not caplog.records


def test_the_values_of_the_best_call_are_taken() -> None:
    scored = score(make_resources(), [made(infinite, one_nan, throws, retries=2)], ROLLOUTS)
    assert scored.rewards.tolist() == [1.0, 2.0, -1.0, 4.0]


def test_a_second_call_draws_the_random_numbers_that_the_first_would_have() -> None:
    def drawn(rollouts: Sequence[Rollout]) -> Tensor:
        return torch.rand(len(rollouts))

    def draws_and_throws(rollouts: Sequence[Rollout]) -> Tensor:
        torch.rand(3)
        return throws(rollouts)

    seen = []
    for script in ((drawn,), (draws_and_throws, drawn)):
        torch.manual_seed(5)
        seen.append((score(make_resources(), [made(*script)], ROLLOUTS).rewards, torch.rand(1)))
    assert torch.equal(seen[0][0], seen[1][0]) and torch.equal(seen[0][1], seen[1][1])


def test_a_recipe_that_is_wrong_stops_at_once() -> None:
    def wrong(rollouts: Sequence[Rollout]) -> Tensor:
        raise UserError("reward judge: no reward before it is called x")

    reward = made(wrong)
    with pytest.raises(UserError, match="no reward before it is called x"):
        score(make_resources(), [reward], ROLLOUTS)
    assert reward.calls == [0]


def test_ctrl_c_is_no_failure_of_a_reward() -> None:
    def interrupted(rollouts: Sequence[Rollout]) -> Tensor:
        signal.raise_signal(signal.SIGINT)
        return good(rollouts)

    with pytest.raises(KeyboardInterrupt):
        score(make_resources(), [made(interrupted)], ROLLOUTS)


def test_a_reward_that_always_fails_stops_the_run_and_one_that_comes_back_does_not() -> None:
    always = Scoring([made(throws, retries=0)])
    always(make_resources(), ROLLOUTS)
    with pytest.raises(UserError, match=r"reward judge: no value .* 2 rounds in a row \(ConnectionError: the judge is"):
        always(make_resources(), ROLLOUTS)
    returns = Scoring([made(throws, good, throws, good, retries=0)])
    for _ in range(4):
        returns(make_resources(), ROLLOUTS)
    seldom = Scoring([made(one_nan, retries=0)])  # a quarter of the values is missing, half may be
    for _ in range(5):
        seldom(make_resources(), ROLLOUTS)


class Counting(TokenReward):
    """A token reward of n for the nth token. With `broken`, the second completion has NaN, or a value too few."""

    name = "counting"
    broken = ""

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        rows = [torch.arange(1.0, 4.0) for _ in rollouts]
        if self.broken == "short":
            rows[1] = rows[1][:2]
        if self.broken == "nan":
            rows[1][0] = torch.nan
        return rows


LONG = [replace(rollout, completion=(4, 5, 1)) for rollout in ROLLOUTS]


@pytest.mark.parametrize(("broken", "failures"), [("short", 4), ("nan", 1)])
def test_a_broken_reward_by_token_has_the_defined_value_at_the_last_token(
    broken: str, failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    reward = Counting(limits=Limits(value=-2.0))
    object.__setattr__(reward, "broken", broken)
    scored = score(make_resources(), [reward], LONG)
    assert scored.token_rewards is not None and scored.token_rewards[1].tolist() == [0.0, 0.0, -2.0]
    assert scored.rewards.tolist() == ([-2.0] * 4 if broken == "short" else [6.0, -2.0, 6.0, 6.0])
    assert scored.watched == {"rewards/counting/failures": failures}
    if broken == "short":
        assert "did not give one value for each token of each completion" in caplog.text


def test_a_runs_failures_are_added_up_by_reward() -> None:
    metrics = [{"rewards/a b/failures": 3.0, "reward/total": 1.0}, {}, {"rewards/a b/failures": 1.0}]
    assert failures_of(metrics) == {"a b": 4}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = save_start(tmp_path_factory.mktemp("start") / "policy")
    return folder


@pytest.mark.rotating(of=6)
def test_a_run_whose_reward_breaks_for_a_round_goes_on_and_one_that_is_killed_in_it_ends_the_same(
    start: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "rewardflow.rewards")

    def slots(first_round: int) -> Slots:
        """Make slots with a reward that fails in the third round of the run, for a process that starts after
        `first_round`.
        """
        script = [good] * 6
        script[2] = throws
        return replace(SLOTS, rewards=[*SLOTS.rewards, made(*script[first_round:], retries=0)])

    whole, diary = run(start, tmp_path / "whole", slots=slots(0))
    assert diary.metrics[3]["rewards/judge/failures"] == 16 and "rewards/judge/failures" not in diary.metrics[4]
    run(start, tmp_path / "killed", slots=slots(0), killed_in=3)
    resumed, told_after = run(start, tmp_path / "killed", slots=slots(2))
    assert told_after.resumed == [2] and same_weights(whole, resumed)
    assert sorted(diary.metrics) == list(range(1, SCHEDULE.rounds + 1))
