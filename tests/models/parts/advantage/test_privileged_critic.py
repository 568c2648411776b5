"""A critic with a context that the policy does not read: its input, its fit, and the same gradient of the policy."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.all_completions import all_log_probs
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.method.rollout import RolloutSource
from models.method.scored import Scored
from models.parts.advantage.gae import Gae, generalised_advantages
from models.recipes.load import load_recipe
from models.reward_models.critic.fit import seen_by
from models.reward_models.critic.model import Critic, read_values
from models.reward_models.critic.settings import CriticSettings
from tests.support.tiny_models import SEQUENCES, scored, tiny_policy
from tests.support.tiny_resources import make_resources

RISING = OptimiserSettings(learning_rate=1e-3, warmup_steps=1)
CONTEXTS = [(3, 4, 5, 20), (6, 21), (7, 8, 22), (9, 9, 23), (13, 20)]


def given() -> Scored:
    """Return five completions, each with a context of its own."""
    made = scored(torch.tensor([1.0, 0.0, 2.0, 5.0, 3.0], dtype=torch.float64), [1] * 5, sequences=SEQUENCES)
    rollouts = [
        replace(rollout, source=RolloutSource(privileged=context))
        for rollout, context in zip(made.rollouts, CONTEXTS, strict=True)
    ]
    return replace(made, rollouts=rollouts)


def learner_of(gae: Gae) -> tuple[Learner, Critic]:
    policy = tiny_policy()
    torch.manual_seed(3)
    companion = gae.accompany(policy)
    assert companion is not None and isinstance(companion.model, Critic)
    torch.nn.init.normal_(companion.model.head.weight, std=0.1)
    optimiser = build_optimiser(policy, RISING)
    learner = Learner(policy, optimiser, None, None, None, MODEL_DISTRIBUTION, companions={"critic": companion})
    return learner, companion.model


def privileged(epochs: int = 1) -> Gae:
    return Gae(gae_lambda=0.9, whiten=False, critic=CriticSettings(sees="privileged", epochs=epochs, optimiser=RISING))


def test_the_values_are_read_after_the_context_and_the_advantages_follow_from_them() -> None:
    gae = privileged()
    learner, critic = learner_of(gae)
    signal = gae(make_resources(learner=learner), given())
    values = read_values(critic, Sequences(CONTEXTS, SEQUENCES.completions))
    ends = [torch.zeros(len(ids), dtype=torch.float64) for ids in SEQUENCES.completions]
    for row, reward in zip(ends, given().rewards, strict=True):
        row[-1] = reward
    torch.testing.assert_close(signal.tokens, generalised_advantages(ends, values, 1.0, 0.9))
    plain = replace(gae, critic=replace(gae.critic, sees="prompt"))
    bare = read_values(critic, SEQUENCES)
    other = learner_of(plain)[0]
    torch.testing.assert_close(plain(make_resources(learner=other), given()).values, bare)
    assert any(float((mine - its).abs().max()) > 1e-3 for mine, its in zip(values, bare, strict=True))


def test_the_policy_never_reads_the_context() -> None:
    gae = privileged()
    learner, _ = learner_of(gae)
    resources = make_resources(learner=learner)
    gae(resources, given())
    torch.testing.assert_close(
        resources.readings.policy(given().rollouts), [row.cpu() for row in all_log_probs(learner.policy, SEQUENCES)]
    )


def same_text() -> Scored:
    """Return the same completion of the same prompt four times. Its reward is set by the context alone."""
    sequences = Sequences([[3, 4]] * 4, [[5, 6, 1]] * 4)
    made = scored(torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64), [1] * 4, sequences=sequences)
    contexts = [(3, 4, 20), (3, 4, 21)] * 2
    rollouts = [
        replace(rollout, source=RolloutSource(privileged=context))
        for rollout, context in zip(made.rollouts, contexts, strict=True)
    ]
    return replace(made, rollouts=rollouts)


def explained(gae: Gae) -> float:
    learner, _ = learner_of(gae)
    resources, seen = make_resources(learner=learner), same_text()
    for number in range(25):
        metrics = gae.learn(resources, seen, gae(resources, seen), number)
    return metrics["explained_variance"]


@pytest.mark.rotating(of=6)
def test_it_explains_rewards_that_only_the_context_shows() -> None:
    gae = replace(privileged(epochs=4), gae_lambda=1.0)
    assert explained(gae) > 0.9
    assert explained(replace(gae, critic=replace(gae.critic, sees="prompt"))) < 0.1


def test_the_context_of_the_critic_does_not_change_the_expected_gradient_of_the_policy() -> None:
    """A policy of two tokens in two hidden states is enumerated with critics that know, or do not know, the state."""
    logits = torch.tensor([0.4, -0.3, 0.8], dtype=torch.float64, requires_grad=True)
    generator = torch.Generator().manual_seed(5)
    reward = torch.randn(2, 2, 2, dtype=torch.float64, generator=generator)  # of the hidden state and both tokens
    blind = torch.randn(3, dtype=torch.float64, generator=generator)
    knowing = torch.randn(2, 3, dtype=torch.float64, generator=generator)

    def log_prob(first: int, second: int) -> list[Tensor]:
        signs = (1.0, -1.0)
        places = (logits[0], logits[1 + first])
        return [
            torch.nn.functional.logsigmoid(signs[bit] * place)
            for bit, place in zip((first, second), places, strict=True)
        ]

    gradients = []
    for values in (torch.stack([blind, blind]), knowing):
        total = torch.zeros(3, dtype=torch.float64)
        for state, first, second in product((0, 1), repeat=3):
            known = values[state]
            row = torch.stack([known[0], known[1 + first]])
            paid = torch.stack([torch.zeros((), dtype=torch.float64), reward[state, first, second]])
            [advantage] = generalised_advantages([paid], [row], 1.0, 1.0)
            drawn = log_prob(first, second)
            chance = 0.5 * torch.stack(drawn).sum().detach().exp()
            surrogate = sum(a * log for a, log in zip(advantage.tolist(), drawn, strict=True))
            total += chance * torch.autograd.grad(surrogate, logits, retain_graph=True)[0]
        gradients.append(total)
    torch.testing.assert_close(gradients[0], gradients[1])


def test_without_any_context_it_is_refused_in_one_line() -> None:
    _, critic = learner_of(privileged())
    bare = scored([0.0] * 5, [1] * 5, sequences=SEQUENCES)
    with pytest.raises(UserError, match=r"critic\.sees is privileged, but no completion of the round has a context"):
        seen_by(critic, bare)
    partly = given()
    partly = replace(partly, rollouts=[bare.rollouts[0], *partly.rollouts[1:]])
    assert list(seen_by(critic, partly).prompts) == [tuple(SEQUENCES.prompts[0]), *CONTEXTS[1:]]


@pytest.mark.parametrize(
    ("recipe", "override", "line"),
    [
        (
            "learning_to_fly",
            "rollouts={name: sample}",
            "advantage gae needs privileged, which rollouts sample does not give",
        ),
        (
            "forward_looking_flows",
            "advantage.critic.sees=privileged",
            "the policy can only balance flows of what it reads",
        ),
    ],
)
def test_recipes_without_a_context_are_refused_in_one_line(recipe: str, override: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        load_recipe(recipe, [override])
