"""Training by several processes: the result equals that of one process, and a killed training resumes.

The processes run on this machine and communicate through gloo; the engine and the checkpoints are real, too.
"""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from models.base.ranks import ALONE, Ranks
from models.engines.engine import EngineSettings
from models.engines.first_rank import FirstRankEngine
from models.engines.transformers_engine import TransformersEngine
from models.learner.sharding import shard
from models.method.schedule import ScheduleSettings
from models.method.slots import Slots
from models.parts.reference.moving_average import MovingAverage
from models.parts.rollouts.masked import Masked
from models.policies.build import PolicySettings
from models.policies.use import MASK, read_use
from models.policies.weights import merged_weights
from models.training.loop import run_loop
from models.training.train import Training, TrainingFolders
from models.training.train import train as train_to_its_end
from models.training.watchers import Watchers
from tests.support.device_here import OF_A_PROCESSOR
from tests.support.rank_group import on_ranks
from tests.support.tiny_loops import END, PROBLEMS, SCHEDULE, SLOTS, Diary, new_learner, save_start
from tests.support.tiny_resources import make_resources

pytestmark = [OF_A_PROCESSOR, pytest.mark.rotating(of=8)]

Weights = dict[str, Tensor]
SMALL_STEPS = replace(SCHEDULE, optimiser=replace(SCHEDULE.optimiser, learning_rate=1e-4))
"""A small step size, as in many recipes: AdamW can turn a rounding error of a small gradient into part of a step."""


class Killed(Exception):
    """An exception that ends a training."""


def train(
    ranks: Ranks,
    start: Path,
    checkpoints: Path,
    killed_in: int | None = None,
    lora: bool = False,
    schedule: ScheduleSettings = SMALL_STEPS,
    slots: Slots = SLOTS,
) -> tuple[Weights, Diary]:
    """Run the loop once. Return the weights of the policy, whole, and the diary of this rank."""
    torch.manual_seed(12345 + ranks.number)  # the state of the global generator must not matter
    learner, diary = new_learner(schedule, lora), Diary({}, {}, [])
    shard(learner.policy, ranks, learner.optimiser)
    if learner.reference is not None:
        shard(learner.reference, ranks)
    engine: Any = TransformersEngine(start, EngineSettings(precision="float32"), end=END) if ranks.first else None
    if ranks.count > 1:
        engine = FirstRankEngine(engine, ranks.separate_group())

    def proceed() -> None:
        if killed_in is not None and len(diary.metrics) and max(diary.metrics) == killed_in:
            raise Killed

    watchers = replace(diary.watchers(), proceed=proceed)
    try:
        run_loop(make_resources(engine, learner=learner), slots, schedule, PROBLEMS, checkpoints, watchers)
    except RuntimeError as error:
        assert killed_in is not None and "Killed" in str(error), error
    except Killed:
        pass
    return dict(merged_weights(learner.policy)), diary


def gap(first: Weights, other: Weights) -> float:
    return max(float((first[name] - other[name]).abs().max()) for name in first)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("start") / "policy")


def run(count: int, *given: Any) -> list[tuple[Weights, Diary]]:
    return on_ranks(count, train, *given) if count > 1 else [train(ALONE, *given)]


def train_and_save(ranks: Ranks, start: Path, folder: Path) -> None:
    """Train a policy with the mask of a lagged one, and export both."""
    slots = replace(
        SLOTS,
        rollouts=Masked(prompts=4, group_size=4, max_tokens=5, mask_top_p=0.9),
        reference=MovingAverage(decay=0.5),
    )
    training = Training(
        seed=7,
        slots=slots,
        schedule=replace(SMALL_STEPS, rounds=2),
        start=start,
        problems=PROBLEMS,
        folders=TrainingFolders.below(folder),
        policy=PolicySettings(precision="float32"),
    )
    train_to_its_end(training, ranks, lambda autocast: nullcontext(None), Watchers())  # type: ignore[arg-type, return-value]


THOROUGH = pytest.mark.thorough


@THOROUGH
def test_several_ranks_export_what_one_exports(start: Path, tmp_path: Path) -> None:
    """Each rank has a part of the policy and of its lagged reference; both are exported whole."""
    train_and_save(ALONE, start, tmp_path / "one")
    on_ranks(2, train_and_save, start, tmp_path / "two")
    for place in (Path("policy"), Path("policy") / MASK):
        alone, several = (load_file(tmp_path / name / place / "model.safetensors") for name in ("one", "two"))
        assert alone.keys() == several.keys() and gap(alone, several) <= 1e-6
    assert read_use(tmp_path / "two" / "policy") == read_use(tmp_path / "one" / "policy")
    begun = load_file(start / "model.safetensors")
    lagged = load_file(tmp_path / "two" / "policy" / MASK / "model.safetensors")
    assert gap(begun, lagged) > 0.0, "the reference has moved"


@pytest.mark.parametrize(
    ("count", "lora"), [(2, False), *(pytest.param(*case, marks=THOROUGH) for case in ((2, True), (3, False)))]
)
def test_several_ranks_end_where_one_ends_and_twice_at_the_same_weights(
    start: Path, tmp_path: Path, count: int, lora: bool
) -> None:
    ((expected, diary),) = run(1, start, tmp_path / "1", None, lora)
    made = run(count, start, tmp_path / "several", None, lora)
    again = run(count, start, tmp_path / "again", None, lora)
    for (weights, _), (others, _) in zip(made, again, strict=True):
        assert gap(weights, made[0][0]) == gap(weights, others) == 0.0
    assert gap(expected, made[0][0]) <= 1e-6
    said = made[0][1]
    assert said.resumed == [0] and sorted(said.metrics) == list(range(1, 7)) and sorted(said.samples) == [1, 3, 6]
    assert said.metrics[6]["reward/total"] == diary.metrics[6]["reward/total"]
    assert said.metrics[6]["policy/loss"] == pytest.approx(diary.metrics[6]["policy/loss"], abs=1e-6)
    assert not made[1][1].metrics and not made[1][1].samples and not made[1][1].resumed


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(*case, marks=THOROUGH) for case in ((2, 2), (2, 1), (2, 3), (1, 2))]
)
def test_a_training_that_was_killed_goes_on_with_any_number_of_ranks(
    start: Path, tmp_path: Path, before: int, after: int
) -> None:
    whole = run(before, start, tmp_path / "whole")[0][0]
    run(before, start, tmp_path / "killed", 5)
    names = {file.name for file in (tmp_path / "killed" / "round_000004").iterdir()}
    assert ("policy.2of2.safetensors" in names) == (before == 2) != ("policy.safetensors" in names)
    made = run(after, start, tmp_path / "killed")
    assert made[0][1].resumed == [4] and sorted(made[0][1].metrics) == [5, 6]
    assert gap(whole, made[0][0]) <= (0.0 if before == after else 1e-6)


@THOROUGH
def test_a_checkpoint_with_a_damaged_part_is_passed_over_for_the_one_before(start: Path, tmp_path: Path) -> None:
    whole = run(2, start, tmp_path / "whole")[0][0]
    run(2, start, tmp_path / "killed", 5)
    part = tmp_path / "killed" / "round_000004" / "policy.2of2.safetensors"
    part.write_bytes(part.read_bytes()[:-8] + bytes(8))
    made = run(2, start, tmp_path / "killed")
    assert made[0][1].resumed == [2] and gap(whole, made[0][0]) == 0.0
