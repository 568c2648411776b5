"""Guided distillation: the guided distribution by its definition, its limits, the sum of both losses, and learning."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner.distribution import Distribution
from models.method.learner import Learner
from models.method.policy_outputs import Divergence, read_policy
from models.method.problem import Problem
from models.method.readings import Readings
from models.method.rollout import Rollout, RolloutSource, sequences_of
from models.parts.objective.grpo import Grpo
from models.parts.objective.guided_distillation import GuidedDistillation
from models.parts.rollouts.unprompted import Unprompted
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe
from tests.support.device_here import placed
from tests.support.tiny_batches import make_batch
from tests.support.tiny_models import COMPLETIONS, PROMPTS, tiny_policy
from tests.support.tiny_resources import CODEC

CONTEXT = (3, 9)
ROLLOUTS = [
    Rollout(
        Problem(f"p{group}", "", tokens=tuple(prompt)),
        group,
        tuple(ids),
        None,
        "",
        True,
        source=RolloutSource(privileged=CONTEXT),
    )
    for group, (prompt, ids) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True))
]


def learner_of(temperature: float = 1.0) -> Learner:
    policy, reference = tiny_policy(spread=2.0), tiny_policy(seed=1, spread=2.0)
    return Learner(
        policy,
        torch.optim.SGD(policy.parameters(), lr=0.0),
        reference,
        None,
        None,
        Distribution(temperature=temperature),
    )


def next_logits(model: nn.Module, prompt: tuple[int, ...], completion: tuple[int, ...]) -> Tensor:
    ids = placed(torch.tensor([[*prompt, *completion]]))
    return model(ids).logits[0][len(prompt) - 1 : -1].cpu()  # type: ignore[no-any-return]


def divergence(learner: Learner, guidance: float | None, rollouts: list[Rollout] = ROLLOUTS) -> Tensor:
    settings = Divergence(beta=1.0, judge="reference", guidance=guidance)
    read = read_policy(learner, sequences_of(rollouts), rollouts, Readings(learner, 24), settings)
    assert read.divergence is not None
    return read.divergence


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_target_is_the_guided_distribution_at_every_token(temperature: float) -> None:
    learner, guidance, expected = learner_of(temperature), 1.5, []
    assert learner.reference is not None
    with torch.no_grad():
        for rollout in ROLLOUTS:
            prompted = next_logits(learner.reference, rollout.problem.tokens, rollout.completion)
            other = next_logits(learner.reference, CONTEXT, rollout.completion)
            chances = prompted.softmax(-1) ** (1 + guidance) / other.softmax(-1) ** guidance  # the published form
            target = (chances ** (1 / temperature)).log()
            target = target - target.logsumexp(-1, keepdim=True)
            own = (next_logits(learner.policy, rollout.problem.tokens, rollout.completion) / temperature).log_softmax(
                -1
            )
            expected.append((own.exp() * (own - target)).sum(-1))
        assert torch.allclose(divergence(learner, guidance).cpu(), torch.cat(expected), atol=1e-9)


def test_without_guidance_the_target_is_the_judge_with_the_prompt_of_the_policy() -> None:
    learner = learner_of()
    plain = [replace(rollout, source=RolloutSource()) for rollout in ROLLOUTS]
    assert torch.allclose(divergence(learner, 0.0), divergence(learner, None, plain), atol=1e-12)
    assert not torch.allclose(divergence(learner, 0.0), divergence(learner, None), atol=1e-3)


def test_a_context_that_is_the_prompt_guides_nowhere() -> None:
    learner = learner_of()
    same = [replace(each, source=RolloutSource(privileged=each.problem.tokens)) for each in ROLLOUTS]
    assert torch.allclose(divergence(learner, 3.0, same), divergence(learner, 0.0, same), atol=1e-9)


def test_the_loss_is_the_sum_of_both() -> None:
    old = torch.tensor([-1.0, -0.5, -2.0], dtype=torch.float64)
    batch = make_batch(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), None, old)
    batch = replace(batch, divergence=torch.tensor([0.3, 0.2, 0.1], dtype=torch.float64))
    log_prob = batch.old + torch.tensor([0.1, -0.3, 0.05], dtype=torch.float64)
    reinforced, _ = Grpo(kl=0.0)(log_prob, batch)
    loss, watch = GuidedDistillation(reinforcement=0.5)(log_prob, batch)
    assert batch.divergence is not None and torch.allclose(loss, batch.divergence + 0.5 * reinforced, atol=1e-12)
    alone, _ = GuidedDistillation(reinforcement=0.0)(log_prob, batch)
    assert torch.equal(alone, batch.divergence) and torch.equal(watch["divergence"], batch.divergence)


def test_the_policy_learns_to_write_as_the_guided_judge_does() -> None:
    learner = learner_of()
    learner.policy.load_state_dict(copy.deepcopy(learner.reference.state_dict()))  # type: ignore[union-attr]
    optimiser = torch.optim.Adam(learner.policy.parameters(), lr=1e-3)
    losses = []
    for _ in range(30):
        loss = divergence(learner, 1.0).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 * losses[0]


def test_the_context_is_the_end_token_or_the_text_and_has_room() -> None:
    problem = Problem("p", "1", tokens=(3,))
    assert Unprompted()._ids(CODEC) == (CODEC.end,)
    other = Unprompted(context="1 + 2")
    assert other._ids(CODEC) == tuple(CODEC.prompts(["1 + 2"])[0]) and other.extra_tokens(CODEC, [problem]) == [2]
    assert Unprompted().extra_tokens(CODEC, [problem]) == [0]


def test_a_source_without_a_context_is_refused() -> None:
    with pytest.raises(UserError, match="needs privileged, which rollouts sample does not give"):
        load_recipe(find_recipe("cfg_distillation"), ["rollouts={name: sample, prompts: 64, group_size: 8}"])
