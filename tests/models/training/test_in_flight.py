"""Completions in flight while the weights change: ages of trained tokens, dropped groups, and killed runs."""

import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Engine, EngineSettings, Generated, TokenSampling
from models.engines.fleet import Fleet
from models.engines.transformers_engine import TransformersEngine
from models.engines.vllm_engine import VllmEngine
from models.learner.optimiser import OptimiserSettings
from models.method.curriculum import prompts_of_round
from models.method.rollout import Rollout
from models.method.schedule import ScheduleSettings
from models.parts.rollouts.sample import Sample
from models.recipes.load import load_recipe
from models.training.in_flight import InFlight, ages_of
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, SLOTS, run, same_weights, save_start
from tests.support.tiny_models import NO_VLLM

pytestmark = pytest.mark.rotating(of=8)

K = 3
FLIGHT = replace(SCHEDULE, staleness=K, rounds=10, checkpoint_every=4)
DROPPING = replace(FLIGHT, too_old="drop")
RULES = [pytest.param(FLIGHT, id="wait"), pytest.param(DROPPING, id="drop", marks=pytest.mark.thorough)]
STILL = OptimiserSettings(learning_rate=0.0)
LONG = replace(SLOTS, rollouts=Sample(prompts=4, group_size=4, max_tokens=40))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("start") / "policy")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[InFlight, int, list[Rollout]]]:
    """Record what each round takes: source, round and rollouts."""
    rounds: list[tuple[InFlight, int, list[Rollout]]] = []
    take = InFlight.take

    def watched(source: InFlight, number: int) -> tuple[list[Rollout], dict[str, float]]:
        rollouts, metrics = take(source, number)
        rounds.append((source, number, rollouts))
        return rollouts, metrics

    monkeypatch.setattr(InFlight, "take", watched)
    return rounds


class Slow(TransformersEngine):
    """An engine that serves one token per call."""

    def serve(
        self,
        requests: Mapping[int, CompletionRequest],
        drawing: TokenSampling,
        steps: int,
        dropped: Collection[int] = (),
    ) -> dict[int, Generated]:
        return super().serve(requests, drawing, min(steps, 1), dropped)


class Withholding(TransformersEngine):
    """An engine that never returns the completions of the first group."""

    def serve(
        self,
        requests: Mapping[int, CompletionRequest],
        drawing: TokenSampling,
        steps: int,
        dropped: Collection[int] = (),
    ) -> dict[int, Generated]:
        made = super().serve(requests, drawing, steps, dropped)
        if not made:
            time.sleep(0.01)  # the engine has no work, so without a pause the source would call it in a busy loop
        return {number: generated for number, generated in made.items() if number >= 4}


class Dying(TransformersEngine):
    """An engine that fails when it has weights of version 2."""

    def serve(
        self,
        requests: Mapping[int, CompletionRequest],
        drawing: TokenSampling,
        steps: int,
        dropped: Collection[int] = (),
    ) -> dict[int, Generated]:
        if self.version == 2:
            raise RuntimeError("the engine died")
        return super().serve(requests, drawing, steps, dropped)


def two(folder: Path, settings: EngineSettings, **options: Any) -> Engine:
    """Open two engines, each with room for one group and a half."""
    small = replace(settings, max_sequences=6)
    return Fleet([lambda: TransformersEngine(folder, small, **options)] * 2, torch.float32)


def by_completion(rounds: list[tuple[InFlight, int, list[Rollout]]]) -> Counter[tuple[str, tuple[int, ...]]]:
    return Counter((rollout.problem.id, rollout.completion) for _, _, rollouts in rounds for rollout in rollouts)


@pytest.mark.parametrize("engine", [TransformersEngine, Slow, two])
def test_at_learning_rate_zero_the_completions_of_a_run_are_those_of_one_in_step(
    start: Path, tmp_path: Path, taken: list[Any], engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds that train on the completions may differ. Long completions are waited for, so none is missing."""
    schedule = replace(FLIGHT, optimiser=STILL, staleness=2)
    flown, diary = run(start, tmp_path / "flight", schedule=schedule, slots=LONG, engine=engine)
    in_step: list[Rollout] = []
    sample = Sample.__call__

    def watched(self: Sample, *arguments: Any) -> list[Rollout]:
        made = sample(self, *arguments)
        in_step.extend(made)
        return made

    monkeypatch.setattr(Sample, "__call__", watched)
    kept, _ = run(start, tmp_path / "step", schedule=replace(schedule, staleness=0), slots=LONG)
    assert same_weights(flown, kept)
    assert by_completion(taken) == Counter((rollout.problem.id, rollout.completion) for rollout in in_step)
    assert sum(values["rollouts/dropped_by_age"] for values in diary.metrics.values()) == 0


def test_a_group_that_has_grown_too_old_is_dropped_once_counted_and_asked_anew(
    start: Path, tmp_path: Path, taken: list[Any]
) -> None:
    """All other groups are so short that they end in the order of their requests, so none of them is too old."""
    _, diary = run(start, tmp_path, schedule=DROPPING, engine=Withholding)
    dropped = {number: values["rollouts/dropped_by_age"] for number, values in diary.metrics.items()}
    assert dropped == {number: float(number == K + 2) for number in range(1, 11)}
    first = prompts_of_round(PROBLEMS, 1, 0, 7)[0]
    rounds = [number for _, number, rollouts in taken for rollout in rollouts if rollout.problem.id == first.id]
    positions = [at for at in range(40) if prompts_of_round(PROBLEMS, 1, at, 7)[0].id == first.id]
    assert len(rounds) == 4 * len(positions)


def test_an_engine_that_dies_ends_the_run_with_what_it_said(start: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the engine died"):
        run(start, tmp_path, schedule=FLIGHT, slots=LONG, engine=Dying)


def test_what_is_under_way_at_the_end_of_a_run_is_let_go_of(start: Path, tmp_path: Path) -> None:
    engines: list[TransformersEngine] = []

    def kept(*arguments: Any, **named: Any) -> TransformersEngine:
        engines.append(Slow(*arguments, **named))
        return engines[0]

    run(start, tmp_path, schedule=FLIGHT, slots=LONG, engine=kept, killed_in=2)
    assert engines[0].serving is not None and not engines[0].serving.under_way


@pytest.mark.parametrize("schedule", RULES)
@pytest.mark.parametrize("engine", [TransformersEngine, Slow, two])
def test_nothing_is_older_than_allowed_and_the_metrics_say_how_old_it_is(
    start: Path, tmp_path: Path, taken: list[Any], engine: Any, schedule: ScheduleSettings
) -> None:
    _, diary = run(start, tmp_path, schedule=schedule, slots=LONG, engine=engine)
    assert len(taken) == 10
    for _, number, rollouts in taken:
        assert len(rollouts) == 16 and [rollout.group for rollout in rollouts] == [n // 4 for n in range(16)]
        ages = [ages_of(rollout, number) for rollout in rollouts]
        assert [len(age) for age in ages] == [len(rollout.completion) for rollout in rollouts]
        every = torch.cat(ages)
        assert int(every.min()) >= 0 and int(every.max()) <= K
        shown = diary.metrics[number + 1]
        assert shown["rollouts/age_max"] == int(every.max())
        assert shown["rollouts/age_mean"] == pytest.approx(float(every.double().mean()))
    assert max(values["rollouts/age_max"] for values in diary.metrics.values()) >= 1


@pytest.mark.parametrize("schedule", RULES)
def test_every_position_is_taken_once_or_open(
    start: Path, tmp_path: Path, taken: list[Any], schedule: ScheduleSettings
) -> None:
    """This is also true of groups that were dropped and requested again, and of a run that was killed and resumed."""
    few = replace(schedule, staleness=2)
    run(start, tmp_path, schedule=few, slots=LONG, engine=Slow, killed_in=6)
    first = list(taken)
    assert [number for _, number, _ in first] == list(range(6))
    taken.clear()
    _, diary = run(start, tmp_path, schedule=few, slots=LONG, engine=Slow)
    assert diary.resumed == [4] and [number for _, number, _ in taken] == list(range(4, 10))
    prompts = Counter(rollout.problem.id for _, _, rollouts in [*first[:4], *taken] for rollout in rollouts)
    asked = [prompts_of_round(PROBLEMS, 1, position, 7)[0].id for position in range(10 * 4)]
    assert prompts == Counter(asked * 4)
    assert taken[-1][0]._tally.open == []


def test_behaviour_log_probs_are_those_that_the_tokens_were_drawn_by(
    start: Path, tmp_path: Path, taken: list[Any]
) -> None:
    """In a round of fresh tokens, engine and learner agree. Otherwise they differ, and the loss corrects for it."""
    schedule = replace(FLIGHT, epochs=1, minibatches=1)
    _, diary = run(start, tmp_path, schedule=schedule, slots=LONG, engine=TransformersEngine)
    fresh = [values for values in diary.metrics.values() if values["rollouts/age_max"] == 0]
    stale = [values for values in diary.metrics.values() if values["rollouts/age_mean"] > 0.5]
    assert fresh and stale and all(values["policy/engine_gap"] > 1e-4 for values in stale)
    assert all(values["policy/engine_gap"] < 1e-5 for values in fresh)


class SlowVllm(VllmEngine):
    """An engine that serves one token per call, so slowly that completions are in flight when the weights change."""

    def serve(
        self,
        requests: Mapping[int, CompletionRequest],
        drawing: TokenSampling,
        steps: int,
        dropped: Collection[int] = (),
    ) -> dict[int, Generated]:
        time.sleep(0.02)
        return super().serve(requests, drawing, min(steps, 1), dropped)


@pytest.mark.thorough
@NO_VLLM
def test_vllm_too_goes_on_under_new_weights(start: Path, tmp_path: Path, taken: list[Any]) -> None:
    def vllm(folder: Path, settings: EngineSettings, *, end: int) -> Engine:
        return SlowVllm(folder, replace(settings, max_sequences=12), longest=64, end=end, seed=0)

    _, diary = run(start, tmp_path, schedule=replace(FLIGHT, rounds=5), slots=LONG, engine=vllm)
    versions = [rollout.source.versions for _, _, rollouts in taken for rollout in rollouts]
    assert len(versions) == 5 * 16 and any(len(spans) > 1 for spans in versions)
    assert max(values["rollouts/age_max"] for values in diary.metrics.values()) <= K
    assert max(values["engine/canary_gap"] for values in diary.metrics.values()) < 1e-3


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("rollouts.name=sample_and_greedy", "rollouts sample_and_greedy adds to the samples of a prompt what belongs"),
        ("select={name: drop_flat, refills: 2}", "select.refills draws further prompts within a round"),
        ("schedule.curriculum.order=signal", "schedule.curriculum chooses the prompts of a round by what was seen"),
        ("placement.learners=2", "placement.learners is 2, which would each see other completions end first"),
    ],
)
def test_what_a_round_needs_whole_is_refused_when_the_recipe_is_read(key: str, said: str) -> None:
    load_recipe("grpo", ["schedule.async=4"])
    with pytest.raises(UserError, match=rf"schedule.async is 4, which trains on .* as they end, but {said}.*to 1 or 0"):
        load_recipe("grpo", ["schedule.async=4", key])


def test_a_rule_for_what_nothing_falls_under_is_refused() -> None:
    load_recipe("grpo", ["schedule.async=2", "schedule.too_old=drop"])
    with pytest.raises(UserError, match=r"schedule.too_old is drop, but with schedule.async 1 nothing grows older"):
        load_recipe("grpo", ["schedule.async=1", "schedule.too_old=drop"])


@pytest.mark.thorough
def test_a_policy_learns_in_flight_what_it_learns_in_step(start: Path, tmp_path: Path) -> None:
    """Tokens are up to three rounds old. From under 0.15, the late mean reward reaches 0.9 of that of a run in step."""
    eager = OptimiserSettings(learning_rate=2e-3, warmup_steps=3)
    schedule = replace(SCHEDULE, rounds=40, epochs=1, minibatches=1, checkpoint_every=1000, optimiser=eager)
    slots = replace(SLOTS, rollouts=Sample(prompts=4, group_size=8, max_tokens=12))
    late = {}
    for age in (0, 3):
        _, diary = run(start, tmp_path / str(age), schedule=replace(schedule, staleness=age), slots=slots)
        curve = [values["reward/sevens"] for values in diary.metrics.values()]
        assert sum(curve[:2]) / 2 < 0.15
        late[age] = sum(curve[25:]) / 15
    assert diary.metrics[40]["rollouts/age_mean"] > 2
    assert late[0] > 0.85 and late[3] > 0.9 * late[0]
