"""A pairwise loss that uses the log-prob of each token: it uses the right tokens, however the round is cut."""

from dataclasses import replace

import pytest
import torch

from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.schedule import ScheduleSettings
from models.parts.objective.ld_dpo import LengthDesensitisedDpo
from tests.support.device_here import DEVICE
from tests.support.tiny_models import COMPLETIONS, each_token, plain_log_probs, scored, tiny_policy

PAIRS = Sequences([[3, 4, 5]] * 2 + [[6]] * 2, COMPLETIONS[:4])
"""Two pairs of answers: of 2 and 4 tokens, and of 1 and 6 tokens."""


@pytest.mark.parametrize("budget", [14, 10**6])
def test_it_weighs_the_tokens_beyond_the_shorter_answer_of_each_pair(budget: int) -> None:
    policy, reference = tiny_policy(torch.float64), tiny_policy(torch.float64, seed=1, spread=2.0).requires_grad_(False)
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), reference, None, None, MODEL_DISTRIBUTION)
    before = {name: value.detach().clone() for name, value in policy.named_parameters()}
    chosen = replace(scored([0.0] * 4, [2, 2], sequences=PAIRS), rewards=torch.tensor([0.0, 1.0, 3.0, 2.0]))
    schedule = ScheduleSettings(
        rounds=1, token_budget=budget, optimiser=OptimiserSettings(learning_rate=1.0, warmup_steps=0, clip_norm=1e9)
    )
    objective = LengthDesensitisedDpo(beta=0.3, tail=0.25, sft=0.5)
    metrics = fit_round(learner, objective, chosen, each_token(torch.zeros(4), chosen), schedule, 8)

    plain = tiny_policy(torch.float64)
    mine, theirs = plain_log_probs(plain, PAIRS), plain_log_probs(reference, PAIRS)
    weights = [
        torch.tensor(rows, device=DEVICE)
        for rows in ([1.0, 1.0], [1.0, 1.0, 0.25, 0.25], [1.0], [1.0, 0.25, 0.25, 0.25, 0.25, 0.25])
    ]
    ratio = [(w * (m - t)).sum() for w, m, t in zip(weights, mine, theirs, strict=True)]
    margins = 0.3 * torch.stack([ratio[1] - ratio[0], ratio[2] - ratio[3]])
    imitation = -torch.stack([mine[1].mean(), mine[2].mean()])
    loss = (torch.log1p(torch.exp(-margins)) + 0.5 * imitation).mean()
    loss.backward()
    assert metrics["loss"] == pytest.approx(float(loss.detach()), abs=1e-10)
    for name, value in plain.named_parameters():
        moved = before[name] - dict(policy.named_parameters())[name].detach()
        torch.testing.assert_close(moved, value.grad, rtol=1e-9, atol=1e-10)
