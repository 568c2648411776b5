"""Old and new log-probs are read in the same mode, so dropout in an unchanged policy causes no difference."""

import pytest
import torch

from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.schedule import ScheduleSettings
from models.parts.objective.grpo import Grpo
from models.policies.build import LoraSettings, with_adapter
from tests.support.tiny_models import SEQUENCES, each_token, scored, tiny_policy

ADVANTAGE = torch.tensor([1.0, -1.0, 0.5, -0.25, -0.25], dtype=torch.float64)


def dropping_learner() -> Learner:
    """Make a learner whose adapter has a dropout of 0.2, and weights that change the output."""
    policy = with_adapter(tiny_policy(), LoraSettings(rank=4, dropout=0.2), seed=0).double().train()
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    return Learner(policy, torch.optim.SGD(policy.parameters()), None, policy.disable_adapter, None, MODEL_DISTRIBUTION)


@pytest.mark.parametrize("epochs", [1, 3])
def test_at_step_size_zero_nothing_is_clipped_though_the_adapter_has_dropout(epochs: int) -> None:
    schedule = ScheduleSettings(rounds=1, epochs=epochs, optimiser=OptimiserSettings(learning_rate=0.0))
    chosen = scored([0.0] * 5, [2, 3], sequences=SEQUENCES)
    objective = Grpo(kl=0.1, clip_low=0.0, clip_high=1e-9)
    seen = fit_round(dropping_learner(), objective, chosen, each_token(ADVANTAGE, chosen), schedule, longest=8)
    assert seen["clipped_share"] == 0.0


def test_at_step_size_zero_the_divergence_from_where_the_round_began_is_zero() -> None:
    learner = dropping_learner()
    learner.adapter_off = lambda: torch.no_grad()  # the reference includes the adapter
    schedule = ScheduleSettings(rounds=1, epochs=3, optimiser=OptimiserSettings(learning_rate=0.0))
    chosen = scored([0.0] * 5, [2, 3], sequences=SEQUENCES)
    seen = fit_round(learner, Grpo(kl=0.1), chosen, each_token(ADVANTAGE, chosen), schedule, longest=8)
    assert seen["kl"] == pytest.approx(0, abs=1e-24)


def test_the_gradient_of_a_dropping_adapter_is_that_of_the_whole_policy() -> None:
    dropping, whole = dropping_learner(), dropping_learner()
    for module in whole.policy.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    schedule = ScheduleSettings(rounds=1, optimiser=OptimiserSettings(learning_rate=1.0, clip_norm=1e9, warmup_steps=0))
    for learner in (dropping, whole):
        chosen = scored([0.0] * 5, [2, 3], sequences=SEQUENCES)
        fit_round(learner, Grpo(kl=0.0), chosen, each_token(ADVANTAGE, chosen), schedule, longest=8)
    expected = dict(whole.policy.named_parameters())
    for name, parameter in dropping.policy.named_parameters():
        torch.testing.assert_close(parameter, expected[name], rtol=0, atol=1e-12)
