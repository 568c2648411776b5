"""The gate that learns which tokens the policy should write: its gradient by hand, what it learns, and resumed runs."""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.packing import Sequences
from models.method.advantage import Signal
from models.method.learner import Companion, Learner
from models.method.resources import RunResources
from models.method.scored import Scored
from models.method.voices import JointSampling
from models.parts.advantage.group_relative import GroupRelative
from models.parts.advantage.selective import Selective
from models.parts.rollouts.gated import Gated
from models.parts.rollouts.mixture import Mixture
from models.parts.shared.kl_in_reward import KlInReward
from models.recipes.load import load_recipe
from models.training.loop import run_loop
from tests.support.device_here import DEVICE
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, SLOTS, Diary, new_learner, same_weights
from tests.support.tiny_models import COMPLETIONS, PROMPTS, scored, tiny_policy
from tests.support.tiny_resources import make_resources

GROUPED = Sequences([PROMPTS[0]] * 3 + [PROMPTS[2]] * 2, COMPLETIONS)
CHOICES = [(True, False), (False,) * 4, (True,), (True, True, False, True, False, True), (False, True, True)]
REWARDS = [1.0, 0.0, 0.5, 0.25, 0.75]


def chosen(choices: Sequence[tuple[bool, ...]] = CHOICES, rewards: Sequence[float] = REWARDS) -> Scored:
    advantages = scored(rewards, [3, 2], sequences=GROUPED)
    return replace(
        advantages,
        rollouts=[replace(rollout, trained=flags) for rollout, flags in zip(advantages.rollouts, choices, strict=True)],
    )


def resources_with(part: Selective, budget: int = 16384) -> RunResources:
    policy = tiny_policy()
    reference = tiny_policy(seed=3).requires_grad_(False)
    companions = {part.companion: part.accompany(policy)}
    learner = Learner(
        policy, torch.optim.SGD(policy.parameters()), reference, None, None, MODEL_DISTRIBUTION, companions=companions
    )
    return make_resources(learner=learner, token_budget=budget)


def by_plain_steps(resources: RunResources) -> Any:
    """Give the gate random weights and plain gradient descent as its optimiser. Returns its head."""
    head: Any = resources.learner.companions["gate"].model
    with torch.no_grad():
        head.weight.copy_(0.1 * torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(2)))
    resources.learner.companions["gate"] = Companion(head, torch.optim.SGD(head.parameters()))
    return head


def plain_states(prompt: Sequence[int], completion: Sequence[int]) -> Tensor:
    """Return the reference's states that predict the completion, from a plain forward pass, [tokens, hidden]."""
    with torch.no_grad():
        ids = torch.tensor([[*prompt, *completion]], device=DEVICE)
        states: Tensor = tiny_policy(seed=3).base_model(ids).last_hidden_state[0]
    return states[len(prompt) - 1 : -1]


def mean_chance(resources: RunResources) -> float:
    head: Any = resources.learner.companions["gate"].model
    states = torch.cat([plain_states(p, c) for p, c in zip(GROUPED.prompts, GROUPED.completions, strict=True)])
    return float((states @ head.weight[0] + head.bias[0]).sigmoid().mean().detach())


def rewarded(worth: Mapping[bool, float]) -> Signal:
    """Return a signal of `worth[True]` for tokens that the policy wrote and `worth[False]` for the reference's."""
    return Signal([torch.tensor([worth[flag] for flag in flags]) for flags in CHOICES])


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_at_first_the_policy_writes_its_share_whatever_stands_before(share: float) -> None:
    head = Selective(share=share).accompany(tiny_policy()).model
    states = torch.randn(50, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    torch.testing.assert_close(head(states).sigmoid().cpu(), torch.full((50, 1), share, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_share_of_1_is_exactly_1_in_every_precision(dtype: torch.dtype) -> None:
    head = Selective(share=1.0).accompany(tiny_policy(dtype)).model
    assert bool((head(torch.full((5, 64), 30.0, dtype=dtype, device=DEVICE)).sigmoid() == 1.0).all())


def test_every_token_has_the_group_relative_advantage_of_its_completion() -> None:
    for scale in ("group", "none"):
        signal = Selective(scale=scale)(make_resources(), chosen())
        assert isinstance(signal, Signal) and signal.returns is None
        whole = GroupRelative(scale=scale).of_completions(make_resources(), chosen())
        for row, value, completion in zip(signal.tokens, whole.tolist(), COMPLETIONS, strict=True):
            assert row.tolist() == [value] * len(completion)


def test_the_gradient_of_one_token_is_the_advantage_times_what_the_gate_lacked_times_the_state() -> None:
    part = Selective(learning_rate=0.5)
    for flag in (True, False):
        resources = resources_with(part)
        head = by_plain_steps(resources)
        before = copy.deepcopy(head).requires_grad_(False)
        alone = scored([1.0], [1], sequences=Sequences([PROMPTS[0]], [[5]]))
        alone = replace(alone, rollouts=[replace(alone.rollouts[0], trained=(flag,))])
        metrics = part.learn(resources, alone, Signal([torch.tensor([0.02])]), 0)
        state = plain_states(PROMPTS[0], [5])[0]
        gate = 1 / (1 + math.exp(-float(before.weight[0] @ state + before.bias[0])))
        gradient = 0.02 * (gate - 1 if flag else gate)  # derivative of -A log p(z) with respect to the log-odds
        torch.testing.assert_close((head.bias - before.bias).detach().cpu(), torch.tensor([-0.5 * gradient]).double())
        torch.testing.assert_close((head.weight - before.weight).detach()[0], -0.5 * gradient * state)
        assert metrics["chance"] == pytest.approx(gate, rel=1e-9)
        assert metrics["loss"] == pytest.approx(-0.02 * math.log(gate if flag else 1 - gate), rel=1e-6)


@pytest.mark.parametrize("budget", [13, 16384])
def test_the_loss_is_the_mean_over_the_rounds_tokens_however_they_are_packed(budget: int) -> None:
    part = Selective(learning_rate=0.5)
    resources = resources_with(part, budget)
    head = by_plain_steps(resources)
    weight, bias = (p.detach().clone().requires_grad_() for p in (head.weight, head.bias))
    signal = Signal([0.01 * torch.randn(len(c), generator=torch.Generator().manual_seed(len(c))) for c in COMPLETIONS])
    terms = []
    for prompt, completion, flags, row in zip(GROUPED.prompts, COMPLETIONS, CHOICES, signal.tokens, strict=True):
        gate = (plain_states(prompt, completion) @ weight[0] + bias[0]).sigmoid()
        terms += [-a * (g if z else 1 - g).log() for a, g, z in zip(row.double(), gate, flags, strict=True)]
    loss = sum(terms) / len(terms)
    loss.backward()
    metrics = part.learn(resources, chosen(), signal, 0)
    assert metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-9)
    torch.testing.assert_close(head.weight.detach(), (weight - 0.5 * weight.grad).detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(head.bias.detach(), (bias - 0.5 * bias.grad).detach(), rtol=0, atol=1e-10)


def test_where_what_the_reference_wrote_is_worth_more_the_gate_falls_and_where_less_it_rises() -> None:
    part = Selective(share=0.5, passes=40, learning_rate=1e-2)
    by_reference = chosen([(False,) * len(completion) for completion in COMPLETIONS])
    ends = {}
    for worth in (1.0, -1.0):
        resources = resources_with(part)
        part.learn(resources, by_reference, constant(worth), 0)
        ends[worth] = mean_chance(resources)
    assert ends[1.0] < 0.2 and ends[-1.0] > 0.8


def constant(value: float) -> Signal:
    return Signal([torch.full((len(completion),), value) for completion in COMPLETIONS])


@pytest.mark.rotating(of=6)
def test_it_learns_which_tokens_the_policy_should_write() -> None:
    part = Selective(share=0.5, passes=300, learning_rate=1e-2)
    resources = resources_with(part)
    part.learn(resources, chosen(), rewarded({True: 1.0, False: 1.0}), 0)  # every choice has an advantage of 1
    head: Any = resources.learner.companions["gate"].model
    for prompt, completion, flags in zip(GROUPED.prompts, COMPLETIONS, CHOICES, strict=True):
        gate = (plain_states(prompt, completion) @ head.weight[0] + head.bias[0]).sigmoid()
        # completions of a prompt share the state of the first token, but have different choices there
        assert (gate[1:] > 0.5).tolist() == list(flags[1:])


def test_without_an_advantage_nothing_moves_and_with_one_only_the_gate() -> None:
    part = Selective(passes=3)
    resources = resources_with(part)
    assert resources.learner.reference is not None
    before = copy.deepcopy((resources.learner.policy.state_dict(), resources.learner.reference.state_dict()))
    metrics = part.learn(resources, chosen(), constant(0.0), 0)
    assert metrics == {"chance": pytest.approx(0.9), "loss": 0.0} and mean_chance(resources) == pytest.approx(
        0.9, abs=1e-12
    )
    part.learn(resources, chosen(), rewarded({True: -1.0, False: 1.0}), 0)
    after = (resources.learner.policy.state_dict(), resources.learner.reference.state_dict())
    assert all(
        torch.equal(first[name], other[name]) for first, other in zip(before, after, strict=True) for name in first
    )
    assert all(parameter.grad is None for parameter in resources.learner.policy.parameters())
    assert resources.learner.companions["gate"].updates == 6 and mean_chance(resources) < 0.9


def test_a_gate_at_1_learns_nothing() -> None:
    part = Selective(share=1.0, passes=5, learning_rate=1.0)
    resources = resources_with(part)
    before = copy.deepcopy(resources.learner.companions["gate"].model.state_dict())
    assert part.learn(resources, chosen(), rewarded({True: -9.0, False: 9.0}), 0) == {"chance": 1.0, "loss": 0.0}
    after = resources.learner.companions["gate"].model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_completions_that_nobody_chose_the_writer_of_are_refused_before_anything_has_learned() -> None:
    with pytest.raises(UserError, match=r"rollouts: \{name: gated\}"):
        Selective()(make_resources(), scored(REWARDS, [3, 2], sequences=GROUPED))


def test_without_a_reference_it_says_that_it_needs_one() -> None:
    part = Selective()
    resources = resources_with(part)
    resources.learner.reference = None
    with pytest.raises(UserError, match="needs a reference"):
        part.learn(resources, chosen(), constant(1.0), 0)


@pytest.mark.parametrize("share", ["0.0", "1.1", "-0.5"])
def test_a_share_that_is_no_chance_above_zero_is_refused(share: str) -> None:
    with pytest.raises(UserError, match="share"):
        load_recipe("recipes/parameter-efficient/stg.yaml", [f"advantage.share={share}"])


def looped(
    folder: Path, source: JointSampling, advantage: KlInReward, lora: bool = False, killed_in: int | None = None
) -> tuple[Learner, Diary]:
    """Run a small training loop, with a gate if the advantage has one. Returns the learner and the diary."""
    learner, diary = new_learner(SCHEDULE, lora), Diary({}, {}, [])
    if (gate := advantage.accompany(learner.policy)) is not None:
        learner.companions = {advantage.companion: gate}
    slots = replace(SLOTS, rollouts=source, advantage=advantage)
    try:
        run_loop(make_resources(learner=learner), slots, SCHEDULE, PROBLEMS, folder, diary.watchers(killed_in))
    except KeyboardInterrupt:
        assert killed_in is not None
    return learner, diary


SMALL = {"prompts": 4, "group_size": 4, "max_tokens": 5}


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("lora", [False, True])
def test_a_run_with_the_gate_at_1_ends_as_group_relative_on_the_policys_own_completions(
    tmp_path: Path, lora: bool
) -> None:
    gated, _ = looped(tmp_path / "gated", Gated(**SMALL), Selective(share=1.0), lora)
    plain, _ = looped(tmp_path / "plain", Mixture(**SMALL, reference_share=0.0), GroupRelative(), lora)
    half, diary = looped(tmp_path / "half", Gated(**SMALL), Selective(share=0.5), lora)
    assert same_weights(gated, plain) and not same_weights(gated, half)
    assert all(0.0 < values["gate/chance"] < 1.0 for values in diary.metrics.values() if "gate/chance" in values)
    assert half.companions["gate"].updates > 0


@pytest.mark.rotating(of=6)
def test_a_killed_run_goes_on_with_the_gate_that_it_had_and_ends_the_same(tmp_path: Path) -> None:
    part, source = Selective(share=0.6, learning_rate=0.02), Gated(**SMALL)
    whole, _ = looped(tmp_path / "whole", source, part)
    looped(tmp_path / "killed", source, part, killed_in=5)
    resumed, diary = looped(tmp_path / "killed", source, part)
    assert sorted(diary.metrics) == [5, 6] and same_weights(whole, resumed)
    gates = [alone.companions["gate"].model.state_dict() for alone in (whole, resumed)]
    assert all(torch.equal(gates[0][name], gates[1][name]) for name in gates[0])
    assert gates[0]["weight"].abs().max() > 0
