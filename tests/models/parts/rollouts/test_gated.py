"""Completions that policy and reference write together: a gate chooses the writer of each token."""

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.engines.decoding_loop import complete
from models.engines.engine import Sampling, requests_of
from models.engines.voice import Voice
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.packing import Sequences
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.schedule import ScheduleSettings
from models.method.scored import Scored
from models.parts.advantage.group_relative import GroupRelative
from models.parts.advantage.selective import Selective
from models.parts.objective.grpo import Grpo
from models.parts.rollouts.gated import Gated
from models.parts.rollouts.mixture import Mixture
from models.policies.build import LoraSettings, with_adapter
from tests.support.device_here import DEVICE
from tests.support.tiny_models import PROMPTS, contents, plain_log_probs, tiny_policy
from tests.support.tiny_resources import make_resources

pytestmark = pytest.mark.rotating(of=6)

PROBLEMS = [Problem(f"p{number}", "", "7", 1, tuple(prompt)) for number, prompt in enumerate(PROMPTS)]
END = 1
POLICY_ALONE, REFERENCE_ALONE = 40.0, -1000.0  # log-odds of the gate


def policy() -> Any:
    return tiny_policy(seed=0, spread=3.0)


def other() -> Any:
    return tiny_policy(seed=1, spread=3.0)


def resources(odds: float | None = None, reference: Any = "other", learned: nn.Module | None = None) -> RunResources:
    """Make resources with two different models in float64, and a gate.

    The gate has log-odds `odds` everywhere. Without `odds`, it depends on the state.
    """
    reference = other() if reference == "other" else reference
    gate = Selective().accompany(policy())
    head: Any = gate.model
    with torch.no_grad():
        if odds is None:
            head.weight.copy_(0.2 * torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(5)))
            head.bias.zero_()
        else:
            head.bias.fill_(odds)
    learned = learned or policy()
    optimiser = torch.optim.SGD(learned.parameters())
    learner = Learner(learned, optimiser, reference, None, None, MODEL_DISTRIBUTION, companions={"gate": gate})
    return make_resources(learner=learner)


def chances(model: Any, head: Any, prompt: Sequence[int], completion: Sequence[int]) -> Tensor:
    """Return the gate's probability at each token by definition, from a plain forward pass, [tokens]."""
    with torch.no_grad():
        states = model.base_model(torch.tensor([[*prompt, *completion]], device=DEVICE)).last_hidden_state[
            0, len(prompt) - 1 : -1
        ]
        odds = states @ head.weight[0] + head.bias[0]
    share: Tensor = 1 / (1 + (-odds).exp())
    return share


def written(rollouts: Sequence[Rollout]) -> Any:
    return contents(
        [(rollout.completion, rollout.behaviour_log_probs, rollout.text, rollout.finished) for rollout in rollouts]
    )


def writers(rollout: Rollout) -> tuple[bool, ...]:
    assert rollout.trained is not None
    return rollout.trained


def sequences_of(rollouts: Sequence[Rollout]) -> Sequences:
    return Sequences([rollout.problem.tokens for rollout in rollouts], [rollout.completion for rollout in rollouts])


def test_where_the_gate_is_1_the_completions_are_the_policys_own_to_the_last_digit_and_all_of_them_is_trained_on() -> (
    None
):
    rollouts = Gated(group_size=12, max_tokens=30)(resources(POLICY_ALONE), PROBLEMS, 3)
    plain = Mixture(group_size=12, max_tokens=30, reference_share=0.0)(resources(), PROBLEMS, 3)
    assert written(rollouts) == written(plain)
    assert all(rollout.trained == (True,) * len(rollout.completion) for rollout in rollouts)
    assert {rollout.finished for rollout in rollouts} == {True, False}


def test_where_the_gate_is_0_the_completions_are_the_references_own_and_nothing_is_trained_on() -> None:
    rollouts = Gated(group_size=12, max_tokens=30)(resources(REFERENCE_ALONE), PROBLEMS, 3)
    plain = Mixture(group_size=12, max_tokens=30, reference_share=1.0)(resources(), PROBLEMS, 3)
    assert written(rollouts) == written(plain)
    assert all(rollout.trained == (False,) * len(rollout.completion) for rollout in rollouts)
    rewards = torch.randn(len(rollouts), generator=torch.Generator().manual_seed(0))
    assert not Scored(rollouts, rewards, {}, {}).trained.numel()


def test_where_the_gate_is_1_a_round_moves_the_policy_as_plain_rollouts_do() -> None:
    settings = ScheduleSettings(rounds=2, epochs=2, minibatches=2)
    ends = []
    for source, advantage in [
        (Gated(group_size=4, max_tokens=6), Selective(share=1.0)),
        (Mixture(group_size=4, max_tokens=6, reference_share=0.0), GroupRelative()),
    ]:
        here = resources(POLICY_ALONE)
        rollouts = source(here, PROBLEMS, 0)
        scored = Scored(rollouts, torch.tensor([sum(rollout.completion) / 9.0 for rollout in rollouts]), {}, {})
        signal = advantage(here, scored)
        fit_round(here.learner, Grpo(kl=0.0), scored, signal.tokens, settings, 6)
        ends.append(here.learner.policy.state_dict())
    before = policy().state_dict()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in before)
    assert any(not torch.equal(ends[0][name], before[name]) for name in before)


def test_only_the_tokens_that_the_policy_wrote_move_it() -> None:
    settings, moved = ScheduleSettings(rounds=2), []
    for change in (False, True):
        here = resources()
        rollouts = Gated(group_size=4, max_tokens=6)(here, PROBLEMS, 0)
        assert any(not rollout.trained_tokens for rollout in rollouts) and any(
            sum(writers(rollout)) > 0 for rollout in rollouts
        )
        scored = Scored(rollouts, torch.tensor([sum(rollout.completion) / 9.0 for rollout in rollouts]), {}, {})
        signal = Selective()(here, scored)
        own = [torch.tensor(rollout.trained) for rollout in rollouts]
        tokens = [torch.where(mine, row, 99.0) if change else row for mine, row in zip(own, signal.tokens, strict=True)]
        kept = scored.trained
        fit_round(here.learner, Grpo(kl=0.0), scored.take(kept), [tokens[i] for i in kept.tolist()], settings, 6)
        moved.append(here.learner.policy.state_dict())
    assert all(torch.equal(moved[0][name], moved[1][name]) for name in moved[0])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_noted_log_probs_are_those_of_the_model_that_wrote_the_token(temperature: float) -> None:
    here = resources()
    rollouts = Gated(group_size=12, max_tokens=30, temperature=temperature)(here, PROBLEMS, 0)
    sequences = sequences_of(rollouts)
    by_policy = plain_log_probs(policy(), sequences, temperature)
    by_reference = plain_log_probs(other(), sequences, temperature)
    for rollout, mine, theirs in zip(rollouts, by_policy, by_reference, strict=True):
        assert rollout.trained is not None
        assert rollout.behaviour_log_probs is not None
        assert len(rollout.trained) == len(rollout.completion) == len(rollout.behaviour_log_probs)
        noted = rollout.behaviour_log_probs.double()
        expected = torch.where(torch.tensor(rollout.trained), mine.cpu(), theirs.cpu()).detach()
        torch.testing.assert_close(noted, expected, rtol=0, atol=1e-5)
        assert END not in rollout.completion[:-1] and rollout.finished == (rollout.completion[-1] == END)
    lengths = Counter(len(rollout.completion) for rollout in rollouts)
    assert len(lengths) > 8 and max(lengths) == 30  # rows ended early, so the batch became smaller on the way
    assert {flag for rollout in rollouts for flag in writers(rollout)} == {True, False}


def test_who_writes_the_first_token_and_what_comes_up_as_often_as_gate_and_writer_say() -> None:
    here, count = resources(), 5000
    head = here.learner.companions["gate"].model
    rollouts = Gated(group_size=count, max_tokens=1)(here, PROBLEMS[:1], 0)
    gate = float(chances(other(), head, PROMPTS[0], [2])[0])
    assert 0.05 < gate < 0.95
    drawn = Counter((writers(rollout)[0], rollout.completion[0]) for rollout in rollouts)
    with torch.no_grad():
        mine, theirs = (
            m(torch.tensor([PROMPTS[0]], device=DEVICE)).logits[0, -1].softmax(-1) for m in (policy(), other())
        )
    for wrote, share, model in [(True, gate, mine), (False, 1 - gate, theirs)]:
        times = sum(number for (first, _), number in drawn.items() if first is wrote)
        assert abs(times / count - share) < 4 * (gate * (1 - gate) / count) ** 0.5
        for token in range(len(model)):
            chance = share * float(model[token])
            assert abs(drawn[wrote, token] / count - chance) < 4 * (chance * (1 - chance) / count) ** 0.5 + 1.5 / count


def test_at_later_tokens_too_the_policy_writes_as_often_as_the_gate_says() -> None:
    here = resources()
    head = here.learner.companions["gate"].model
    rollouts = Gated(group_size=60, max_tokens=12)(here, PROBLEMS, 0)
    gate = torch.cat([chances(other(), head, rollout.problem.tokens, rollout.completion) for rollout in rollouts]).cpu()
    wrote = torch.tensor([flag for rollout in rollouts for flag in writers(rollout)])
    assert float(gate.std()) > 0.2  # the gate depends on the state
    for some in (gate < 0.3, (gate >= 0.3) & (gate < 0.7), gate >= 0.7):
        spread = float((gate * (1 - gate))[some].sum()) ** 0.5
        assert int(some.sum()) > 100 and abs(float((wrote.double() - gate)[some].sum())) < 4 * spread


def test_who_writes_does_not_hang_together_with_what_is_drawn() -> None:
    here = resources(0.0, reference=policy())  # the same model twice, so the writer does not affect the token
    rollouts = Gated(group_size=4000, max_tokens=1)(here, PROBLEMS[:1], 0)
    tokens = torch.tensor([rollout.completion[0] for rollout in rollouts], dtype=torch.float64)
    wrote = torch.tensor([writers(rollout)[0] for rollout in rollouts], dtype=torch.float64)
    both = torch.stack([tokens, wrote])
    assert abs(float(torch.corrcoef(both)[0, 1])) < 4 / 4000**0.5


def test_beside_an_adapter_the_reference_that_is_asked_and_writes_is_the_policy_without_it() -> None:
    adapted: Any = with_adapter(policy(), LoraSettings(rank=4), seed=0)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))))
    here = resources(learned=adapted, reference=None)
    here.learner.adapter_off = adapted.disable_adapter
    rollouts = Gated(group_size=30, max_tokens=8)(here, PROBLEMS, 0)
    sequences = sequences_of(rollouts)
    by_adapter, by_base = plain_log_probs(adapted, sequences), plain_log_probs(policy(), sequences)
    apart = 0.0
    for rollout, mine, theirs in zip(rollouts, by_adapter, by_base, strict=True):
        assert rollout.behaviour_log_probs is not None
        noted = rollout.behaviour_log_probs.double()
        torch.testing.assert_close(
            noted, torch.where(torch.tensor(rollout.trained), mine.cpu(), theirs.cpu()).detach(), rtol=0, atol=1e-5
        )
        apart = max(apart, float((mine - theirs).abs().max().detach()))
    assert apart > 0.5
    head = here.learner.companions["gate"].model
    gate = torch.cat(
        [chances(policy(), head, rollout.problem.tokens, rollout.completion) for rollout in rollouts]
    ).cpu()
    wrote = torch.tensor([flag for rollout in rollouts for flag in writers(rollout)]).double()
    assert abs(float((wrote - gate).sum())) < 4 * float((gate * (1 - gate)).sum()) ** 0.5


def test_the_seed_and_the_round_decide_completions_and_writers_and_the_global_generator_is_left_alone() -> None:
    source, here = Gated(group_size=3, max_tokens=8), resources()
    torch.manual_seed(1)
    first = source(here, PROBLEMS, 4)
    untouched = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(untouched, torch.rand(1))
    assert contents(source(here, PROBLEMS, 4)) == contents(first)
    assert [rollout.trained for rollout in source(here, PROBLEMS, 5)] != [rollout.trained for rollout in first]
    assert contents(source(replace(here, seed=8), PROBLEMS, 4)) != contents(first)


def test_completions_stand_with_their_problems_and_both_models_stay_in_the_mode_that_they_were_in() -> None:
    here = resources()
    here.learner.policy.train()
    before = copy.deepcopy(here.learner.policy.state_dict())
    rollouts = Gated(group_size=3, max_tokens=4)(here, PROBLEMS, 0)
    assert [rollout.group for rollout in rollouts] == [number for number in range(5) for _ in range(3)]
    assert all(rollout.problem is PROBLEMS[rollout.group] for rollout in rollouts)
    assert here.learner.reference is not None
    assert here.learner.policy.training and not here.learner.reference.training
    assert all(torch.equal(value, before[name]) for name, value in here.learner.policy.state_dict().items())


def test_without_a_gate_the_recipe_is_told_where_one_comes_from() -> None:
    here = resources()
    here.learner.companions.clear()
    with pytest.raises(UserError, match=r"advantage: \{name: selective\}"):
        Gated(group_size=2, max_tokens=2)(here, PROBLEMS, 0)


def test_without_a_reference_the_recipe_is_refused() -> None:
    with pytest.raises(UserError, match="the reference has a voice, but"):
        Gated(group_size=2, max_tokens=2)(resources(reference=None), PROBLEMS, 0)


def test_a_switch_has_two_voices_that_have_a_say_to_choose_from() -> None:
    voice = Voice(policy)
    for voices in ([voice], [voice] * 3, [voice, replace(voice, veto_top_p=0.9)]):
        with pytest.raises(ValueError, match="two voices"):
            requests = requests_of(PROMPTS, Sampling(max_tokens=2), 0)
            complete(voices, requests, Sampling(), end=END, most=4, switch=lambda states, points: states[:, 0] > 0)
