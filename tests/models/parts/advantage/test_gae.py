"""Generalised advantage estimation: values by hand, the learning of the critic, and the resumption of a run."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.all_completions import all_log_probs
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.method.learner import Learner
from models.method.resources import RunResources
from models.method.schedule import ScheduleSettings
from models.method.slots import Slots
from models.parts.advantage.gae import Gae, generalised_advantages, stabilised
from models.parts.objective.grpo import Grpo
from models.parts.rollouts.sample import Sample
from models.parts.select.everything import Everything
from models.parts.shared.token_advantages import whitened
from models.reward_models.critic.model import Critic, read_values
from models.reward_models.critic.settings import CriticSettings
from models.training.loop import run_loop
from models.training.watchers import Watchers
from tests.support.tiny_loops import END, PROBLEMS, SCHEDULE, SLOTS, Sevens, new_learner, same_weights, save_start
from tests.support.tiny_models import SEQUENCES, scored, tiny_policy
from tests.support.tiny_resources import make_resources

RISING = OptimiserSettings(learning_rate=1e-3, warmup_steps=1)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_by_hand() -> None:
    # gamma is 1/2, lambda 1/2. Errors from the end: 4 - 2 = 2; 1 + 2 / 2 - 1 = 1; 0 + 1 / 2 - 3 = -2.5.
    # Advantages from the end: 2; 1 + 2 / 4 = 1.5; -2.5 + 1.5 / 4 = -2.125. The second completion has 5 - 1 = 4.
    advantages = generalised_advantages([numbers(0, 1, 4), numbers(5)], [numbers(3, 1, 2), numbers(1)], 0.5, 0.5)
    torch.testing.assert_close(advantages, [numbers(-2.125, 1.5, 2), numbers(4)])


ZERO = torch.zeros((), dtype=torch.float64)


def random_rows(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(length, dtype=torch.float64, generator=generator) for length in (1, 5, 3, 8)]


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
def test_lambda_one_gives_the_return_less_the_value(gamma: float) -> None:
    rewards, values = random_rows(0), random_rows(1)
    expected = []
    for reward, value in zip(rewards, values, strict=True):
        n = len(reward)
        returns = [sum((gamma ** (k - t) * reward[k] for k in range(t, n)), ZERO) for t in range(n)]
        expected.append(torch.stack(returns) - value)
    torch.testing.assert_close(generalised_advantages(rewards, values, gamma, 1.0), expected)


def test_lambda_zero_gives_the_error_of_one_step() -> None:
    rewards, values = random_rows(0), random_rows(1)
    advantages = generalised_advantages(rewards, values, 0.9, 0.0)
    for row, reward, value in zip(advantages, rewards, values, strict=True):
        for t in range(len(row)):
            following = float(value[t + 1]) if t + 1 < len(row) else 0.0
            assert float(row[t]) == pytest.approx(float(reward[t]) + 0.9 * following - float(value[t]))


@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
def test_where_the_critic_is_right_there_is_no_advantage(gae_lambda: float) -> None:
    values = [numbers(2, 2, 2), numbers(-1, -1)]
    for row in generalised_advantages([numbers(0, 0, 2), numbers(0, -1)], values, 1.0, gae_lambda):
        assert row.abs().max() < 1e-15


def test_whitened_advantages_have_mean_zero_and_deviation_one_over_what_counts() -> None:
    rows = random_rows(2)
    everywhere = [torch.ones(len(row), dtype=torch.bool) for row in rows]
    advantages = torch.cat(whitened(rows, everywhere))
    assert abs(float(advantages.mean())) < 1e-12 and float(advantages.std(unbiased=False)) == pytest.approx(1, abs=1e-3)
    some = [torch.arange(len(row)) % 2 == 0 for row in rows]
    strange = [torch.where(mask, row, row + 1e6) for row, mask in zip(rows, some, strict=True)]
    for first, other, mask in zip(whitened(rows, some), whitened(strange, some), some, strict=True):
        torch.testing.assert_close(first[mask], other[mask])


def test_normalised_and_clipped_rewards_by_hand() -> None:
    worth = scored(numbers(0, 0, 0, 4), [4])  # mean 1, deviation sqrt(3)
    rewards = stabilised(worth, "batch", 1.0).rewards
    torch.testing.assert_close(rewards, numbers(-1 / 3**0.5, -1 / 3**0.5, -1 / 3**0.5, 1), rtol=1e-3, atol=0)
    torch.testing.assert_close(stabilised(worth, "none", 3.0).rewards, numbers(0, 0, 0, 3))


def test_equal_rewards_are_normalised_to_nothing_even_where_their_mean_is_not_exact() -> None:
    assert stabilised(scored(torch.full((7,), 0.1), [7]), "batch", None).rewards.abs().max() < 1e-2


def test_rewards_of_tokens_are_scaled_with_those_of_completions() -> None:
    whole = scored(numbers(4, 0), [2], sequences=SEQUENCES.take([0, 4]))  # mean 2, deviation 2
    worth = replace(whole, token_rewards=[numbers(2, 0), numbers(0, 0, 1)])
    rewards = stabilised(worth, "batch", None).rewards_by_token()
    torch.testing.assert_close(rewards, [numbers(1, 0), numbers(0, 0, -1)], rtol=0, atol=1e-3)


def learner_with(gae: Gae, reference: bool = True) -> Learner:
    """Return a learner in float64 with a critic whose head has random weights of deviation 0.1."""
    policy = tiny_policy()
    torch.manual_seed(3)
    companion = gae.accompany(policy)
    assert isinstance(companion.model, Critic)
    torch.nn.init.normal_(companion.model.head.weight, std=0.1)
    held = tiny_policy(seed=5).requires_grad_(False) if reference else None
    return Learner(
        policy, build_optimiser(policy, RISING), held, None, None, MODEL_DISTRIBUTION, companions={"critic": companion}
    )


def resources_of(learner: Learner) -> RunResources:
    return make_resources(learner=learner, token_budget=64)


WORTH = scored(numbers(1, 0, 2, 5, 3), [1] * 5, sequences=SEQUENCES)


def test_the_signal_is_the_estimate_on_the_values_that_the_critic_says() -> None:
    gae = Gae(gae_lambda=0.9, gamma=0.95, whiten=False)
    learner = learner_with(gae)
    signal = gae(resources_of(learner), WORTH)
    critic = learner.companions["critic"].model
    assert isinstance(critic, Critic)
    values = read_values(critic, SEQUENCES)
    ends = [torch.zeros(len(ids), dtype=torch.float64) for ids in SEQUENCES.completions]
    for row, reward in zip(ends, WORTH.rewards, strict=True):
        row[-1] = reward
    torch.testing.assert_close(signal.tokens, generalised_advantages(ends, values, 0.95, 0.9))
    torch.testing.assert_close(signal.returns, [a + v for a, v in zip(signal.tokens, values, strict=True)])


def test_the_penalty_of_a_token_is_its_log_ratio_to_the_reference() -> None:
    gae = Gae(gae_lambda=1.0, whiten=False, kl_in_reward=0.3)
    learner = learner_with(gae)
    assert learner.reference is not None
    policy, reference = (all_log_probs(model, SEQUENCES) for model in (learner.policy, learner.reference))
    rewards = gae._token_rewards(resources_of(learner), WORTH)
    for index, row in enumerate(rewards):
        expected = -0.3 * (policy[index] - reference[index]).cpu()
        expected[-1] += WORTH.rewards[index]
        torch.testing.assert_close(row, expected)
    assert max(float(row[:-1].abs().max()) for row in rewards if len(row) > 1) > 0.1


def test_a_penalty_without_a_reference_is_refused() -> None:
    gae = Gae(kl_in_reward=0.1)
    with pytest.raises(UserError, match=r"advantage\.kl_in_reward is 0\.1, but the recipe has no reference"):
        gae(resources_of(learner_with(gae, reference=False)), WORTH)


def test_the_policy_waits_until_the_critic_has_taken_its_first_steps() -> None:
    gae = Gae(critic=CriticSettings(pretraining=2, optimiser=RISING))
    learner = learner_with(gae)
    resources, signals = resources_of(learner), []
    for number in range(3):
        signals.append(gae(resources, WORTH))
        gae.learn(resources, WORTH, signals[-1], number)
    assert [float(torch.cat(list(signal.tokens)).abs().max()) > 0 for signal in signals] == [False, False, True]
    assert all(signal.returns and float(torch.cat(list(signal.returns)).abs().max()) > 0 for signal in signals)


@pytest.mark.rotating(of=6)
def test_the_critic_comes_to_explain_the_rewards_and_advantages_shrink() -> None:
    gae = Gae(gae_lambda=1.0, whiten=False, critic=CriticSettings(epochs=2, minibatches=2, optimiser=RISING))
    learner = learner_with(gae)
    resources, sizes = resources_of(learner), []
    for number in range(30):
        signal = gae(resources, WORTH)
        metrics = gae.learn(resources, WORTH, signal, number)
        sizes.append(float(torch.cat(list(signal.tokens)).abs().mean()))
    assert sizes[-1] < 0.1 * sizes[0] and metrics["explained_variance"] > 0.95


def test_it_is_an_advantage_with_a_companion() -> None:
    assert Gae().companion and not Gae().needs_group


PPO = replace(
    SLOTS,
    select=[Everything()],
    advantage=Gae(
        kl_in_reward=0.05,
        reward_scale="batch",
        reward_clip=3.0,
        critic=CriticSettings(clip=0.2, epochs=2, minibatches=2, pretraining=4, optimiser=RISING),
    ),
    objective=Grpo(kl=0.0),
)


def run(
    start: Path,
    checkpoints: Path,
    *,
    lora: bool = False,
    killed_in: int | None = None,
    slots: Slots = PPO,
    schedule: ScheduleSettings = SCHEDULE,
) -> tuple[Learner, dict[int, dict[str, float]]]:
    """Run the loop once with a critic. Returns the learner and the metrics of each round."""
    reported: dict[int, dict[str, float]] = {}

    def metrics(number: int, values: dict[str, float]) -> None:
        reported[number] = values
        if number == killed_in:
            raise KeyboardInterrupt

    torch.manual_seed(4)
    companion = slots.advantage.accompany(tiny_policy(torch.float32, spread=3.0))
    assert companion is not None
    torch.manual_seed(12345 + len(str(checkpoints)))  # the state of the global generator must not matter
    learner = new_learner(schedule, lora)
    learner.companions = {"critic": companion}
    resources = make_resources(TransformersEngine(start, EngineSettings(precision="float32"), end=END), learner=learner)
    try:
        run_loop(resources, slots, schedule, PROBLEMS, checkpoints, Watchers(metrics=metrics))
    except KeyboardInterrupt:
        assert killed_in is not None
    return learner, reported


@pytest.mark.rotating(of=2)
@pytest.mark.parametrize("lora", [False, True])
def test_a_killed_run_goes_on_and_ends_bit_for_bit_with_the_policy_and_the_critic_of_a_whole_one(
    tmp_path: Path, lora: bool
) -> None:
    start = save_start(tmp_path / "start")
    whole, diary = run(start, tmp_path / "whole", lora=lora)
    run(start, tmp_path / "killed", lora=lora, killed_in=5)
    resumed, told_after = run(start, tmp_path / "killed", lora=lora)
    assert sorted(told_after) == [5, 6] and same_weights(whole, resumed)
    ends = [learner.companions["critic"] for learner in (whole, resumed)]
    assert ends[0].updates == ends[1].updates == 6 * 4
    left, right = (end.model.state_dict() for end in ends)
    assert all(torch.equal(left[name], right[name]) for name in left)
    for name in ("critic/loss", "critic/explained_variance", "policy/loss"):
        assert diary[6][name] == told_after[6][name]
    assert not same_weights(whole, new_learner(SCHEDULE, lora))


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    "critic",
    [
        CriticSettings(clip=0.2, epochs=2, minibatches=2, optimiser=RISING),
        CriticSettings(loss="hl_gauss", low=-0.5, high=1.5, bins=40, epochs=2, minibatches=2, optimiser=RISING),
    ],
    ids=["mse", "hl_gauss"],
)
def test_what_is_rewarded_becomes_frequent(tmp_path: Path, critic: CriticSettings) -> None:
    slots = replace(
        PPO,
        rollouts=Sample(prompts=6, group_size=8, max_tokens=5),
        rewards=[Sevens()],
        advantage=Gae(kl_in_reward=0.01, critic=critic),
    )
    schedule = replace(SCHEDULE, rounds=10, optimiser=OptimiserSettings(learning_rate=3e-3, warmup_steps=1))
    _, diary = run(save_start(tmp_path / "start"), tmp_path / "checkpoints", slots=slots, schedule=schedule)
    assert diary[1]["reward/sevens"] < 0.3 and diary[10]["reward/sevens"] > 0.8
