"""Time and speed of a round: every second belongs to one stretch, and speeds are reported only for work done."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from models.training import clock
from models.training.clock import STAGES, Clock
from models.training.flops import Group, forward_flops, shapes_of, update_flops
from models.training.meter import Meter, round_flops
from models.training.peak import matmul_peak, peak_memory
from tests.support.tiny_loops import SCHEDULE, new_learner, run, save_start
from tests.support.tiny_models import SEQUENCES, scored

CPU = torch.device("cpu")


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Replace the clock by one that is moved by hand: `moved(3)` lets three seconds pass."""
    now = [100.0]
    monkeypatch.setattr("models.training.clock.time.perf_counter", lambda: now[0])

    def move(seconds: int) -> None:
        now[0] += seconds

    return move


def test_every_second_of_a_round_belongs_to_one_stretch(moved: Callable[[int], None]) -> None:
    clock = Clock(CPU)
    for seconds, stage in enumerate(STAGES, start=1):
        moved(seconds)
        clock.lap(stage)
    metrics = clock.end_round({"generate": 10, "learn": 60, "round": 42}, flops=6e9, peak=4e9)
    assert [metrics[f"seconds/{stage}"] for stage in STAGES] == [1, 2, 3, 4, 5, 6] and metrics["seconds/round"] == 21
    assert (metrics["speed/generate"], metrics["speed/learn"], metrics["speed/round"]) == (10, 20, 2)
    assert metrics["speed/learn_gflops"] == 2 and metrics["speed/peak_share"] == 0.5
    assert "speed/score" not in metrics and "seconds/hidden" not in metrics


def test_what_passes_between_the_last_stretch_and_the_end_is_counting(moved: Callable[[int], None]) -> None:
    clock = Clock(CPU)
    moved(2)
    clock.lap("learn")
    moved(3)
    metrics = clock.end_round({}, 0, 1)
    assert (metrics["seconds/learn"], metrics["seconds/log"], metrics["seconds/round"]) == (2, 3, 5)
    assert clock.end_round({}, 0, 1)["seconds/round"] == 0


def test_the_telling_of_a_round_counts_in_the_next_one(moved: Callable[[int], None]) -> None:
    clock = Clock(CPU)
    clock.end_round({}, 0, 1)
    moved(2)
    clock.lap("log")
    moved(3)
    clock.lap("generate")
    metrics = clock.end_round({}, 0, 1)
    assert (metrics["seconds/log"], metrics["seconds/generate"], metrics["seconds/round"]) == (2, 3, 5)


def test_generation_behind_the_learner_counts_whole_and_what_cost_no_time_is_taken_off(
    moved: Callable[[int], None],
) -> None:
    clock = Clock(CPU)
    moved(10)
    clock.lap("learn")
    moved(2)
    clock.waited(7)
    metrics = clock.end_round({"generate": 14}, 0, 1)
    assert (metrics["seconds/generate"], metrics["seconds/hidden"], metrics["seconds/round"]) == (7, 5, 12)
    assert metrics["speed/generate"] == 2


def test_a_round_that_trained_on_nothing_claims_no_speed_of_learning() -> None:
    meter = Meter(new_learner(SCHEDULE), SCHEDULE)
    whole = scored([0.0] * 5, [1] * 5, sequences=SEQUENCES)
    metrics = meter.end_round(whole, whole.take(torch.tensor([], dtype=torch.long)))
    assert "speed/learn" not in metrics and "speed/peak_share" not in metrics and metrics["speed/round"] > 0


def test_the_forward_passes_of_reference_and_old_policy_are_part_of_a_rounds_work() -> None:
    learner, groups = new_learner(SCHEDULE), [Group(3, (2, 1))]
    shapes = shapes_of(learner.policy)
    update, forward = update_flops(shapes, groups), forward_flops(shapes, groups)
    assert round_flops(learner, SCHEDULE, shapes, groups) == 2 * update + 2 * forward  # two epochs
    assert round_flops(learner, SCHEDULE, shapes, groups, reference_known=True) == 2 * update + forward
    learner.reference = None
    assert round_flops(learner, SCHEDULE, shapes, groups) == 2 * update + forward


def test_every_round_of_a_run_says_where_its_time_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = SimpleNamespace(perf_counter=time.thread_time)
    monkeypatch.setattr(clock, "time", own)  # time of this thread, so that other work on the machine does not count
    _, diary = run(save_start(tmp_path / "policy"), tmp_path / "checkpoints")
    for values in diary.metrics.values():
        stretches = sum(values[f"seconds/{stage}"] for stage in STAGES)
        assert values["seconds/round"] == pytest.approx(stretches, abs=5e-3)
        assert {f"speed/{name}" for name in ("generate", "score", "learn", "hand_over", "log", "round")} <= set(values)
        assert values["speed/learn_gflops"] > 0 and values["memory/peak_gib"] > 0.1
    assert all((diary.metrics[n]["seconds/checkpoint"] > 1e-4) == (n in (3, 5)) for n in diary.metrics)


def test_the_peak_is_measured_once_and_leaves_the_generator_alone() -> None:
    before = torch.get_rng_state()
    peak = matmul_peak(CPU, torch.float32, seconds=0.05)
    assert torch.equal(before, torch.get_rng_state())
    assert 1e8 < peak < 1e14 and matmul_peak(CPU, torch.float32, seconds=0.05) == peak  # measured once


@pytest.mark.rotating(of=6)
def test_memory_is_counted_in_gib() -> None:
    block = torch.ones(2**27)  # half a GiB
    assert 0.5 < peak_memory(CPU) < 256 and block.sum() > 0
