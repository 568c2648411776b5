"""The alarm: the signs of a collapsed policy, the round in which a run stops, and the policy that it keeps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.method.alarm import AlarmSettings, Collapse, History, judge, read, written
from models.method.learner import Learner
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.slots import Slots
from models.parts.advantage.group_relative import GroupRelative
from models.parts.advantage.reward import FixedBaseline
from models.parts.objective.grpo import Grpo
from models.parts.objective.tapered import Tapered
from models.parts.reference.frozen import Frozen
from models.parts.rollouts.sample import Sample
from models.parts.select.everything import Everything
from models.policies.checkpoint import newest_checkpoint
from models.recipes.load import load_recipe
from models.training.loop import run_loop
from tests.support.tiny_loops import (
    END,
    PROBLEMS,
    SCHEDULE,
    Brief,
    Diary,
    Sevens,
    new_learner,
    same_weights,
    save_start,
)
from tests.support.tiny_resources import make_resources

pytestmark = pytest.mark.rotating(of=6)

SETTINGS = AlarmSettings(patience=3, opening=2)


def metrics_of(reward: float = 0.5, cut: float = 0.0, entropy: float = 0.3, spread: float = 0.4) -> dict[str, float]:
    return {
        "reward/total": reward, "reward/spread": spread, "rollouts/cut_share": cut, "policy/entropy": entropy,
    }  # fmt: skip


def after(rounds: Sequence[Mapping[str, float]], settings: AlarmSettings = SETTINGS) -> History:
    history = History()
    for entry in rounds:
        history = history.after(entry, settings)
    return history


START = [metrics_of(0.4), metrics_of(0.6)]  # mean 0.5 and spread 0.4: the limit is 0.5 - 0.25 * 0.4 = 0.4


@pytest.mark.parametrize(
    ("last", "sign"),
    [
        ([metrics_of(0.39)] * 3, "reward/total 0.39 where it began at 0.5"),
        ([metrics_of(cut=0.6)] * 3, "60% of the completions cut at their limit where it began at 0%"),
        ([metrics_of(entropy=1.6)] * 3, "entropy 1.6 nats a token where it began at 0.3"),
        ([metrics_of(0.5, entropy=0.0005)] * 3, "entropy 0.0005 nats a token and a reward no higher than at the start"),
    ],
)
def test_each_sign_of_a_collapse_is_seen_after_the_patience(last: list[dict[str, float]], sign: str) -> None:
    assert after(START + last[:2]).collapse is None
    assert after(START + last).collapse == Collapse(5, (sign,))


@pytest.mark.parametrize(
    "last",
    [
        [metrics_of(0.41)] * 5,  # above the limit of 0.4
        [metrics_of(0.3), metrics_of(0.3), metrics_of(0.5), metrics_of(0.3), metrics_of(0.3)],  # a good round between
        [metrics_of(cut=0.4)] * 5,
        [metrics_of(entropy=1.4)] * 5,  # less than five times the entropy at the start
        [metrics_of(0.9, entropy=0.0)] * 5,  # no entropy, but a reward above the start
        [{}] * 5,  # no metrics
    ],
)
def test_a_policy_that_stands_raises_no_alarm(last: list[dict[str, float]]) -> None:
    assert after(START + last).collapse is None


def test_a_run_that_begins_cut_or_in_disorder_is_not_blamed_for_it() -> None:
    assert after([metrics_of(cut=0.9, entropy=3.0)] * 10).collapse is None


def test_the_line_lies_below_what_chance_does_to_a_small_round() -> None:
    """The policy stays 18 % right. Of 300 runs of 30 rounds with 64 completions, the alarm stops 1 % at most."""
    generator = torch.Generator().manual_seed(0)
    right = torch.bernoulli(torch.full((300, 30, 64), 0.18), generator=generator).mean(-1)
    stopped = sum(
        after([metrics_of(reward, spread=0.38) for reward in run], AlarmSettings()).collapse is not None
        for run in right.tolist()
    )
    assert stopped <= 3


def test_the_best_policy_is_the_one_with_the_best_last_rounds() -> None:
    rounds = [metrics_of(0.5)] * 2 + [metrics_of(0.6)] * 3
    history = after(rounds)
    assert history.improved(SETTINGS) and not after([metrics_of(0.5)] * 5).improved(SETTINGS)
    kept = history.keeping(SETTINGS)
    assert kept.best_round == 5 and kept.best == pytest.approx(0.6)
    assert not kept.after(metrics_of(0.6), SETTINGS).improved(SETTINGS) and kept.after(
        metrics_of(0.9), SETTINGS
    ).improved(SETTINGS)


def test_a_policy_that_falls_is_not_kept_for_what_it_was() -> None:
    """The last rounds have a mean of 0.431, but the last one has 0.262, which is below the 0.307 of the start."""
    settings = replace(SETTINGS, patience=5, opening=3)
    fallen = after([metrics_of(r) for r in (0.283, 0.287, 0.35, 0.584, 0.527, 0.471, 0.313, 0.262)], settings)
    assert not fallen.improved(settings) and fallen.worth(settings) == 0.262
    rising = after([metrics_of(r) for r in (0.283, 0.287, 0.35, 0.391, 0.475, 0.5, 0.55, 0.6)], settings)
    assert rising.improved(settings) and rising.worth(settings) == pytest.approx(0.5032)
    untold = {"reward/spread": 0.4}
    assert after([untold] * 8, settings).worth(settings) == -math.inf


def test_what_the_alarm_remembers_comes_back_to_the_last_bit() -> None:
    history = after([metrics_of(1 / 3), metrics_of(math.pi), *[metrics_of(0.0)] * 4]).keeping(SETTINGS)
    assert history.collapse is not None and read(written(history)) == history
    assert read(b"{}") == History()  # a checkpoint of a run without an alarm


def test_another_reward_than_the_total_can_be_watched() -> None:
    settings = replace(SETTINGS, by="right")
    rounds = [{**metrics_of(9.0), "reward/right": value} for value in (0.5, 0.5, 0.1, 0.1, 0.1)]
    collapse = after(rounds, settings).collapse
    assert collapse is not None and collapse.signs == ("reward/right 0.1 where it began at 0.5",)


APART = replace(SETTINGS, proxy="score", truth="right", margin=0.1, drop=9.0)


def both(*values: tuple[float, float]) -> list[dict[str, float]]:
    """Return the metrics of rounds with the given pairs of proxy reward and true reward."""
    return [metrics_of() | {"reward/score": proxy, "reward/right": truth} for proxy, truth in values]


def test_a_proxy_that_rises_while_the_truth_falls_from_its_best_is_a_sign() -> None:
    better = both((0.0, 0.3), (0.1, 0.3), *[(1.0, 0.6)] * 3)
    history = after([*better, *both((2.0, 0.45), (2.0, 0.45))], APART)
    assert history.collapse is None  # the patience is three
    collapse = history.after(both((2.0, 0.45))[0], APART).collapse
    assert collapse is not None and collapse.signs == (
        "reward/score rose from 1 to 2 while reward/right fell from 0.6 to 0.45",
    )
    assert after([*better, *both(*[(2.0, 0.45)] * 5)]).collapse is None  # not checked without `proxy` and `truth`


@pytest.mark.parametrize(
    "last",
    [
        [(2.0, 0.51)] * 5,  # within the margin
        [(0.9, 0.2)] * 5,  # both fall, so the proxy shows the loss too
        [(2.0, 0.9)] * 5,  # both rise
        [(2.0, 0.4), (2.0, 0.4), (2.0, 0.6), (2.0, 0.4), (2.0, 0.4)],  # a good round between
    ],
)
def test_proxy_and_truth_that_go_together_raise_no_alarm(last: list[tuple[float, float]]) -> None:
    better = both((0.0, 0.3), (0.1, 0.3), *[(1.0, 0.6)] * 3)
    assert after([*better, *both(*last)], APART).collapse is None


def test_a_truth_that_falls_from_the_first_round_on_is_held_against_the_first_rounds() -> None:
    """The first rounds have a mean of 0.6, so the limit is 0.5. The third round below the limit is round 5."""
    rounds = both((0.0, 0.65), (0.2, 0.55), (0.3, 0.49), (0.4, 0.45), (0.5, 0.4))
    assert after(rounds[:4], APART).collapse is None
    collapse = after(rounds, APART).collapse
    assert collapse is not None and collapse.round_number == 5
    assert collapse.signs == ("reward/score rose from 0.1 to 0.4 while reward/right fell from 0.6 to 0.447",)
    unread = [{name: value for name, value in each.items() if name != "reward/score"} for each in rounds]
    assert after(unread, APART).collapse is None and after(unread, APART).peak == {}


def test_the_best_policy_is_the_best_by_the_truth_where_it_is_watched() -> None:
    gamed = after(both(*[(0.0, 0.5)] * 2, *[(9.0, 0.4)] * 3), APART)
    assert not gamed.improved(APART) and gamed.worth(APART) == pytest.approx(0.4)
    assert after(both(*[(0.0, 0.5)] * 2, *[(-1.0, 0.6)] * 3), APART).improved(APART)
    kept = after(both(*[(0.0, 0.5)] * 2, *[(1.0, 0.6)] * 3), APART)
    assert read(written(kept)) == kept and kept.peak == pytest.approx({"reward/score": 1.0, "reward/right": 0.6})


def test_judging_says_nothing_before_there_are_rounds_enough() -> None:
    assert judge(History(), SETTINGS) is None


def test_every_recipe_has_an_alarm_and_null_takes_it_away() -> None:
    assert load_recipe("grpo").alarm == AlarmSettings()
    assert load_recipe("grpo", ["alarm=null"]).alarm is None
    alarm = load_recipe("grpo", ["alarm.patience=9"]).alarm
    assert alarm is not None and alarm.patience == 9


# The baseline is above every reward, so all advantages are negative and the policy collapses.
DESTROYER = Slots(
    Sample(prompts=4, group_size=4, max_tokens=5), [Sevens(), Brief()], [Everything()], FixedBaseline(baseline=3.0),
    Tapered(), Frozen(),
)  # fmt: skip
LONG = replace(SCHEDULE, rounds=24, optimiser=replace(SCHEDULE.optimiser, learning_rate=0.01, decay="none"))


def run(
    start: Path, checkpoints: Path, alarm: AlarmSettings | None, killed_in: int | None = None, rounds: int = LONG.rounds
) -> tuple[Learner, Diary, Collapse | None]:
    learner, diary = new_learner(LONG), Diary({}, {}, [])
    schedule = replace(LONG, rounds=rounds)
    resources = make_resources(TransformersEngine(start, EngineSettings(precision="float32"), end=END), learner=learner)
    try:
        ended = run_loop(resources, DESTROYER, schedule, PROBLEMS, checkpoints, diary.watchers(killed_in), alarm)
    except KeyboardInterrupt:
        ended = None
    return learner, diary, ended


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("alarm") / "start")


@pytest.fixture(scope="module")
def stopped(start: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Learner, Diary, Collapse]:
    learner, diary, ended = run(start, tmp_path_factory.mktemp("stopped"), SETTINGS)
    assert ended is not None
    return learner, diary, ended


def test_a_policy_that_collapses_ends_the_run_with_the_best_policy_it_had(
    stopped: tuple[Learner, Diary, Collapse], start: Path, tmp_path: Path
) -> None:
    learner, diary, ended = stopped
    assert ended is not None and ended.round_number < LONG.rounds and max(diary.metrics) == ended.round_number
    assert ended.kept is not None
    assert ended.kept % LONG.checkpoint_every == 0 and ended.kept < ended.round_number
    assert same_weights(learner, run(start, tmp_path, None, rounds=ended.kept)[0])
    assert diary.metrics[ended.round_number]["policy/collapsed"] == 1.0
    assert f"kept the policy after round {ended.kept}" in str(ended)


def test_a_run_that_is_killed_is_stopped_in_the_same_round_with_the_same_policy(
    stopped: tuple[Learner, Diary, Collapse], start: Path, tmp_path: Path
) -> None:
    learner, _, ended = stopped
    assert run(start, tmp_path, SETTINGS, killed_in=ended.round_number - 1)[2] is None
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    resumed = newest.round_number
    assert 0 < resumed < ended.round_number
    again, diary, stopped_again = run(start, tmp_path, SETTINGS)
    assert diary.resumed == [resumed] and stopped_again == ended and same_weights(again, learner)


def test_an_alarm_that_only_warns_lets_the_run_go_on(start: Path, tmp_path: Path) -> None:
    learner, diary, ended = run(start, tmp_path, replace(SETTINGS, action="warn"))
    assert max(diary.metrics) == LONG.rounds and ended is not None and ended.kept is None
    assert not same_weights(learner, new_learner(LONG))
    without = run(start, tmp_path / "without", None)
    assert without[2] is None and same_weights(without[0], learner)  # the alarm does not change the training


class Wordy(Brief):
    """Reward of the share of the allowed length that a completion uses."""

    name = "wordy"
    weight: float = 0.0

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        return 1.0 - super().__call__(resources, rollouts)


def test_a_proxy_that_is_gamed_ends_the_run_with_the_best_policy_by_the_truth(start: Path, tmp_path: Path) -> None:
    gamed = replace(DESTROYER, rewards=[Brief(weight=1.0), Wordy()], advantage=GroupRelative(), objective=Grpo(kl=0.0))
    learner, diary = new_learner(LONG), Diary({}, {}, [])
    resources = make_resources(TransformersEngine(start, EngineSettings(precision="float32"), end=END), learner=learner)
    settings = AlarmSettings(patience=2, opening=2, proxy="brief", truth="wordy", margin=0.05)
    ended = run_loop(resources, gamed, LONG, PROBLEMS, tmp_path, diary.watchers(None), settings)
    assert ended is not None and "reward/brief rose" in ended.signs[0] and "reward/wordy fell" in ended.signs[0]
    assert ended.kept is not None and ended.kept < ended.round_number
    truth = {number: metrics["reward/wordy"] for number, metrics in diary.metrics.items()}
    last = [truth[number] for number in (ended.round_number - 1, ended.round_number)]
    assert max(last) < max(truth.values()) - settings.margin


BAD = [metrics_of(0.0, cut=0.81, spread=0.0), metrics_of(0.02, cut=0.79, spread=0.1)]
"""Metrics of the first two rounds of a bad start: the reward is near zero, and most completions are cut."""


@pytest.mark.parametrize("fallen", [0.0, 0.05, 0.1])
def test_a_policy_that_loses_what_it_learned_from_a_start_near_zero_has_collapsed(fallen: float) -> None:
    risen = [metrics_of(0.2), metrics_of(0.5), metrics_of(0.5), metrics_of(0.5)]
    history = after([*BAD, *risen, *[metrics_of(fallen, spread=0.2)] * 3])
    assert history.collapse is not None and history.collapse.round_number == 9
    (sign,) = history.collapse.signs
    assert sign.startswith(f"reward/total {fallen:.3g} where it had risen from 0.01 to 0.5")


@pytest.mark.parametrize(
    ("start", "later"),
    [
        (BAD, [metrics_of(0.5)] * 3 + [metrics_of(0.3)] * 5),  # most of the gain is kept
        (BAD, [metrics_of(0.5)] * 3 + [metrics_of(0.05)] * 2 + [metrics_of(0.2)]),  # too few rounds in a row
        (BAD, [metrics_of(0.0, spread=0.0)] * 9),  # nothing was ever learned, so nothing is lost
        (BAD, [metrics_of(0.06, spread=0.24)] * 3 + [metrics_of(0.0, spread=0.0)] * 5),  # a gain within the noise
        (START, [metrics_of(0.9)] * 3 + [metrics_of(0.5)] * 5),  # after a good start, only a fall below it is a sign
    ],
)
def test_what_is_no_loss_of_a_gain_is_no_collapse(start: list[dict[str, float]], later: list[dict[str, float]]) -> None:
    assert after([*start, *later]).collapse is None


def test_completions_that_are_cut_again_after_few_were_are_a_sign_though_most_were_cut_at_the_start() -> None:
    better = [metrics_of(0.5, cut=0.1)] * 3
    history = after([*BAD, *better, *[metrics_of(0.5, cut=0.9)] * 3])
    assert history.collapse is not None
    assert history.collapse.signs == ("90% of the completions cut at their limit where 10% were",)
    assert after([*BAD, *[metrics_of(0.5, cut=0.9)] * 6]).collapse is None
    assert after([*BAD, *better, *[metrics_of(0.5, cut=0.45)] * 3]).collapse is None


def test_what_a_bad_start_is_judged_by_goes_through_a_checkpoint() -> None:
    rounds = [*BAD, *[metrics_of(0.5, cut=0.1)] * 3, *[metrics_of(0.0, cut=0.9)] * 3]
    whole = after(rounds)
    for stop in range(len(rounds)):
        resumed = read(written(after(rounds[:stop])))
        for entry in rounds[stop:]:
            resumed = resumed.after(entry, SETTINGS)
        assert resumed == whole
    assert whole.collapse is not None and len(whole.collapse.signs) == 2
