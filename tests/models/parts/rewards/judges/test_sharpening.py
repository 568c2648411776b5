"""Sharpening on an enumerated policy of four answers of two tokens: the limits of both of its forms."""

from collections.abc import Sequence
from itertools import product
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from models.learner.packing import PerToken
from models.method.problem import Problem
from models.method.readings import Readings
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.parts.advantage.leave_one_out import LeaveOneOut
from models.parts.objective.grpo import Grpo
from models.parts.objective.weighted_likelihood import WeightedLikelihood
from models.parts.rewards.judges.own_ranking import OwnLikelihood
from models.parts.select.best_of_n import BestOfN
from tests.support.tiny_batches import sampled_batch
from tests.support.tiny_resources import make_resources

ANSWERS = list(product((0, 1), repeat=2))
START = torch.tensor([0.3, -0.4, 0.8], dtype=torch.float64)
"""Logits of the reference: of the first token, and of the second one after each first token."""


def log_probs(logits: Tensor) -> Tensor:
    """Return the log-probs of both tokens of every answer, [answers, 2]."""
    rows = [torch.stack([torch.nn.functional.logsigmoid(sign * logits) for sign in (1.0, -1.0)])]
    return torch.stack([torch.stack([rows[0][a, 0], rows[0][b, 1 + a]]) for a, b in ANSWERS])


REFERENCE = log_probs(START)
BASE = REFERENCE.sum(1).exp()
"""Probability of each answer under the reference, [answers]."""


class Known:
    """Log-probs of the answers under policy and reference, by table."""

    def __init__(self, policy: Tensor) -> None:
        self._policy = policy.detach()

    def policy(self, rollouts: Sequence[Rollout]) -> PerToken:
        return [self._policy[ANSWERS.index(cast(Any, rollout.completion))] for rollout in rollouts]

    def reference(self, rollouts: Sequence[Rollout]) -> PerToken:
        return [REFERENCE[ANSWERS.index(cast(Any, rollout.completion))] for rollout in rollouts]


def groups_of_all(size: int, policy: Tensor) -> tuple[Scored, Tensor]:
    """Return every group of `size` answers with the reward of sharpening, and the answers, [groups, size]."""
    drawn = list(product(range(4), repeat=size))
    rollouts = [
        Rollout(Problem("p", "", tokens=(1,)), group, ANSWERS[answer], None, "", True)
        for group, answers in enumerate(drawn)
        for answer in answers
    ]
    resources = make_resources(readings=cast(Readings, Known(policy)))
    rewards = OwnLikelihood(of="reference", over="sum")(resources, rollouts)
    return Scored(rollouts, rewards, {}, {}), torch.tensor(drawn)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_sft_sharpening_learns_the_likeliest_answer_as_often_as_n_samples_hold_it(size: int) -> None:
    """The expected loss over all groups of N samples of the reference is minimised by the policy."""
    scored, drawn = groups_of_all(size, REFERENCE)
    kept = BestOfN()(scored)
    answers, chance = drawn.flatten()[kept], BASE[drawn].prod(1)
    logits = START.clone().requires_grad_()
    for _ in range(600):
        mine = log_probs(logits)[answers]
        batch = sampled_batch(torch.ones(2 * len(answers), dtype=torch.float64), mine.detach().flatten())
        loss, _ = WeightedLikelihood()(mine.flatten(), batch)
        (gradient,) = torch.autograd.grad((chance * loss.view_as(mine).sum(1)).sum(), logits)
        logits = (logits - 2.0 * gradient).detach().requires_grad_()
    learned = log_probs(logits.detach()).sum(1).exp()
    best = int(BASE.argmax())
    assert float(learned[best]) == pytest.approx(1 - (1 - float(BASE[best])) ** size, abs=1e-5)
    if size == 1:
        torch.testing.assert_close(learned, BASE, atol=1e-6, rtol=0)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("kl", [0.5, 2.0])
def test_rl_sharpening_has_the_power_of_the_reference_as_its_fixed_point(kl: float) -> None:
    """The expected gradient over all pairs of samples of the policy moves it to pi0^(1 + 1 / kl), normalised."""
    logits = START.clone().requires_grad_()
    for _ in range(400):
        table = log_probs(logits)
        scored, drawn = groups_of_all(2, table)
        resources = make_resources(readings=cast(Readings, Known(table)))
        advantage = LeaveOneOut(kl_in_reward=kl).of_completions(resources, scored).double()
        mine = table[drawn.flatten()]
        batch = sampled_batch(advantage.repeat_interleave(2), mine.detach().flatten())
        loss, _ = Grpo(kl=0.0)(mine.flatten(), batch)
        chance = table.detach().sum(1).exp()[drawn].prod(1).repeat_interleave(2)
        (gradient,) = torch.autograd.grad((chance * loss.view_as(mine).sum(1)).sum() / 2, logits)
        logits = (logits - 1.0 / kl * gradient).detach().requires_grad_()
    wanted = ((1 + 1 / kl) * BASE.log()).softmax(0)
    torch.testing.assert_close(log_probs(logits.detach()).sum(1).exp(), wanted, atol=1e-4, rtol=0)
    assert float(wanted.max()) > float(BASE.max()) + 0.03
