"""Whole runs of the loop: resumed runs have equal weights, the canary finds other weights, and metrics are complete."""

import math
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.engines.canary import TOLERANCE, canary_gap, fixed_tokens
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.log_probs import completion_log_probs
from models.learner.optimiser import OptimiserSettings
from models.method.curriculum import prompts_of_round
from models.parts.rollouts.sample import Sample
from models.policies.build import LoraSettings, load_causal_model, with_adapter
from models.policies.folder import save_model_folder
from models.policies.weights import merged_weights
from tests.support.tiny_loops import (
    END,
    PROBLEMS,
    SCHEDULE,
    SLOTS,
    TEXTS,
    TOKENIZER,
    Brief,
    Sevens,
    new_learner,
    run,
    same_weights,
    save_start,
)
from tests.support.tiny_models import tiny_policy

pytestmark = pytest.mark.rotating(of=8)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("start") / "policy")


STEADY = ("reward/total", "policy/loss", "policy/gradient_norm", "policy/kl", "rollouts/length", "policy/learning_rate")


@pytest.mark.parametrize("lora", [False, True])
def test_a_killed_run_goes_on_and_ends_with_the_weights_of_one_that_was_never_interrupted(
    start: Path, tmp_path: Path, lora: bool
) -> None:
    whole, diary = run(start, tmp_path / "whole", lora=lora)
    run(start, tmp_path / "killed", lora=lora, killed_in=5)
    resumed, told_after = run(start, tmp_path / "killed", lora=lora)
    assert diary.resumed == [0] and told_after.resumed == [4] and sorted(told_after.metrics) == [5, 6]
    assert same_weights(whole, resumed) and whole.updates == resumed.updates
    for number in (5, 6):
        assert {key: diary.metrics[number].get(key) for key in STEADY} == {
            key: told_after.metrics[number].get(key) for key in STEADY
        }
    assert not same_weights(whole, new_learner(SCHEDULE, lora))


@pytest.mark.parametrize("killed_in", [2, 3, 4])
def test_each_round_before_the_one_that_a_killed_run_resumes_from_was_reported(
    start: Path, tmp_path: Path, killed_in: int
) -> None:
    """The run ends before the round's report is stored, and its writer finishes the checkpoint that it has begun."""
    _, diary = run(start, tmp_path / "checkpoints", killed_in=killed_in)
    reported = set(diary.metrics) - {killed_in}
    _, resumed = run(start, tmp_path / "checkpoints")
    assert reported | set(resumed.metrics) == {1, 2, 3, 4, 5, 6}


def test_a_run_killed_before_its_first_checkpoint_begins_again_and_ends_the_same(start: Path, tmp_path: Path) -> None:
    whole, _ = run(start, tmp_path / "whole", schedule=replace(SCHEDULE, rounds=3))
    run(start, tmp_path / "killed", schedule=replace(SCHEDULE, rounds=3), killed_in=1)
    again, diary = run(start, tmp_path / "killed", schedule=replace(SCHEDULE, rounds=3))
    assert diary.resumed == [0] and same_weights(whole, again)


@pytest.mark.parametrize("damage", ["truncated tensors", "truncated state", "missing tensors", "empty state"])
def test_a_broken_checkpoint_is_passed_over_with_a_warning_and_the_run_ends_the_same(
    start: Path, tmp_path: Path, damage: str
) -> None:
    whole, _ = run(start, tmp_path / "whole")
    run(start, tmp_path / "killed", killed_in=5)
    newest = tmp_path / "killed" / "round_000004"
    policy, state = newest / "policy.safetensors", newest / "state.json"
    if damage == "truncated tensors":
        policy.write_bytes(policy.read_bytes()[:-1000])
    elif damage == "missing tensors":
        policy.unlink()
    else:
        state.write_text(state.read_text()[:20] if damage == "truncated state" else "[]")
    with pytest.warns(UserWarning, match=r"round_000004: .* is (broken|missing); going back to the checkpoint before"):
        resumed, diary = run(start, tmp_path / "killed")
    assert diary.resumed == [2] and same_weights(whole, resumed)


def test_the_seed_decides_the_run(start: Path, tmp_path: Path) -> None:
    learner, _ = run(start, tmp_path / "a", schedule=replace(SCHEDULE, rounds=2))
    two, _ = run(start, tmp_path / "b", schedule=replace(SCHEDULE, rounds=2))
    assert same_weights(learner, two)


class Deaf(TransformersEngine):
    """An engine that ignores the weights it gets, and keeps its own without an error."""

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        list(weights)

    def sleep(self) -> None:
        """Keep the weights, even if learner and engine share memory: after a sleep the engine would have none."""


def test_the_canary_names_the_round_in_which_a_hand_over_did_nothing(start: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^round 1: .* differ by \d+\.\d+ nats a token"):
        run(start, tmp_path, engine=Deaf)


def test_an_engine_in_bfloat16_beside_a_learner_in_float32_is_judged_by_the_coarser_of_the_two(
    start: Path, tmp_path: Path
) -> None:
    def rounding(folder: Path, settings: EngineSettings, *, end: int) -> TransformersEngine:
        return TransformersEngine(folder, replace(settings, precision="bfloat16"), end=end)

    _, diary = run(start, tmp_path, schedule=replace(SCHEDULE, rounds=2), engine=rounding)
    gap = max(values["engine/canary_gap"] for values in diary.metrics.values())
    assert TOLERANCE[None] < gap < TOLERANCE[torch.bfloat16]
    with pytest.raises(UserError, match=r"tolerance 0\.0\)"):  # zero is a tolerance, not a missing value
        run(start, tmp_path / "strict", schedule=replace(SCHEDULE, canary_tolerance=0.0), engine=rounding)


def test_the_canary_stops_before_the_first_round_where_the_engine_began_with_other_weights(
    start: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    save_model_folder(tiny_policy(torch.float32, seed=9, spread=3.0), TOKENIZER, other)
    with pytest.raises(UserError, match=r"^round 0: "):
        run(other, tmp_path / "checkpoints", engine=Deaf)


def test_the_canary_takes_the_mean_over_tokens_and_the_farthest_engine_of_several(start: Path) -> None:
    policy = load_causal_model(start, torch.float32)
    tokens = fixed_tokens([(3, 4, 5, 6)], END)
    policys, _ = completion_log_probs(policy, tokens)

    class Off:
        """An engine whose log-probs are those of the policy plus a given value per token."""

        def __init__(self, *added: tuple[float, ...]) -> None:
            self.added = added

        def members(self) -> list["Off"]:
            return [Off(each) for each in self.added]

        def score(self, prompts: object, completions: object) -> list[list[float]]:
            return [(policys.detach() + torch.tensor(self.added[0])).tolist()]

    for added, gap in (
        (((0.45, 0.0, 0.0, -0.03),), 0.12),
        (((0.0, 0.0, 0.0, 0.0), (0.2, -0.2, 0.2, -0.2)), 0.2),
        (((0.0, 0.0, -0.04, 0.0),), 0.01),
    ):
        assert canary_gap(cast(Any, Off(*added)), policy, tokens, None) == pytest.approx(gap, abs=1e-5)


def test_the_canary_sees_no_gap_in_an_adapter_that_learns_with_dropout(start: Path) -> None:
    policy = with_adapter(tiny_policy(torch.float32, spread=3.0), LoraSettings(rank=4, dropout=0.5), seed=0)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    engine = TransformersEngine(start, EngineSettings(precision="float32"), end=END)
    engine.load(merged_weights(policy))
    policy.train()
    assert canary_gap(engine, policy, fixed_tokens([problem.tokens for problem in PROBLEMS], END), None) < 1e-4
    assert policy.training


def test_the_canary_has_tokens_even_where_every_prompt_is_one_token() -> None:
    sequences = fixed_tokens([(5,), (6,)], END)
    assert len(sequences) == 2 and all(len(completion) for completion in sequences.completions)


def test_what_is_rewarded_becomes_frequent(start: Path, tmp_path: Path) -> None:
    schedule = replace(
        SCHEDULE, rounds=25, epochs=1, minibatches=1, optimiser=OptimiserSettings(learning_rate=5e-3, warmup_steps=1)
    )
    slots = replace(SLOTS, rollouts=Sample(prompts=6, group_size=8, max_tokens=5), rewards=[Sevens()])
    _, diary = run(start, tmp_path, schedule=schedule, slots=slots)
    first, last = diary.metrics[1]["reward/sevens"], diary.metrics[25]["reward/sevens"]
    assert first < 0.3 and last > 0.8


def test_the_frozen_reference_never_moves(start: Path, tmp_path: Path) -> None:
    learner, _ = run(start, tmp_path)
    untouched = tiny_policy(torch.float32, spread=3.0).state_dict()
    assert learner.reference is not None
    assert all(torch.equal(value, untouched[name]) for name, value in learner.reference.state_dict().items())


def test_no_component_of_the_reward_gets_lost(start: Path, tmp_path: Path) -> None:
    _, diary = run(start, tmp_path)
    for values in diary.metrics.values():
        assert values["reward/total"] == pytest.approx(values["reward/sevens"] + 0.1 * values["reward/brief"], abs=1e-6)
    assert sorted(diary.samples) == [1, 3, 6]
    rows: list[dict[str, Any]] = diary.samples[3]
    for row in rows:
        assert row["reward"] == pytest.approx(row["sevens"] + 0.1 * row["brief"], abs=2e-4)
        assert row["prompt"] in TEXTS and row["tokens"] <= 5 and row["expected"] == "7"


def test_every_round_tells_of_itself_once_and_in_order(start: Path, tmp_path: Path) -> None:
    _, diary = run(start, tmp_path)
    assert list(diary.metrics) == [1, 2, 3, 4, 5, 6] and diary.resumed == [0]
    assert all(values["engine/canary_gap"] < 1e-4 for values in diary.metrics.values())
    assert len({key for values in diary.metrics.values() for key in values}) <= 60


def test_rounds_without_signal_leave_the_weights_alone_and_go_on(start: Path, tmp_path: Path) -> None:
    flat = replace(SLOTS, rewards=[Brief(weight=0.0)])
    learner, diary = run(start, tmp_path, slots=flat)
    assert same_weights(learner, new_learner(SCHEDULE)) and learner.updates == 0
    assert [values["rollouts/trained_share"] for values in diary.metrics.values()] == [0.0] * 6


def test_only_the_newest_two_checkpoints_stay_and_none_half_written(start: Path, tmp_path: Path) -> None:
    run(start, tmp_path, schedule=replace(SCHEDULE, checkpoint_every=1))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["round_000004", "round_000005"]


def test_what_a_killed_writer_left_is_not_taken_for_a_checkpoint(start: Path, tmp_path: Path) -> None:
    whole, _ = run(start, tmp_path / "whole")
    run(start, tmp_path / "killed", killed_in=3)
    half = tmp_path / "killed" / ".round_000004.4194305.part"
    shutil.copytree(tmp_path / "killed" / "round_000002", half)
    (half / "state.json").unlink()
    resumed, diary = run(start, tmp_path / "killed")
    assert diary.resumed == [2] and same_weights(whole, resumed)
    assert not half.exists()


def test_the_learning_rate_that_is_told_is_the_one_that_was_used(start: Path, tmp_path: Path) -> None:
    learner, diary = run(start, tmp_path)
    assert diary.metrics[6]["policy/learning_rate"] == pytest.approx(learner.optimiser.param_groups[0]["lr"])


@pytest.mark.parametrize("count", [1, 4, 6, 7, 20])
def test_the_prompts_of_the_rounds_visit_every_problem_once_an_epoch(count: int) -> None:
    rounds = 42
    visited = [problem.id for number in range(rounds) for problem in prompts_of_round(PROBLEMS, count, number, 3)]
    epochs = [visited[at : at + 6] for at in range(0, len(visited), 6)]
    assert all(max(Counter(epoch).values()) == 1 for epoch in epochs)
    assert len(visited) == rounds * count and len({tuple(epoch) for epoch in epochs}) > 1


def test_the_prompts_of_a_round_depend_on_nothing_that_came_before() -> None:
    forwards = {number: prompts_of_round(PROBLEMS, 4, number, 3) for number in range(12)}
    torch.manual_seed(99)
    assert {number: prompts_of_round(PROBLEMS, 4, number, 3) for number in reversed(range(12))} == forwards
    assert prompts_of_round(PROBLEMS, 6, 0, 4) != prompts_of_round(PROBLEMS, 6, 0, 3)


def test_with_an_engine_and_a_learner_in_bfloat16_as_a_gpu_has_them_by_default_the_canary_is_calm(
    start: Path, tmp_path: Path
) -> None:
    def engine(folder: Path, _: EngineSettings, end: tuple[int, ...]) -> TransformersEngine:
        return TransformersEngine(folder, EngineSettings(), end=end, dtype=torch.bfloat16)

    learner = replace(new_learner(SCHEDULE), autocast=torch.bfloat16)
    _, diary = run(start, tmp_path, learner=learner, engine=engine)
    gaps = [values["engine/canary_gap"] for values in diary.metrics.values()]
    assert len(gaps) == SCHEDULE.rounds and 1e-5 < max(gaps) < TOLERANCE[torch.bfloat16]
    assert all(map(math.isfinite, (value for values in diary.metrics.values() for value in values.values())))
