"""Completions of the mixture of policy and reference: sampled tokens, log-probs, opponents, and resumed runs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.engines import shared_decoding
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.objective.ipo import Ipo
from models.parts.rollouts.mixture import Mixture, SampleBesideMixture
from models.parts.select.best_worst import BestWorst
from models.policies.build import LoraSettings, with_adapter
from tests.support.device_here import DEVICE
from tests.support.tiny_loops import SCHEDULE, SLOTS, run, same_weights, save_start
from tests.support.tiny_models import PROMPTS, contents, plain_log_probs, tiny_policy
from tests.support.tiny_resources import make_resources

PROBLEMS = [Problem(f"p{number}", "", "7", 1, tuple(prompt)) for number, prompt in enumerate(PROMPTS)]
END = 1


def resources(
    policy: nn.Module | None = None,
    reference: Any = "another",
    adapter_off: Callable[[], Any] | None = None,
    autocast: torch.dtype | None = None,
) -> RunResources:
    """Make resources with two different models in float64, as the loop gives them to a source."""
    policy = policy or tiny_policy(seed=0, spread=3.0)
    reference = tiny_policy(seed=1, spread=3.0) if reference == "another" else reference
    nothing: Any = None
    learner = Learner(policy, nothing, reference, adapter_off, autocast, MODEL_DISTRIBUTION)
    return make_resources(learner=learner)


def mixed(
    policy: nn.Module,
    reference: nn.Module | None,
    share: float,
    prompt: Sequence[int],
    completion: Sequence[int],
    temperature: float = 1.0,
) -> Tensor:
    """Return the log-probs of a completion's tokens under the mixture by definition, from plain forward passes."""
    assert reference is not None
    ids = torch.tensor([[*prompt, *completion]], device=DEVICE)
    with torch.no_grad():
        both = [
            (model(ids).logits[0, len(prompt) - 1 : -1].double() / temperature).softmax(-1)
            for model in (policy, reference)
        ]
    product = both[0] ** (1 - share) * both[1] ** share
    log_probs: Tensor = (product / product.sum(-1, keepdim=True)).log().cpu()
    return log_probs[torch.arange(len(completion)), torch.tensor(completion)]


def assert_noted(
    rollouts: Sequence[Rollout],
    policy: nn.Module,
    reference: nn.Module | None,
    share: float,
    temperature: float = 1.0,
    tolerance: float = 1e-5,
) -> None:
    for rollout in rollouts:
        exact = mixed(policy, reference, share, rollout.problem.tokens, rollout.completion, temperature)
        assert rollout.behaviour_log_probs is not None
        noted = rollout.behaviour_log_probs.double()
        torch.testing.assert_close(noted, exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_0_is_the_policy_and_of_1_the_reference(share: float) -> None:
    here = resources()
    rollouts = Mixture(group_size=4, max_tokens=8, reference_share=share)(here, PROBLEMS, 0)
    model = here.learner.reference if share else here.learner.policy
    expected = plain_log_probs(model, Sequences([r.problem.tokens for r in rollouts], [r.completion for r in rollouts]))
    for rollout, exact in zip(rollouts, expected, strict=True):
        assert rollout.behaviour_log_probs is not None
        noted = rollout.behaviour_log_probs.double()
        torch.testing.assert_close(noted, exact.detach().cpu(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("share", "temperature"), [(0.125, 1.0), (0.5, 1.0), (0.7, 0.6)])
def test_between_the_ends_the_noted_log_probs_are_those_of_the_normalised_geometric_mixture(
    share: float, temperature: float
) -> None:
    here = resources()
    source = Mixture(group_size=4, max_tokens=8, reference_share=share, temperature=temperature)
    rollouts = source(here, PROBLEMS, 0)
    assert [rollout.group for rollout in rollouts] == [number for number in range(5) for _ in range(4)]
    assert_noted(rollouts, here.learner.policy, here.learner.reference, share, temperature)


def surprise(
    rollouts: Sequence[Rollout], policy: nn.Module, reference: nn.Module | None, share: float, prompt: Sequence[int]
) -> float:
    """Return how far the chi-square statistic of two drawn tokens is above its mean, in standard deviations."""
    pairs = [(first, second) for first in range(24) for second in range(24) if first != END]
    first = mixed(policy, reference, share, prompt, [END])
    chances: dict[tuple[int, ...], float] = {(END,): float(first.exp())}
    for pair in pairs:
        chances[pair] = float(mixed(policy, reference, share, prompt, pair).sum().exp())
    assert sum(chances.values()) == pytest.approx(1.0)
    seen = dict.fromkeys(chances, 0)
    for rollout in rollouts:
        seen[rollout.completion] += 1
    often = [outcome for outcome in chances if chances[outcome] * len(rollouts) >= 5]
    cells = [(seen[outcome], chances[outcome] * len(rollouts)) for outcome in often]
    cells.append((len(rollouts) - sum(cell[0] for cell in cells), len(rollouts) - sum(cell[1] for cell in cells)))
    statistic = sum((count - expected) ** 2 / expected for count, expected in cells)
    return float((statistic - len(often)) / (2 * len(often)) ** 0.5)


@pytest.mark.rotating(of=8)
def test_two_tokens_come_up_as_often_as_the_mixture_says_and_not_as_either_end_does() -> None:
    here = resources()
    policy, reference = here.learner.policy, here.learner.reference
    rollouts = Mixture(group_size=6000, max_tokens=2, reference_share=0.4)(here, PROBLEMS[:1], 0)
    assert surprise(rollouts, policy, reference, 0.4, PROMPTS[0]) < 3.5
    assert surprise(rollouts, policy, reference, 0.0, PROMPTS[0]) > 15
    assert surprise(rollouts, policy, reference, 1.0, PROMPTS[0]) > 15


def test_both_models_go_on_rightly_when_sequences_that_ended_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    narrowed, plain = [], shared_decoding.Decoding.narrow

    def narrow(self: shared_decoding.Decoding, *args: Any) -> None:
        narrowed.append(len(args[0]))
        plain(self, *args)

    monkeypatch.setattr(shared_decoding.Decoding, "narrow", narrow)
    here = resources(tiny_policy(seed=0, spread=1.0), tiny_policy(seed=1, spread=1.0))
    rollouts = Mixture(group_size=6, max_tokens=40, reference_share=0.5)(here, PROBLEMS, 0)
    lengths = [len(rollout.completion) for rollout in rollouts]
    assert len(narrowed) >= 2 and min(lengths) < 8 < 35 < max(lengths)
    assert all(rollout.finished == (rollout.completion[-1] == END) for rollout in rollouts)
    assert_noted(rollouts, here.learner.policy, here.learner.reference, 0.5)


def test_a_round_is_its_completions_and_the_global_generator_is_left_alone() -> None:
    source, here = Mixture(group_size=3, max_tokens=8, reference_share=0.3), resources()
    torch.manual_seed(1)
    first = source(here, PROBLEMS, 4)
    untouched = torch.rand(1)
    torch.manual_seed(2)
    assert contents(source(here, PROBLEMS, 4)) == contents(first) != contents(source(here, PROBLEMS, 5))
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), untouched)
    assert len({rollout.completion for rollout in first[:3]}) > 1


def test_with_an_adapter_the_reference_is_the_policy_without_it_and_dropout_stays_out() -> None:
    base = tiny_policy(torch.float32, spread=3.0)
    policy: Any = with_adapter(
        tiny_policy(torch.float32, spread=3.0), LoraSettings(rank=4, alpha=8, dropout=0.5), seed=0
    )
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    policy.train()
    here = resources(policy, None, policy.disable_adapter)
    rollouts = Mixture(group_size=4, max_tokens=8, reference_share=0.5)(here, PROBLEMS, 0)
    assert policy.training
    policy.eval()
    assert_noted(rollouts, policy, base, 0.5, tolerance=1e-3)
    rollout = max(rollouts, key=lambda rollout: len(rollout.completion))
    alone, together = (mixed(policy, base, share, rollout.problem.tokens, rollout.completion) for share in (0.0, 0.5))
    assert float((alone - together).abs().max()) > 0.05  # the adapter has an effect


def test_under_autocast_the_log_probs_are_the_learners_own() -> None:
    policy = tiny_policy(torch.float32, spread=3.0)
    here = resources(policy, tiny_policy(torch.float32, seed=1, spread=3.0), autocast=torch.bfloat16)
    rollouts = Mixture(group_size=4, max_tokens=6, reference_share=0.0)(here, PROBLEMS, 0)
    sequences = Sequences([r.problem.tokens for r in rollouts], [r.completion for r in rollouts])
    learner = completion_log_probs(policy, sequences, autocast=torch.bfloat16)[0].detach().cpu()
    noted = torch.cat([cast(Tensor, rollout.behaviour_log_probs) for rollout in rollouts])
    exact = completion_log_probs(policy, sequences)[0].detach().cpu()
    assert float((noted - learner).abs().mean()) < 0.05
    assert float((noted - exact).abs().max()) > 1e-3  # they differ from those in float32


def test_opponents_stand_behind_the_policys_own_completions_and_are_not_trained_on() -> None:
    here = resources()
    source = SampleBesideMixture(group_size=3, opponents=2, max_tokens=6, reference_share=0.6)
    rollouts = source(here, PROBLEMS, 0)
    assert len(rollouts) == 25
    for number in range(5):
        group = rollouts[5 * number : 5 * number + 5]
        assert {rollout.group for rollout in group} == {number} and {rollout.problem.id for rollout in group} == {
            f"p{number}"
        }
        assert [rollout.trained_tokens > 0 for rollout in group] == [True] * 3 + [False] * 2
        assert [rollout.source.origin for rollout in group] == ["policy"] * 3 + ["reference"] * 2
        assert_noted(group[:3], here.learner.policy, here.learner.reference, 0.0)
        assert_noted(group[3:], here.learner.policy, here.learner.reference, 0.6)


def test_opponents_do_not_repeat_the_policys_draws_where_both_are_the_policy() -> None:
    source = SampleBesideMixture(group_size=3, opponents=3, max_tokens=8, reference_share=0.0)
    first = source(resources(), PROBLEMS, 0)[:6]
    assert [rollout.completion for rollout in first[:3]] != [rollout.completion for rollout in first[3:]]


def test_without_a_reference_only_the_policy_alone_can_be_drawn_from() -> None:
    here = resources(reference=None)
    with pytest.raises(UserError, match="the reference has a voice, but"):
        Mixture(max_tokens=3, reference_share=0.5)(here, PROBLEMS, 0)
    assert len(Mixture(group_size=2, max_tokens=3, reference_share=0.0)(here, PROBLEMS, 0)) == 10


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("lora", [False, True])
def test_a_killed_run_ends_with_the_weights_of_one_never_interrupted(lora: bool, tmp_path: Path) -> None:
    start = save_start(tmp_path / "start")
    source = Mixture(prompts=4, group_size=4, max_tokens=5, reference_share=0.25)
    slots = replace(SLOTS, rollouts=source, select=[BestWorst()], objective=Ipo())
    schedule = replace(SCHEDULE, rounds=4, epochs=1, minibatches=1)
    whole, diary = run(start, tmp_path / "whole", schedule=schedule, slots=slots, lora=lora)
    assert len(diary.metrics) == 4
    run(start, tmp_path / "killed", schedule=schedule, slots=slots, lora=lora, killed_in=3)
    resumed, _ = run(start, tmp_path / "killed", schedule=schedule, slots=slots, lora=lora)
    assert same_weights(whole, resumed)
