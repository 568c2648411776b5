"""Memory that engine and reference release while they are not in use: the run's weights stay the same."""

import functools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.engines.engine import EngineSettings
from models.engines.restart import Restarting
from models.engines.transformers_engine import TransformersEngine
from models.learner.offloaded import Offloaded
from models.recipes.load import load_recipe
from models.recipes.plan.configs import policy_config
from models.recipes.plan.footprint import Device, Footprint, footprint
from models.recipes.plan.rows import loop_row
from models.training.build import build_learner
from tests.support.device_here import DEVICE
from tests.support.tiny_loops import END, SCHEDULE, new_learner, run, same_weights, save_start
from tests.support.tiny_models import GREEDY, PROMPTS, tiny_policy

ASLEEP = EngineSettings(sleep=True, precision="float32")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("start") / "policy")


def numbers(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def steady(values: dict[str, float]) -> dict[str, float]:
    """Return the metrics that do not depend on time."""
    return {
        key: value for key, value in values.items() if key.startswith(("policy/", "reward/", "rollouts/", "engine/"))
    }


class Noting(TransformersEngine):
    """An engine that records how many weights it has at each load."""

    def __init__(self, folder: Path, settings: EngineSettings, *, end: int) -> None:
        super().__init__(folder, replace(settings, sleep=True), end=end)
        self.held: list[int] = []

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        self.held.append(numbers(self.model))
        super().load(weights, version)


@pytest.mark.rotating(of=6)
def test_an_engine_that_sleeps_while_the_learner_fits_leaves_the_same_weights_to_the_bit(
    start: Path, tmp_path: Path
) -> None:
    awake, spoke = run(start, tmp_path / "awake")
    opened: list[Noting] = []

    def sleeping(folder: Path, settings: EngineSettings, *, end: int) -> Noting:
        opened.append(Noting(folder, settings, end=end))
        return opened[-1]

    slept, also = run(start, tmp_path / "asleep", engine=sleeping)
    assert same_weights(awake, slept)
    assert [steady(values) for values in spoke.metrics.values()] == [steady(values) for values in also.metrics.values()]
    assert opened[0].held == [numbers(tiny_policy()), *[0] * SCHEDULE.rounds]
    assert numbers(opened[0].model) == numbers(tiny_policy())


def test_an_engine_that_draws_ahead_does_not_sleep(start: Path, tmp_path: Path) -> None:
    opened: list[Noting] = []

    def ahead(folder: Path, settings: EngineSettings, *, end: int) -> Noting:
        opened.append(Noting(folder, settings, end=end))
        return opened[-1]

    run(start, tmp_path, engine=ahead, schedule=replace(SCHEDULE, rounds=2, staleness=1))
    assert opened[0].held == [numbers(tiny_policy())] * 3


def test_weights_that_wake_an_engine_are_all_that_it_knows_also_behind_a_restart(start: Path) -> None:
    start_engine = functools.partial(TransformersEngine, start, ASLEEP, end=END)
    engine, fresh = Restarting(start_engine, torch.float32), start_engine()
    for other in (tiny_policy(torch.float32, seed=3), tiny_policy(torch.float32, seed=4)):
        engine.sleep()
        engine.sleep()  # a second call has no effect
        assert isinstance(engine.engine, TransformersEngine) and numbers(engine.engine.model) == 0
        engine.load(other.state_dict().items())
        fresh.load(other.state_dict().items())
        drawn = [made[0].tokens for made in engine.generate(PROMPTS, GREEDY, seed=0)]
        assert drawn == [made[0].tokens for made in fresh.generate(PROMPTS, GREEDY, seed=0)]
    awake = TransformersEngine(start, EngineSettings(sleep=False, precision="float32"), end=END)
    awake.sleep()
    assert numbers(awake.model) == numbers(tiny_policy())


def test_offloaded_weights_are_there_while_they_are_read_and_then_the_same_as_before() -> None:
    model = tiny_policy(torch.float32)
    before = {name: value.cpu().clone() for name, value in model.state_dict().items()}
    offloaded = Offloaded(model, DEVICE)
    waiting = [weight.data_ptr() for weight in model.parameters()]
    with offloaded.fetched():
        inside = [weight.data_ptr() for weight in model.parameters()]
        with offloaded.fetched():
            assert inside == [weight.data_ptr() for weight in model.parameters()]
        assert inside == [weight.data_ptr() for weight in model.parameters()]
        assert not set(inside) & set(waiting)
    with pytest.raises(KeyboardInterrupt), offloaded.fetched():
        raise KeyboardInterrupt
    assert waiting == [weight.data_ptr() for weight in model.parameters()]
    assert all(torch.equal(value.cpu(), before[name]) for name, value in model.state_dict().items())


@pytest.mark.rotating(of=6)
def test_a_reference_that_waits_elsewhere_is_read_to_the_same_bits(start: Path, tmp_path: Path) -> None:
    beside, spoke = run(start, tmp_path / "beside")
    learner = new_learner(SCHEDULE)
    assert learner.reference is not None
    read: list[int] = []

    class Fetched(Offloaded):
        def _put_back(self) -> None:
            read.append(1)
            super()._put_back()

    learner.offloaded = Fetched(learner.reference, DEVICE)
    away, also = run(start, tmp_path / "away", learner=learner)
    # The reference returns once a round, and once when it was moved away.
    assert same_weights(beside, away) and len(read) == 1 + SCHEDULE.rounds
    assert [values["policy/kl"] for values in spoke.metrics.values()] == [
        values["policy/kl"] for values in also.metrics.values()
    ]


def test_the_recipe_says_so_in_a_word_and_is_refused_where_it_would_mean_nothing() -> None:
    recipe = load_recipe("grpo", ["reference.offload=true", "objective.kl=0.01"])
    assert recipe.schedule is not None
    policy: Any = tiny_policy(torch.float32)
    learner = build_learner(policy, recipe, recipe.schedule, lambda model: None)
    assert learner.offloaded is not None and learner.reference is not None
    for extra, words in {
        "policy.lora.rank=4": "reference.offload: with policy.lora the reference is the policy",
        "placement={learners: 2, engines: 1}": "reference.offload: of several learners each holds a part",
    }.items():
        with pytest.raises(UserError, match=words):
            load_recipe("grpo", ["reference.offload=true", "objective.kl=0.01", extra])


@pytest.mark.rotating(of=6)
def test_a_plan_counts_what_is_there_at_one_time(start: Path) -> None:
    gpu = Device("cuda", 10**10)

    def planned(*overrides: str) -> Footprint:
        recipe = load_recipe("grpo", ["objective.kl=0.01", "policy.precision=float32", "engine.name=vllm", *overrides])
        config, _ = policy_config(recipe)
        return footprint(recipe, config, loop_row(recipe, config, 32, gpu), gpu, None)

    together, asleep, away = planned("engine.sleep=false"), planned(), planned("reference.offload=true")
    assert together.engine == asleep.engine == 3.5e9
    staying = asleep.weights + asleep.optimiser + asleep.reference + asleep.companions + asleep.reward_model
    assert together.total == staying + together.passing + 3.5e9
    assert asleep.total == staying + max(asleep.passing, 3.5e9)
    assert away.total == staying - asleep.reference + max(away.passing, away.reference + away.logits, 3.5e9)
    assert planned("schedule.async=1").total == together.total
