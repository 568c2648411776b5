"""Advantages of steps: values by hand, the boundaries of steps, and the signal of the critic."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.method.resources import RunResources
from models.parts.advantage.step_difference import StepDifference, step_advantages
from models.reward_models.critic.model import Critic, read_values
from models.reward_models.critic.settings import CriticSettings
from tests.support.tiny_models import scored, tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

RISING = OptimiserSettings(learning_rate=3e-3, warmup_steps=1)
SEVEN, OTHER, MARK = (CODEC.completions([word])[0][0] for word in ("7", "2", ";"))
END = CODEC.end
ENDS = Sequences([[3, 4], [3, 4], [5]], [[SEVEN, MARK, OTHER, OTHER, END], [OTHER, MARK, OTHER, END], [SEVEN]])
WORTH = scored(torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64), [2, 1], sequences=ENDS)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def resources_with(advantage: StepDifference) -> tuple[RunResources, Critic]:
    policy = tiny_policy()
    torch.manual_seed(3)
    companion = advantage.accompany(policy)
    optimiser = build_optimiser(policy, RISING)
    learner = Learner(policy, optimiser, None, None, None, MODEL_DISTRIBUTION, companions={"critic": companion})
    assert isinstance(companion.model, Critic)
    return make_resources(learner=learner, token_budget=64), companion.model


def test_by_hand() -> None:
    # Steps of 2, 1 and 2 tokens begin at the values 0.5, 0.25 and 0.75. The completion's reward is 1.
    starts = torch.tensor([True, False, True, True, False])
    advantages = step_advantages(numbers(1).squeeze(), numbers(0.5, 9, 0.25, 0.75, 9), starts)
    torch.testing.assert_close(advantages, numbers(-0.25, -0.25, 0.5, 0.25, 0.25))


def test_the_advantages_of_a_completions_steps_add_up_to_the_reward_less_the_value_of_the_prompt() -> None:
    advantage = StepDifference()
    resources, critic = resources_with(advantage)
    values, signal = read_values(critic, ENDS), advantage(resources, WORTH)
    for row, value, starts, reward in zip(
        signal.tokens, values, advantage._starts(resources, WORTH), WORTH.rewards, strict=True
    ):
        torch.testing.assert_close(row[starts].sum(), reward - value[0])


def test_steps_are_cut_where_the_text_of_the_tokens_says() -> None:
    advantage = StepDifference()
    resources, _ = resources_with(advantage)
    assert [row.tolist() for row in advantage._starts(resources, WORTH)] == [
        [True, False, True, False, False],
        [True, False, True, False],
        [True],
    ]


@pytest.mark.rotating(of=6)
def test_the_critic_finds_the_step_that_decided() -> None:
    """In both completions of the first prompt, the first step determines the reward and the second adds nothing."""
    advantage = StepDifference(critic=CriticSettings(optimiser=RISING))
    resources, _ = resources_with(advantage)
    for number in range(150):
        metrics = advantage.learn(resources, WORTH, advantage(resources, WORTH), number)
    good, bad, alone = advantage(resources, WORTH).tokens
    torch.testing.assert_close(good, numbers(0.5, 0.5, 0, 0, 0), rtol=0, atol=0.05)
    torch.testing.assert_close(bad, numbers(-0.5, -0.5, 0, 0), rtol=0, atol=0.05)
    assert alone.abs().max() < 0.05 and metrics["steps"] == 5 / 3


def test_the_policy_waits_until_the_critic_has_taken_its_first_steps() -> None:
    advantage = StepDifference(critic=CriticSettings(pretraining=1, optimiser=RISING))
    resources, _ = resources_with(advantage)
    first = advantage(resources, WORTH)
    advantage.learn(resources, WORTH, first, 0)
    assert all(not row.any() for row in first.tokens)
    assert all(row.any() for row in advantage(resources, WORTH).tokens)


def test_what_the_policy_did_not_write_gives_the_critic_no_signal() -> None:
    advantage = StepDifference(critic=CriticSettings(optimiser=RISING))
    ends = []
    for reward in (0.0, 100.0):
        resources, critic = resources_with(advantage)
        untrained = replace(WORTH.rollouts[2], trained=(False,))
        changed = replace(
            WORTH,
            rollouts=[*WORTH.rollouts[:2], untrained],
            rewards=torch.cat([WORTH.rewards[:2], numbers(reward)]),
        )
        advantage.learn(resources, changed, advantage(resources, changed), 0)
        ends.append(torch.cat(read_values(critic, ENDS)))
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=0)


def test_it_is_an_advantage_with_a_companion() -> None:
    assert StepDifference().companion and not StepDifference().needs_group
