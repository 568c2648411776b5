"""A value model and its fit: values do not depend on batching, and a fit leaves the policy unchanged."""

import copy

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.method.learner import Companion
from models.policies.build import LoraSettings, with_adapter
from models.reward_models.critic.fit import explained_variance, fit_critic
from models.reward_models.critic.losses import values_of
from models.reward_models.critic.model import Critic, new_critic, read_values
from models.reward_models.critic.settings import CriticSettings
from tests.support.device_here import DEVICE
from tests.support.tiny_models import SEQUENCES, scored, tiny_policy

SETTINGS = CriticSettings(optimiser=OptimiserSettings(learning_rate=3e-3, warmup_steps=1))
BINS = CriticSettings(
    loss="hl_gauss", bins=20, low=-1.0, high=1.0, optimiser=OptimiserSettings(learning_rate=3e-3, warmup_steps=1)
)
SHARED = Sequences(
    [*SEQUENCES.prompts, SEQUENCES.prompts[0], SEQUENCES.prompts[2]], [*SEQUENCES.completions, [7, 8, 1], [5]]
)


def critic(settings: CriticSettings = SETTINGS, seed: int = 1) -> Companion:
    """Make a critic whose head is large, so that its values differ."""
    torch.manual_seed(seed)
    made = new_critic(tiny_policy(), settings)
    torch.nn.init.normal_(model_of(made).head.weight)
    return made


def model_of(companion: Companion) -> Critic:
    assert isinstance(companion.model, Critic)
    return companion.model


def plain_values(model: Critic, sequences: Sequences) -> list[Tensor]:
    """Compute the values by the definition: each sequence alone, the head on the state before each token."""
    rows = []
    for prompt, completion in zip(sequences.prompts, sequences.completions, strict=True):
        ids = torch.tensor([[*prompt, *completion]], device=DEVICE)
        hidden = model.backbone(input_ids=ids, use_cache=False).last_hidden_state[0]
        rows.append(values_of(model.head(hidden[len(prompt) - 1 : -1]), model.settings))
    return rows


@pytest.mark.parametrize("settings", [SETTINGS, BINS], ids=["mse", "hl_gauss"])
def test_a_value_is_the_head_at_the_token_that_predicts(settings: CriticSettings) -> None:
    model = model_of(critic(settings)).eval()
    with torch.no_grad():
        expected = plain_values(model, SHARED)
    values = read_values(model, SHARED)
    assert [len(row) for row in values] == [len(ids) for ids in SHARED.completions]
    torch.testing.assert_close(torch.cat(values), torch.cat(expected).cpu(), rtol=0, atol=1e-9)
    assert torch.cat(values).std() > 0.1


def test_values_do_not_depend_on_the_budget_or_on_other_completions() -> None:
    model = model_of(critic())
    together = read_values(model, SHARED)
    for budget in (13, 16, 40):
        torch.testing.assert_close(read_values(model, SHARED, token_budget=budget), together, rtol=0, atol=1e-9)
    for index in range(len(SHARED)):
        alone = read_values(model, SHARED.take([index]))[0]
        torch.testing.assert_close(alone, together[index], rtol=0, atol=1e-9)


def test_a_value_does_not_see_the_token_that_it_comes_before() -> None:
    model = model_of(critic())
    first, other = read_values(model, Sequences([[3, 4], [3, 4]], [[5, 6, 7], [5, 9, 8]]))
    torch.testing.assert_close(first[:2], other[:2], rtol=0, atol=1e-9)
    assert (first[2] - other[2]).abs() > 1e-3


def test_a_budget_smaller_than_a_row_is_refused() -> None:
    with pytest.raises(UserError, match=r"schedule\.token_budget is 5"):
        read_values(model_of(critic()), SHARED, token_budget=5)


def test_a_fit_does_not_depend_on_the_budget() -> None:
    worth = scored(torch.zeros(7, dtype=torch.float64), [1] * 7, sequences=SHARED)
    returns = [torch.linspace(-1, 1, len(ids), dtype=torch.float64) for ids in SHARED.completions]
    ends, metrics = [], []
    for budget in (13, 512):
        made = critic()
        metrics.append(fit_critic(made, worth, returns, read_values(model_of(made), SHARED), token_budget=budget))
        ends.append(torch.cat(read_values(model_of(made), SHARED)))
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-6)
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-6)


def test_the_first_step_of_the_fit_follows_the_mean_over_tokens_of_half_the_squared_error() -> None:
    made, worth = critic(), scored(torch.zeros(7, dtype=torch.float64), [1] * 7, sequences=SHARED)
    returns = [torch.full((len(ids),), 0.5, dtype=torch.float64) for ids in SHARED.completions]
    other = copy.deepcopy(model_of(made)).eval()
    loss = ((torch.cat(plain_values(other, SHARED)) - 0.5) ** 2).mean() / 2
    norm = torch.nn.utils.get_total_norm(torch.autograd.grad(loss, list(other.parameters())))
    metrics = fit_critic(made, worth, returns, read_values(model_of(made), SHARED))
    assert metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-9)
    assert metrics["gradient_norm"] == pytest.approx(float(norm), rel=1e-6)
    assert made.updates == 1


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("settings", [SETTINGS, BINS], ids=["mse", "hl_gauss"])
def test_a_critic_fitted_to_fixed_returns_comes_to_say_them(settings: CriticSettings) -> None:
    torch.manual_seed(1)
    known = SHARED.take(
        [0, 2, 3, 4, 5, 6]
    )  # index 1 is left out: after one 6 and after two the hidden state is the same
    made, worth = new_critic(tiny_policy(), settings), scored(torch.zeros(6), [1] * 6, sequences=known)
    # The tokens before a token determine its return, so a critic can learn it.
    returns = [
        torch.tensor([sum([*prompt, *ids[:at]]) % 5 / 5 - 0.4 for at in range(len(ids))], dtype=torch.float64)
        for prompt, ids in zip(known.prompts, known.completions, strict=True)
    ]
    before = torch.cat(read_values(model_of(made), known)) - torch.cat(returns)
    for _ in range(50):
        metrics = fit_critic(made, worth, returns, read_values(model_of(made), known))
    after = torch.cat(read_values(model_of(made), known)) - torch.cat(returns)
    assert before.abs().mean() > 0.1
    assert after.abs().max() < 0.03
    assert metrics["explained_variance"] > 0.99


def test_tokens_that_do_not_count_give_the_critic_no_signal() -> None:
    worth = scored(torch.zeros(5, dtype=torch.float64), [1] * 5, sequences=SEQUENCES)
    counted = [torch.arange(len(ids)) == 0 for ids in SEQUENCES.completions]
    ends = []
    for elsewhere in (0.0, 100.0):
        made = critic()
        returns = [torch.full((len(ids),), elsewhere, dtype=torch.float64) for ids in SEQUENCES.completions]
        for row in returns:
            row[0] = 0.5
        fit_critic(made, worth, returns, read_values(model_of(made), SEQUENCES), counted=counted)
        ends.append(torch.cat(read_values(model_of(made), SEQUENCES)))
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=0)


def test_where_no_token_counts_nothing_moves() -> None:
    made, worth = critic(), scored(torch.zeros(5, dtype=torch.float64), [1] * 5, sequences=SEQUENCES)
    old = read_values(model_of(made), SEQUENCES)
    nowhere = [torch.zeros(len(ids), dtype=torch.bool) for ids in SEQUENCES.completions]
    assert fit_critic(made, worth, old, old, counted=nowhere) == {} and made.updates == 0
    torch.testing.assert_close(read_values(model_of(made), SEQUENCES), old, rtol=0, atol=0)


def test_the_critic_has_weights_of_its_own_and_leaves_the_policy_alone() -> None:
    policy = tiny_policy()
    before = copy.deepcopy(policy.state_dict())
    made = new_critic(policy, SETTINGS)
    worth = scored(torch.zeros(5, dtype=torch.float64), [1] * 5, sequences=SEQUENCES)
    returns = [torch.ones(len(ids), dtype=torch.float64) for ids in SEQUENCES.completions]
    fit_critic(made, worth, returns, read_values(model_of(made), SEQUENCES))
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())
    start = policy.model.state_dict()
    assert any(not torch.equal(value, start[name]) for name, value in model_of(made).backbone.state_dict().items())


def test_every_weight_of_the_critic_learns_and_an_adapter_laid_on_the_policy_later_does_not_reach_it() -> None:
    policy = tiny_policy()
    made = new_critic(policy, SETTINGS)
    with_adapter(policy, LoraSettings(rank=2), seed=0)
    assert all(parameter.requires_grad for parameter in model_of(made).parameters())
    assert not [name for name, _ in model_of(made).named_parameters() if "lora" in name]
    assert isinstance(model_of(made), Critic)


def test_the_explained_variance_is_one_for_the_returns_and_zero_for_a_constant() -> None:
    returns = torch.tensor([0.0, 1.0, 2.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(torch.full((3,), 7.0), returns) == pytest.approx(0.0)
    assert explained_variance(returns, torch.ones(3)) == 0.0
    assert explained_variance(torch.tensor([9.0, 0.0, -9.0]), returns) == -1.0
