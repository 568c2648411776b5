"""Completions within a lagged policy's mask: sampled tokens, log-probs, and gradients of the masked policy."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.engines.engine import EngineSettings, Sampling
from models.engines.open_engine import open_engine
from models.engines.transformers_engine import TransformersEngine
from models.learner.all_completions import all_log_probs
from models.learner.distribution import MODEL_DISTRIBUTION, Distribution
from models.learner.fused_log_probs import Head, fused_log_probs
from models.learner.mask import Lagged
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.readings import Readings
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.advantage.gae import Gae
from models.parts.objective.grpo import Grpo
from models.parts.reference.reset import PreviousRound
from models.parts.rollouts.masked import Masked
from models.parts.rollouts.mixture import Mixture
from models.parts.rollouts.sample import Sample
from models.parts.select.everything import Everything
from models.policies.folder import save_model_folder
from models.policies.use import read_use
from models.reward_models.critic.settings import CriticSettings
from models.training.loop import run_loop
from models.training.watchers import Watchers
from tests.support.device_here import DEVICE
from tests.support.tiny_loops import PROBLEMS as ASKED
from tests.support.tiny_loops import SCHEDULE, SLOTS, new_learner, run, same_weights, save_start
from tests.support.tiny_models import PROMPTS, contents, plain_log_probs, tiny_policy, word_tokenizer
from tests.support.tiny_resources import make_resources

pytestmark = pytest.mark.rotating(of=6)

PROBLEMS = [Problem(f"p{number}", "", "7", 1, tuple(prompt)) for number, prompt in enumerate(PROMPTS)]
END = 1


def resources(lagged: Any = "another", autocast: Any = None) -> RunResources:
    """Make resources with two different models in float64, as the loop gives them to a source."""
    lagged = tiny_policy(seed=1, spread=3.0) if lagged == "another" else lagged
    learner = Learner(tiny_policy(seed=0, spread=3.0), cast(Any, None), lagged, None, autocast, MODEL_DISTRIBUTION)
    return make_resources(learner=learner)


def masks(model: nn.Module | None, prompt: Sequence[int], completion: Sequence[int], top_p: float) -> list[set[int]]:
    """Return the tokens that are allowed at each position, [tokens].

    By definition, a token is allowed if the tokens ranked before it have a total probability below `top_p`.
    """
    assert model is not None
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *completion]], device=DEVICE)).logits[0, len(prompt) - 1 : -1]
    allowed = []
    for row in logits.double().softmax(-1):
        order = row.argsort(descending=True).tolist()
        mass, kept = 0.0, set()
        for token in order:
            if mass >= top_p:
                break
            kept.add(token)
            mass += float(row[token])
        allowed.append(kept)
    return allowed


def exact(
    policy: nn.Module, lagged: nn.Module | None, prompt: Sequence[int], completion: Sequence[int], top_p: float
) -> Tensor:
    """Return the log-probs of a completion's tokens under the masked policy, by definition, [tokens]."""
    with torch.no_grad():
        logits = policy(torch.tensor([[*prompt, *completion]], device=DEVICE)).logits[0, len(prompt) - 1 : -1]
    rows = zip(logits.double().softmax(-1), masks(lagged, prompt, completion, top_p), completion, strict=True)
    return torch.stack([(row[token] / row[sorted(kept)].sum()).log() for row, kept, token in rows])


@pytest.mark.parametrize("top_p", [0.5, 0.9])
def test_no_token_outside_the_lagged_policys_mask_is_ever_drawn(top_p: float) -> None:
    here = resources()
    rollouts = Masked(group_size=40, max_tokens=6, mask_top_p=top_p)(here, PROBLEMS, 0)
    free = Masked(group_size=40, max_tokens=6, mask_top_p=1.0)(here, PROBLEMS, 0)

    def outside(drawn: Sequence[Rollout]) -> int:
        return sum(
            token not in kept
            for rollout in drawn
            for kept, token in zip(
                masks(here.learner.reference, rollout.problem.tokens, rollout.completion, top_p),
                rollout.completion,
                strict=True,
            )
        )

    assert outside(rollouts) == 0 and outside(free) > 50


def test_the_noted_log_probs_are_those_of_the_policy_normalised_within_the_mask() -> None:
    here = resources()
    for rollout in Masked(group_size=4, max_tokens=8, mask_top_p=0.8)(here, PROBLEMS, 0):
        expected = exact(here.learner.policy, here.learner.reference, rollout.problem.tokens, rollout.completion, 0.8)
        assert rollout.behaviour_log_probs is not None
        noted = rollout.behaviour_log_probs.double()
        torch.testing.assert_close(noted, expected.cpu(), rtol=0, atol=1e-5)


def test_tokens_come_up_as_often_as_the_masked_policy_says() -> None:
    here = resources()
    drawn = Counter(rollout.completion for rollout in Masked(group_size=5000, max_tokens=1)(here, PROBLEMS[:1], 0))
    chances = {
        (token,): float(exact(here.learner.policy, here.learner.reference, PROMPTS[0], [token], 0.9).exp())
        for token in masks(here.learner.reference, PROMPTS[0], [2], 0.9)[0]
    }
    assert sum(chances.values()) == pytest.approx(1.0) and len(chances) > 2
    assert sum(drawn[token] for token in chances) == 5000
    for token, chance in chances.items():
        assert abs(drawn[token] / 5000 - chance) < 4 * (chance * (1 - chance) / 5000) ** 0.5 + 1e-12


def test_a_mask_of_1_is_sampling_from_the_policy_whatever_the_lagged_one_is() -> None:
    source = Masked(group_size=4, max_tokens=8, mask_top_p=1.0)
    first, other = source(resources(), PROBLEMS, 0), source(resources(tiny_policy(seed=2)), PROBLEMS, 0)
    assert [r.completion for r in first] == [r.completion for r in other]
    sequences = Sequences([r.problem.tokens for r in first], [r.completion for r in first])
    for rollout, expected in zip(first, plain_log_probs(tiny_policy(seed=0, spread=3.0), sequences), strict=True):
        assert rollout.behaviour_log_probs is not None
        noted = rollout.behaviour_log_probs.double()
        torch.testing.assert_close(noted, expected.detach().cpu(), rtol=0, atol=1e-5)


def test_where_the_lagged_policy_is_the_policy_it_is_ordinary_nucleus_sampling() -> None:
    here = resources(tiny_policy(seed=0, spread=3.0))
    rollouts = Masked(group_size=4, max_tokens=8, temperature=0.7, mask_top_p=0.8)(here, PROBLEMS, 0)
    sequences = Sequences([r.problem.tokens for r in rollouts], [r.completion for r in rollouts])
    nucleus = Distribution(temperature=0.7, top_p=0.8)
    for rollout, expected in zip(
        rollouts, all_log_probs(here.learner.policy, sequences, distribution=nucleus), strict=True
    ):
        assert rollout.behaviour_log_probs is not None
        noted = rollout.behaviour_log_probs.double()
        torch.testing.assert_close(noted, expected.cpu(), rtol=0, atol=1e-5)


def test_a_completion_ends_with_its_first_end_token_or_at_its_longest() -> None:
    here = resources(tiny_policy(seed=0, spread=1.0))
    here = replace(here, learner=replace(here.learner, policy=tiny_policy(seed=1, spread=1.0)))
    rollouts = Masked(group_size=20, max_tokens=12, mask_top_p=1.0)(here, PROBLEMS, 0)
    for rollout in rollouts:
        assert END not in rollout.completion[:-1] and rollout.finished == (rollout.completion[-1] == END)
        assert rollout.finished or len(rollout.completion) == 12
        assert rollout.behaviour_log_probs is not None
        assert len(rollout.behaviour_log_probs) == len(rollout.completion)
    assert {rollout.finished for rollout in rollouts} == {True, False}
    assert [rollout.group for rollout in rollouts] == [number for number in range(5) for _ in range(20)]
    assert all(rollout.problem is PROBLEMS[rollout.group] for rollout in rollouts)


def test_the_seed_and_the_round_decide_the_completions_and_the_global_generator_is_left_alone() -> None:
    source, here = Masked(group_size=3, max_tokens=8), resources()
    torch.manual_seed(1)
    first = source(here, PROBLEMS, 4)
    untouched = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(untouched, torch.rand(1))
    assert contents(source(here, PROBLEMS, 4)) == contents(first) != contents(source(here, PROBLEMS, 5))


def test_without_a_reference_there_is_no_mask_and_the_recipe_is_refused() -> None:
    with pytest.raises(UserError, match="the reference has a voice, but"):
        Masked(group_size=2, max_tokens=2)(resources(lagged=None), PROBLEMS, 0)


def test_both_models_are_left_in_the_mode_that_they_were_in() -> None:
    here = resources()
    here.learner.policy.train()
    Masked(group_size=2, max_tokens=2)(here, PROBLEMS, 0)
    assert here.learner.reference is not None
    assert here.learner.policy.training and not here.learner.reference.training


def test_a_killed_run_goes_on_with_the_lagged_policy_that_it_had_and_ends_the_same(tmp_path: Path) -> None:
    start = save_start(tmp_path / "start")
    source = Masked(prompts=4, group_size=4, max_tokens=5, mask_top_p=0.7)
    slots = replace(SLOTS, rollouts=source, reference=PreviousRound(every=3))  # renewed before and after the kill
    whole, _ = run(start, tmp_path / "whole", slots=slots)
    run(start, tmp_path / "killed", slots=slots, killed_in=5)
    resumed, diary = run(start, tmp_path / "killed", slots=slots)
    assert sorted(diary.metrics) == [5, 6] and same_weights(whole, resumed)
    unmasked, _ = run(start, tmp_path / "free", slots=replace(slots, rollouts=replace(source, mask_top_p=1.0)))
    assert not same_weights(whole, unmasked)


def masked_learner(policy: nn.Module, lagged: nn.Module, top_p: float = 0.8) -> RunResources:
    learner = Learner(policy, cast(Any, None), lagged, None, None, MODEL_DISTRIBUTION, mask_top_p=top_p)
    return make_resources(learner=learner)


def test_the_learners_log_probs_are_those_that_the_sampler_noted() -> None:
    """The importance weight and the first ratio are therefore one: neither contains a token outside the mask."""
    here = masked_learner(tiny_policy(seed=0, spread=3.0), tiny_policy(seed=1, spread=3.0))
    rollouts = Masked(group_size=6, max_tokens=8, mask_top_p=0.8)(here, PROBLEMS, 0)
    for budget in (64, 4096):  # for any cut of the rows
        for rollout, old in zip(rollouts, Readings(here.learner, budget).policy(rollouts), strict=True):
            assert rollout.behaviour_log_probs is not None
            noted = rollout.behaviour_log_probs.double()
            torch.testing.assert_close(old.cpu(), noted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("size", [None, 7])
def test_log_probs_entropies_and_gradients_of_the_masked_policy_are_those_of_its_definition(
    temperature: float, size: int | None
) -> None:
    """The expected values come from autograd, with a softmax over the tokens within the mask, in float64."""
    generator = torch.Generator().manual_seed(3)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    hidden, weight, bias = numbers(30, 6), numbers(40, 6), numbers(40)
    states, head, other = numbers(30, 5), Head(numbers(40, 5)), numbers(30)
    targets = torch.randint(40, (30,), generator=generator)  # some are outside the mask, as rounding can cause
    drawn = Distribution(temperature=temperature)
    mask = Lagged(states, head, replace(drawn, top_p=0.6))
    gradients = []
    for by_definition in (True, False):
        leaves = [rollout.clone().requires_grad_() for rollout in (hidden, weight, bias)]
        if by_definition:
            z = (leaves[0] @ leaves[1].T + leaves[2]) / temperature
            outside = torch.zeros(30, 40, dtype=torch.bool)
            lagged = (states @ head.weight.T / temperature).softmax(-1)
            for row, chances in enumerate(lagged):
                mass = 0.0
                for token in chances.argsort(descending=True).tolist():
                    outside[row, token] = mass >= 0.6 and token != int(targets[row])
                    mass += float(chances[token])
            log_p = z.masked_fill(outside, -torch.inf).log_softmax(-1)
            log_prob = log_p.gather(1, targets[:, None]).squeeze(1)
            entropy = -torch.where(outside, 0.0, log_p.exp() * log_p.masked_fill(outside, 0.0)).sum(-1)
        else:
            log_prob, entropy = fused_log_probs(
                leaves[0], Head(leaves[1], leaves[2]), targets, drawn, block_elements=size, mask=mask
            )
        (log_prob * other + entropy * other.flip(0)).sum().backward()
        gradients.append([log_prob.detach(), entropy.detach(), *(leaf.grad for leaf in leaves)])
    for gradient, wanted in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-10)


def test_a_step_on_the_masked_policy_leaves_the_logits_outside_the_mask_alone() -> None:
    """With a ratio of unmasked policies, every step on a drawn token moves probability into or out of the mask."""
    z = torch.randn(1, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    lagged = torch.randn(1, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    rollout = torch.eye(20, dtype=torch.float64)
    mask = Lagged(lagged, Head(rollout), Distribution(top_p=0.5))
    token = lagged.argmax(-1)
    fused_log_probs(z, Head(rollout), token, mask=mask)[0].sum().backward()
    outside = mask.outside(slice(0, 1))
    assert 5 < int(outside.sum()) < 20
    assert z.grad is not None
    assert torch.all(z.grad[outside] == 0) and torch.all(z.grad[~outside] != 0)
    whole = torch.autograd.grad(fused_log_probs(z, Head(rollout), token)[0].sum(), z)[0]
    assert torch.all(whole[outside] != 0)


def test_a_policy_is_used_within_the_mask_that_it_learned_in(tmp_path: Path) -> None:
    policy, lagged = (tiny_policy(torch.float32, seed=seed, spread=3.0) for seed in (0, 1))
    here = masked_learner(policy, lagged)
    source = Masked(group_size=40, max_tokens=6, mask_top_p=0.8)

    def beside(folder: Path) -> None:
        source.export(here.learner, here.codec, tmp_path / "none", folder)

    save_model_folder(policy, word_tokenizer(), tmp_path / "policy", beside)
    engine = open_engine(
        tmp_path / "policy", EngineSettings(name="transformers", precision="float32"), longest=64, end=END, seed=0
    )
    drawn = engine.generate(PROMPTS, Sampling(max_tokens=6, samples=40), seed=3)
    for prompt, group in zip(PROMPTS, drawn, strict=True):
        for made in group:
            expected = exact(policy, lagged, prompt, made.tokens, 0.8)
            assert all(
                token in kept for kept, token in zip(masks(lagged, prompt, made.tokens, 0.8), made.tokens, strict=True)
            )
            assert made.log_probs is not None
            noted = made.log_probs.double()
            torch.testing.assert_close(noted, expected.cpu(), rtol=0, atol=1e-4)
    engine.close()
    Masked(mask_top_p=1.0).export(here.learner, here.codec, tmp_path / "none", tmp_path / "start")
    assert not (tmp_path / "start").exists()  # a mask of 1 needs no further file


def test_a_mask_that_is_no_probability_is_refused_where_the_policy_is_read(tmp_path: Path) -> None:
    (tmp_path / "use.json").write_text('{"mask_top_p": 1.5}')
    with pytest.raises(UserError, match=r"use\.json.*mask_top_p is 1\.5"):
        read_use(tmp_path)


def test_with_a_mask_of_1_nlpo_is_ppo_policy_and_critic_to_the_bit(tmp_path: Path) -> None:
    """Two rounds of the loop with a critic are equal for three sources.

    The sources are a mask of a lagged policy that allows all tokens, a mixture without the reference, and the
    engine.
    """
    start = save_start(tmp_path / "start")
    critic = CriticSettings(epochs=2, minibatches=2, optimiser=OptimiserSettings(learning_rate=1e-3, warmup_steps=1))
    gae, schedule = Gae(critic=critic, kl_in_reward=0.02), replace(SCHEDULE, rounds=2)
    ends = []
    for name, source in [
        ("masked", Masked(prompts=4, group_size=4, max_tokens=5, mask_top_p=1.0)),
        ("mixture", Mixture(prompts=4, group_size=4, max_tokens=5, reference_share=0.0)),
        ("sample", Sample(prompts=4, group_size=4, max_tokens=5)),
    ]:
        learner = new_learner(schedule)
        torch.manual_seed(0)
        learner.companions["critic"] = gae.accompany(learner.policy)
        slots = replace(SLOTS, rollouts=source, select=[Everything()], advantage=gae, objective=Grpo(kl=0.0))
        engine = TransformersEngine(start, EngineSettings(precision="float32"), end=END) if source.draws else None
        run_loop(make_resources(engine, learner=learner), slots, schedule, ASKED, tmp_path / name, Watchers())
        ends.append({**learner.policy.state_dict(), **{f"critic.{n}": v for n, v in critic_state(learner).items()}})
    begun = {**new_learner(schedule).policy.state_dict()}
    masked, mixture, sampled = ends
    assert all(torch.equal(masked[name], value) for name, value in mixture.items())
    assert all(torch.equal(masked[name], value) for name, value in sampled.items())
    assert any(not torch.equal(masked[name], value) for name, value in begun.items())


def critic_state(learner: Learner) -> dict[str, Tensor]:
    return learner.companions["critic"].model.state_dict()
