"""Learners in processes that Ray places: they end at the weights of one process, also after a kill; none is left."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from models.base.errors import UserError
from models.base.placement import PlacementSettings
from models.base.ranks import ALONE, Ranks
from models.engines.engine import EngineSettings
from models.engines.hosted import Order
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings
from models.method.alarm import Collapse
from models.method.learner import Learner
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.parts.rewards.shaping.length_penalty import LengthPenalty
from models.policies.build import PolicySettings
from models.training.fits import SupervisedFit, fit_demonstrations
from models.training.train import OpenEngine, Training, TrainingFolders, train
from models.training.watchers import Watchers
from tests.support.tiny_loops import END, PROBLEMS, SCHEDULE, SLOTS, Diary, save_start
from tests.support.tiny_models import leave_room_for

pytest.importorskip("ray", reason="the extra cluster is not installed")
from tasks.compute.cluster import Cluster, connected
from tasks.compute.learner_group import Joint, learn_together

pytestmark = pytest.mark.thorough
TWO = PlacementSettings(learners=2).next_to_learners
SCHEDULE_HERE = replace(SCHEDULE, optimiser=replace(SCHEDULE.optimiser, learning_rate=1e-4))


@pytest.fixture(scope="module")
def ray() -> Iterator[Cluster]:
    with connected(None) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("start") / "policy")


def training_in(folder: Path, start: Path, **changed: Any) -> Training:
    return Training(
        **{
            "seed": 7,
            "policy": PolicySettings(precision="float32"),
            "slots": replace(SLOTS, rewards=[LengthPenalty()]),
            "schedule": SCHEDULE_HERE,
            "start": start,
            "problems": PROBLEMS,
            "folders": TrainingFolders.below(folder),
            **changed,
        }
    )


def order_for(start: Path) -> Order:
    return Order(start, EngineSettings(name="transformers"), 32, END, torch.float32, False)


def gap(first: Path, other: Path) -> float:
    left, right = (load_file(folder / "model.safetensors") for folder in (first, other))
    return max(float((left[name] - right[name]).abs().max()) for name in left)


def group_of(
    ray: Cluster, folder: Path, start: Path, in_round: Callable[[int], None] = lambda number: None, **changed: Any
) -> tuple[Training, Diary]:
    """Train with two learners. `in_round` is called after the metrics of each round."""
    diary, training = Diary({}, {}, []), training_in(folder, start, **changed)
    watchers = diary.watchers()

    def metrics(number: int, values: dict[str, float]) -> None:
        watchers.metrics(number, values)
        in_round(number)

    learn_together(ray, TWO, Joint(train, training, order_for(start)), replace(watchers, metrics=metrics))
    return training, diary


def learners() -> list[psutil.Process]:
    """Return the learner processes below this one, the oldest first."""
    those = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "HostedLearner" in " ".join(process.cmdline()):
                those.append(process)
    return sorted(those, key=lambda process: process.create_time())


def none_left() -> bool:
    """Wait up to 10 seconds for the learners to end, and return whether they did."""
    until = time.monotonic() + 10
    while learners() and time.monotonic() < until:
        time.sleep(0.1)
    return not learners()


@pytest.fixture(scope="module")
def undisturbed(ray: Cluster, start: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    training, diary = group_of(ray, tmp_path_factory.mktemp("undisturbed"), start)
    assert diary.resumed == [0] and sorted(diary.metrics) == list(range(1, 7))
    assert none_left()
    return training


def test_two_placed_learners_end_where_one_process_ends(undisturbed: Training, start: Path, tmp_path: Path) -> None:
    from contextlib import contextmanager

    from models.engines.open_engine import open_engine

    @contextmanager
    def engine(autocast: torch.dtype | None) -> Iterator[Any]:
        opened = open_engine(start, EngineSettings(name="transformers"), longest=32, end=END, seed=0)
        yield opened
        opened.close()

    alone = training_in(tmp_path, start)
    train(alone, ALONE, engine, Watchers())
    assert gap(alone.folders.result, undisturbed.folders.result) <= 1e-6
    assert gap(start, undisturbed.folders.result) > 1e-4


def test_learners_on_this_machine_listen_on_loopback_alone(ray: Cluster, start: Path, tmp_path: Path) -> None:
    heard: list[set[str]] = []

    def look(number: int) -> None:
        heard.extend(
            {
                connection.laddr.ip.removeprefix("::ffff:")
                for connection in learner.net_connections()
                if connection.status == psutil.CONN_LISTEN
            }
            for learner in learners()
        )

    group_of(ray, tmp_path, start, look)
    assert heard and all(addresses == {"127.0.0.1"} for addresses in heard)


@pytest.mark.parametrize("number", [0, 1])
def test_a_learner_that_is_killed_in_mid_round_is_replaced_and_the_weights_are_the_same(
    ray: Cluster, undisturbed: Training, start: Path, tmp_path: Path, number: int
) -> None:
    killed = []

    def kill(done: int) -> None:
        if done == 3 and not killed:
            killed.append(learners()[number].pid)
            os.kill(killed[0], signal.SIGKILL)

    with pytest.warns(UserWarning, match="learners: .*they are started again"):
        training, diary = group_of(ray, tmp_path, start, kill)
    assert killed and diary.resumed == [0, 2] and sorted(diary.metrics) == list(range(1, 7))
    assert gap(training.folders.result, undisturbed.folders.result) == 0.0 and none_left()


def test_what_is_wrong_is_said_in_one_line_and_no_learner_is_left(ray: Cluster, start: Path, tmp_path: Path) -> None:
    small = replace(SCHEDULE_HERE, token_budget=8)
    with pytest.raises(UserError, match=r"^schedule\.token_budget is 8, smaller than its longest row"):
        group_of(ray, tmp_path, start, schedule=small)
    assert none_left()


class Fussy(Reward):
    """A reward that raises an error on the second rank."""

    name = "fussy"
    reads_learner = True

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        if resources.learner.ranks.number == 1:
            raise ArithmeticError("what the second learner cannot do")
        return torch.zeros(len(rollouts))


def test_an_error_of_one_learner_ends_the_training_within_seconds_and_no_learner_is_left(
    ray: Cluster, start: Path, tmp_path: Path
) -> None:
    from ray.cloudpickle import register_pickle_by_value

    register_pickle_by_value(sys.modules[__name__])
    slots = replace(SLOTS, rewards=[Fussy()])
    with pytest.raises(ArithmeticError, match="what the second learner cannot do"):
        group_of(ray, tmp_path, start, slots=slots)
    assert none_left()


def test_whatever_ends_the_watching_ends_the_learners(ray: Cluster, start: Path, tmp_path: Path) -> None:
    def interrupt(number: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        group_of(ray, tmp_path, start, interrupt)
    assert none_left()


def cramped(training: Training, ranks: Ranks, open_engine: OpenEngine, watchers: Watchers) -> Collapse | None:
    """Run `train`. The second rank has memory only for rows of 12 tokens."""
    import models.training.train

    build = models.training.train.build_learner

    def built(*given: Any) -> Learner:
        learner = build(*given)
        if ranks.number == 1:
            leave_room_for(learner.policy, 12)
        return learner

    models.training.train.build_learner = built
    return train(training, ranks, open_engine, watchers)


def test_learners_of_which_one_runs_out_of_memory_go_on_with_less_and_end_at_the_same_weights(
    ray: Cluster, undisturbed: Training, start: Path, tmp_path: Path
) -> None:
    from ray.cloudpickle import register_pickle_by_value

    register_pickle_by_value(sys.modules[__name__])
    register_pickle_by_value(sys.modules["tests.support.tiny_models"])
    diary = Diary({}, {}, [])
    training = training_in(tmp_path, start, schedule=replace(SCHEDULE_HERE, token_budget=64))
    with pytest.warns(UserWarning, match="out of memory with rows of .* are started again"):
        learn_together(ray, TWO, Joint(cramped, training, order_for(start)), diary.watchers())
    assert len(diary.resumed) > 1 and sorted(diary.metrics) == list(range(1, 7))
    assert gap(training.folders.result, undisturbed.folders.result) <= 1e-6 and none_left()


def test_a_fit_of_which_a_learner_is_killed_begins_again_and_ends_as_if_nothing_had_been(
    ray: Cluster, start: Path, tmp_path: Path
) -> None:
    killed = []

    def fitted(folder: Path, at: int | None) -> tuple[Path, Diary]:
        diary = Diary({}, {}, [])
        watchers = diary.watchers()

        def metrics(number: int, values: dict[str, float]) -> None:
            watchers.metrics(number, values)
            if number == at and not killed:
                killed.append(learners()[1].pid)
                os.kill(killed[0], signal.SIGKILL)

        rows = Sequences([[3, 4], [5], [6, 7, 8], [4, 9]], [[5, 6, 2], [7, 2], [3, 2], [8, 8, 2]])
        fit = SupervisedFit(
            seed=3,
            precision="float32",
            trust_remote_code=False,
            start=start,
            precisions=folder,
            result=folder / "fitted",
            settings=SupervisedSettings(steps=400, batch=2, report_every=2),
            adapter=None,
            train=rows,
            judged=rows,
        )
        joint = Joint(fit_demonstrations, fit)
        assert learn_together(ray, TWO, joint, replace(watchers, metrics=metrics)).measured["final_loss"] > 0
        return fit.result, diary

    whole, _ = fitted(tmp_path / "whole", None)
    with pytest.warns(UserWarning, match="learners: .*they are started again"):
        again, diary = fitted(tmp_path / "again", 10)
    assert killed and diary.resumed == [0, 0] and sorted(diary.metrics) == list(range(2, 401, 2))
    assert gap(whole, again) == 0.0 and none_left()
