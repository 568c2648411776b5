"""Cost of a run: seconds and tokens are counted once, and those of a reused result are not counted again."""

import subprocess
import sys

import psutil
import pytest

from models.base.placement import PlacementSettings
from tasks.compute import gpu_place, shared_engine
from tasks.pages.cost import HOUR, Cost, CostMeter, cost_text, of_rounds, of_steps, sum_of_costs
from tasks.pages.description import RunDescription, describe_run
from tasks.runner.step import StepResult
from tasks.tracking.journal import JournalRow

BUSY = "import time\nwhile time.process_time() < 1.0: pass\n"


def result(cost: Cost, *, reused: bool) -> StepResult:
    return StepResult(
        step="s",
        key="k",
        digest="d",
        headline="",
        metrics={},
        run_id="",
        seconds=1.0,
        folder="",
        cost=cost,
        reused=reused,
    )


@pytest.mark.rotating(of=6)
def test_processor_time_of_this_process_and_of_what_it_started_is_counted_once_ended_or_not() -> None:
    meter = CostMeter()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    living = subprocess.Popen([sys.executable, "-c", BUSY + "print(1, flush=True)\ninput()"], stdin=-1, stdout=-1)
    try:
        assert living.stdout is not None and living.stdout.readline()
        before = sum(psutil.Process().cpu_times()[:2])
        counted = meter.cost(0.0).processor_hours * HOUR
        assert 1.9 <= counted <= 2.1 + before  # the kernel counts in whole ticks
        assert meter.cost(0.0).gpu_hours == 0.0
    finally:
        living.kill()
        living.wait()
    assert meter.cost(0.0).processor_hours * HOUR >= counted - 0.1  # the time of a child that has ended, in whole ticks


def test_gpu_hours_are_those_for_which_the_place_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1800.0, 3600.0])
    monkeypatch.setattr("tasks.pages.cost.time.perf_counter", lambda: next(clock))
    meter = CostMeter()
    with gpu_place._noted():
        assert meter.cost(4.0).gpu_hours == 2.0
    assert meter.cost(4.0).gpu_hours == 0.0


@pytest.mark.parametrize(
    ("cuda", "placement", "expected"),
    [
        (False, PlacementSettings(), 0.0),
        (True, PlacementSettings(), 1.0),
        (True, PlacementSettings(engines=2, engine_gpus=2), 5.0),
        (True, PlacementSettings(learners=3), 4.0),
        (True, PlacementSettings(engines=2, engine_gpus=0.5), 2.0),
        (False, PlacementSettings(engines=2), 0.0),
    ],
)
def test_the_gpus_of_a_flow_are_those_of_its_placement(
    cuda: bool, placement: PlacementSettings, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: cuda)
    with shared_engine.shared_engine(placement):
        assert shared_engine.gpus() == expected


def test_a_cluster_has_gpus_that_this_machine_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with shared_engine.shared_engine(PlacementSettings(engines=3), "10.0.0.1:6379"):
        assert shared_engine.gpus() == 3.0


def test_tokens_of_rounds_are_speed_times_seconds_of_all_rounds() -> None:
    rows = [
        JournalRow(
            1, 0, {"speed/generate": 100 / 3, "seconds/generate": 3.0, "speed/learn": 50.0, "seconds/learn": 2.0}
        ),
        JournalRow(2, 0, {"speed/generate": 70 / 0.7, "seconds/generate": 0.7, "seconds/learn": 2.0}),
    ]
    assert of_rounds(rows) == Cost(tokens_sampled=170, tokens_trained_on=100)


def test_a_run_pays_for_what_it_made_and_not_for_what_it_took_over() -> None:
    made, taken = Cost(1.5, 0.5, 1000, 200), Cost(3.0, 1.0, 50, 0)
    steps = [result(made, reused=False), result(taken, reused=True), result(made, reused=False)]
    assert of_steps(steps) == (Cost(3.0, 1.0, 2000, 400), taken)
    assert sum_of_costs([]) == Cost()
    page = describe_run(RunDescription(outcome="trained", reason="x", steps=steps))
    assert "This run took 3.00 processor hours, 1.00 GPU hours, 2,000 tokens sampled, 400 trained on." in page
    assert "had taken 3.00 processor hours, 1.00 GPU hours, 50 tokens sampled." in page
    assert cost_text(Cost()) == "0.00 processor hours"


def test_the_cost_of_a_result_is_kept_beside_it() -> None:
    kept = result(Cost(0.1, 0.0, 5, 6), reused=False).model_dump(mode="json")
    assert StepResult(**kept).cost == Cost(0.1, 0.0, 5, 6)
    kept.pop("cost")  # an older result has no cost
    assert StepResult(**kept).cost == Cost()
