"""References that follow the policy: moving averages, resets, their optimiser state, resumed runs and adapters."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.method.learner import Learner
from models.method.reference import Reference
from models.parts.reference.frozen import Frozen
from models.parts.reference.moving_average import MovingAverage
from models.parts.reference.reset import HardReset, PreviousRound
from models.policies.build import LoraSettings, with_adapter
from models.policies.weights import merged_weights
from tests.support.tiny_loops import SCHEDULE, SLOTS, Diary, run, same_weights, save_start
from tests.support.tiny_models import SEQUENCES, plain_log_probs, tiny_policy


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("start") / "policy")


def models(rounds: int = 7) -> tuple[nn.Linear, list[nn.Linear]]:
    """Return a reference and the policy after each round, in float64."""
    torch.manual_seed(0)
    policies = [nn.Linear(3, 2).double() for _ in range(rounds + 1)]
    return copy.deepcopy(policies[0]), policies[1:]


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.95, 1.0])
def test_the_moving_average_is_its_closed_form(decay: float) -> None:
    reference, policies = models()
    begun, n = weights(reference), len(policies)
    for number, policy in enumerate(policies):
        assert MovingAverage(decay=decay).follow(reference, policy, number)
    shares = [(1 - decay) * decay ** (n - k) for k in range(1, n + 1)]
    expected = decay**n * begun + sum(share * weights(policy) for share, policy in zip(shares, policies, strict=True))
    torch.testing.assert_close(weights(reference), expected)


def test_the_moving_average_moves_only_every_so_many_rounds() -> None:
    reference, policies = models()
    moved = [
        MovingAverage(decay=0.5, every=3).follow(reference, policy, number) for number, policy in enumerate(policies)
    ]
    assert moved == [False, False, True, False, False, True, False]
    begun = weights(models()[0])
    expected = begun / 4 + weights(policies[2]) / 4 + weights(policies[5]) / 2
    torch.testing.assert_close(weights(reference), expected)


@pytest.mark.parametrize("kind", [HardReset, PreviousRound])
def test_a_reset_reference_is_the_policy_of_the_last_reset_and_keeps_still_between(
    kind: Callable[..., Reference],
) -> None:
    reference, policies = models()
    held, moved = [], []
    for number, policy in enumerate(policies):
        moved.append(kind(every=3).follow(reference, policy, number))
        held.append(weights(reference))
    begun = weights(models()[0])
    assert moved == [False, False, True, False, False, True, False]
    expected = [begun, begun, *[weights(policies[2])] * 3, *[weights(policies[5])] * 2]
    assert all(map(torch.equal, held, expected))


@pytest.mark.parametrize("reference", [HardReset(every=1), PreviousRound(), MovingAverage()])
def test_a_reference_that_follows_is_still_a_copy_of_its_own(reference: Reference) -> None:
    held, (policy, *_) = models()
    reference.follow(held, policy, 0)
    before = weights(held)
    with torch.no_grad():
        policy.weight.add_(1.0)
    assert torch.equal(weights(held), before) and all(parameter.grad is None for parameter in held.parameters())


def loop(
    start: Path, folder: Path, reference: Reference, killed_in: int | None = None, **changed: Any
) -> tuple[Learner, Diary]:
    slots = replace(SLOTS, reference=reference)
    return run(start, folder, schedule=replace(SCHEDULE, **changed), slots=slots, killed_in=killed_in)


def same_state(first: Learner, other: Learner) -> bool:
    """Return whether two optimisers hold the same moments, bit for bit."""
    left, right = first.optimiser.state_dict()["state"], other.optimiser.state_dict()["state"]
    return left.keys() == right.keys() and all(
        torch.equal(torch.as_tensor(left[place][name]), torch.as_tensor(right[place][name]))
        for place in left
        for name in left[place]
    )


@pytest.mark.rotating(of=6)
def test_after_a_hard_reset_the_weights_are_equal_the_moments_are_gone_and_the_count_of_updates_goes_on(
    start: Path, tmp_path: Path
) -> None:
    learner, diary = loop(start, tmp_path / "reset", HardReset(every=2), rounds=4)
    assert learner.reference is not None
    assert all(map(torch.equal, learner.reference.parameters(), learner.policy.parameters()))
    assert not learner.optimiser.state
    assert learner.updates == 4 * SCHEDULE.epochs * SCHEDULE.minibatches
    going, told_frozen = loop(start, tmp_path / "frozen", Frozen(), rounds=4)
    assert len(going.optimiser.state) == len(list(going.policy.parameters())) and going.updates == learner.updates
    for number in (1, 2, 3, 4):  # the schedule of the learning rate does not depend on the reset
        name = "policy/learning_rate"
        assert diary.metrics[number][name] == told_frozen.metrics[number][name]


def test_the_moments_after_a_reset_are_those_of_an_optimiser_that_began_there(start: Path, tmp_path: Path) -> None:
    learner, _ = loop(start, tmp_path, HardReset(every=2), rounds=3)
    steps = {float(state["step"]) for state in learner.optimiser.state.values()}
    assert steps == {float(SCHEDULE.epochs * SCHEDULE.minibatches)} and learner.updates == 3 * max(steps)


def test_the_first_step_after_a_reset_sees_no_distance_to_the_reference(start: Path, tmp_path: Path) -> None:
    _, diary = loop(start, tmp_path, HardReset(every=2), rounds=4, epochs=1, minibatches=1)
    apart = [diary.metrics[number]["policy/kl"] for number in (1, 2, 3, 4)]
    assert apart[0] == pytest.approx(0, abs=1e-9) and apart[2] == pytest.approx(0, abs=1e-9)
    assert apart[1] > 1e-6 and apart[3] > 1e-6


def test_the_reference_of_the_previous_round_lets_the_optimiser_go_on(start: Path, tmp_path: Path) -> None:
    learner, _ = loop(start, tmp_path, PreviousRound(), rounds=3)
    assert learner.reference is not None
    assert all(map(torch.equal, learner.reference.parameters(), learner.policy.parameters()))
    assert {float(state["step"]) for state in learner.optimiser.state.values()} == {float(learner.updates)}


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    "reference",
    [
        HardReset(every=2),  # resets in the round of the checkpoint, which holds an optimiser without moments
        HardReset(every=3),  # resets after the checkpoint, in the round of the kill, so the reset is repeated
        MovingAverage(decay=0.8),
    ],
    ids=lambda reference: f"{reference.name} every {reference.every}",
)
def test_a_killed_run_goes_on_across_a_move_of_the_reference_and_ends_bit_for_bit_the_same(
    start: Path, tmp_path: Path, reference: Reference
) -> None:
    whole, _ = loop(start, tmp_path / "whole", reference, rounds=4, epochs=1)
    loop(start, tmp_path / "killed", reference, killed_in=3, rounds=4, epochs=1)
    resumed, diary = loop(start, tmp_path / "killed", reference, rounds=4, epochs=1)
    assert diary.resumed == [2]
    assert same_weights(whole, resumed) and whole.updates == resumed.updates and same_state(whole, resumed)
    assert whole.reference is not None
    assert resumed.reference is not None
    assert all(map(torch.equal, whole.reference.parameters(), resumed.reference.parameters()))


def adapted(seed: int) -> nn.Module:
    """Return a policy with an adapter of random weights, in float64."""
    policy = with_adapter(tiny_policy(), LoraSettings(rank=2, alpha=4), seed=0)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_" in name:
                drawn = torch.Generator().manual_seed(seed + len(name))
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=drawn))
    return policy


def plain_weights(policy: nn.Module) -> dict[str, Tensor]:
    return {name: weight.clone() for name, weight in merged_weights(policy)}


def test_beside_an_adapter_the_average_is_that_of_whole_weights_and_not_of_the_adapters_factors() -> None:
    reference, policies = tiny_policy().requires_grad_(False), [adapted(seed) for seed in (1, 2, 3)]
    begun = plain_weights(reference)
    for number, policy in enumerate(policies):
        MovingAverage(decay=0.5).follow(reference, policy, number)
    after = reference.state_dict()
    for name, start in begun.items():
        first, two, three = (plain_weights(policy)[name] for policy in policies)
        torch.testing.assert_close(after[name], start / 8 + first / 8 + two / 4 + three / 2, rtol=1e-12, atol=1e-12)
    assert any(not torch.allclose(after[name], start) for name, start in begun.items())


@pytest.mark.parametrize("kind", [HardReset, PreviousRound, MovingAverage])
def test_a_reference_that_has_become_an_adapted_policy_says_what_the_policy_says(
    kind: Callable[..., Reference],
) -> None:
    reference, policy = tiny_policy().requires_grad_(False), adapted(1)
    settings: dict[str, float] = {"decay": 0.0} if kind is MovingAverage else {}
    kind(every=1, **settings).follow(reference, policy, 0)
    for mine, theirs in zip(
        plain_log_probs(reference, SEQUENCES), plain_log_probs(policy.eval(), SEQUENCES), strict=True
    ):
        torch.testing.assert_close(mine, theirs.detach(), rtol=1e-9, atol=1e-9)
