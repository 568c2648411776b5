"""Values of a frozen policy: targets by hand, the states that are learned, and convergence to the expected reward."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.method.episode import Turn
from models.method.rollout import RolloutEpisode
from models.parts.advantage.sampled_values import SampledValues, reading_of, returns_of, states_after_written
from models.parts.shared.critic_advantage import closed
from models.policies.value_model import load_value_model
from models.recipes.load import load_recipe
from models.reward_models.critic.fit import critic_of
from models.reward_models.critic.settings import CriticSettings
from tests.support.tiny_models import scored, tiny_policy
from tests.support.tiny_resources import make_resources

PROMPT = [3]
TEXTS = [[2, 1], [2, 3, 1], [2, 3, 0], [0, 1]]
"""Completions; a token 1 ends one."""
REWARDS = [1.0, -0.5, 2.0, 0.25]


def resources_of(part: SampledValues) -> Any:
    torch.manual_seed(0)
    resources = make_resources()
    resources.learner.companions[part.companion] = part.accompany(tiny_policy(torch.float32, spread=3.0))  # type: ignore[assignment]
    return resources


def test_the_targets_are_the_reward_or_mixtures_of_later_values() -> None:
    values = [torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)]  # before both tokens, and after the last
    targets = torch.tensor([2.0], dtype=torch.float64)
    assert returns_of(targets, values, 1.0)[0].tolist() == [2.0, 2.0, 2.0]
    assert returns_of(targets, values, 0.0)[0].tolist() == [1.0, 4.0, 2.0]
    # 0.5: G_2 = 2, G_1 = (V_2 + G_2) / 2 = 3, G_0 = (V_1 + G_1) / 2 = 2
    assert returns_of(targets, values, 0.5)[0].tolist() == pytest.approx([2.0, 3.0, 2.0])


def test_the_state_after_the_last_token_is_read_and_the_environments_tokens_are_not_learned() -> None:
    chosen = scored([1.0], [1], sequences=Sequences([PROMPT], [[2, 7, 8, 1]]))
    (rollout,) = chosen.rollouts
    assert closed(rollout).completion == (2, 7, 8, 1, 1)
    assert states_after_written(rollout).tolist() == [True] * 5
    episode = replace(rollout, episode=RolloutEpisode(turns=(Turn(0, 1), Turn(3, 4))))
    assert states_after_written(episode).tolist() == [True, True, False, False, True]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("risk", [0.0, 1.0])
def test_the_fit_ends_at_the_expected_reward_of_every_beginning(risk: float, tmp_path: Path) -> None:
    """Beginnings that several completions share get the mean, or the log-mean of exp(risk R) over risk."""
    optimiser = OptimiserSettings(learning_rate=2e-3, warmup_steps=1)
    part = SampledValues(risk=risk, critic=CriticSettings(epochs=25, optimiser=optimiser))
    resources = resources_of(part)
    chosen = scored(REWARDS, [4], sequences=Sequences([PROMPT] * 4, TEXTS))
    policy = {name: value.clone() for name, value in resources.learner.policy.state_dict().items()}
    signal = part(resources, chosen)
    assert not any(row.any() for row in signal.tokens)
    for number in range(10):
        part.learn(resources, chosen, signal, number)
    assert all(torch.equal(value, policy[name]) for name, value in resources.learner.policy.state_dict().items())
    part.export(resources.learner, tmp_path)
    model = load_value_model(tmp_path)
    assert model.reading.risk == risk

    def mean(rewards: list[float]) -> float:
        if not risk:
            return sum(rewards) / len(rewards)
        return math.log(sum(math.exp(risk * reward) for reward in rewards) / len(rewards)) / risk

    wanted = {(2,): mean(REWARDS[:3]), (2, 3): mean(REWARDS[1:3]), (0,): REWARDS[3]}
    wanted |= {tuple(text): mean([reward]) for text, reward in zip(TEXTS, REWARDS, strict=True)}
    values = model.of_texts([PROMPT] * len(wanted), list(wanted))
    if risk:  # the critic's error is one of exp(risk * R)
        values, wanted = [math.exp(value) for value in values], {text: math.exp(wanted[text]) for text in wanted}
    assert values == pytest.approx(list(wanted.values()), abs=0.2)


def test_the_values_of_another_reward_are_learned_by_its_label() -> None:
    part = SampledValues(by="brief")
    resources = resources_of(part)
    chosen = scored([0.0, 0.0], [2], {"brief": torch.tensor([5.0, 5.0])}, Sequences([PROMPT] * 2, TEXTS[:2]))
    assert part.learn(resources, chosen, part(resources, chosen), 0)["error"] == pytest.approx(5.0, abs=1.0)
    with pytest.raises(UserError, match=r"advantage.by: no reward is called length; there are brief"):
        replace(part, by="length").learn(resources, chosen, part(resources, chosen), 0)


def test_a_critic_of_bins_is_read_at_their_centres() -> None:
    part = SampledValues(critic=CriticSettings(loss="hl_gauss", bins=4, low=0.0, high=2.0))
    critic = critic_of(resources_of(part).learner.companions[part.companion])
    assert reading_of(critic, 0.0).centres == pytest.approx((0.25, 0.75, 1.25, 1.75))


def test_the_values_of_several_learners_are_refused(tmp_path: Path) -> None:
    learner: Any = SimpleNamespace(ranks=SimpleNamespace(count=2))
    with pytest.raises(UserError, match="use one"):
        SampledValues().export(learner, tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match=r"placement.learners is 2, but advantage sampled_values writes its companion"):
        load_recipe("value_augmented_sampling", ["placement.learners=2"])
