"""What must be true of DPO by token and with length paid for, each test named as the theorem it checks."""

import math

import pytest
import torch
from torch import Tensor

from models.parts.objective.dpo import Dpo
from models.parts.objective.length_dpo import LengthDpo
from tests.support.enumerable_pairs import CHANCE, PAIRS, REFERENCE, REWARDS
from tests.support.ragged_pairs import as_it_is, random_pairs
from tests.support.tiny_batches import make_batch, numbers

OF = torch.tensor([0, 0, 0, 0, 1, 1])
"""Four tokens of the better answer, two of the worse."""


def loss_of(objective: LengthDpo, better: float, worse: float) -> float:
    """Loss of one pair whose log-ratios are these, by token."""
    log_prob = numbers(*[better] * 4, *[worse] * 2)
    nothing = torch.zeros(6, dtype=torch.float64)
    batch = make_batch(nothing, nothing, nothing, nothing, OF, torch.tensor([[0, 1]]))
    return objective(batch.by_pair(log_prob), batch)[0].item()


def test_pairs_by_hand() -> None:
    # sums -2 and -2; means -0.5 and -1; two tokens longer
    assert loss_of(LengthDpo(beta=1.0), -0.5, -1.0) == pytest.approx(math.log(2))
    assert loss_of(LengthDpo(beta=1.0, average="tokens"), -0.5, -1.0) == pytest.approx(math.log(1 + math.exp(-0.5)))
    assert loss_of(LengthDpo(beta=1.0, length_weight=0.3), -0.5, -1.0) == pytest.approx(math.log(1 + math.exp(-0.6)))


def test_with_neither_it_is_dpo() -> None:
    pairs = random_pairs()
    mine, dpo = as_it_is(LengthDpo(beta=0.3), pairs), as_it_is(Dpo(beta=0.3), pairs)
    torch.testing.assert_close(mine, dpo, rtol=0, atol=0)


@pytest.mark.parametrize("weight", [0.0, 0.4, -0.2])
def test_its_optimum_gives_up_reward_for_tokens(weight: float) -> None:
    """Answers of one to four tokens, all pairs of them, labels by Bradley-Terry in the reward: the policy that makes
    reward less `weight` a token less the KL largest has no gradient, and DPO pulls it towards the longer answers."""
    beta, lengths = 0.5, torch.tensor([1, 4, 2, 3])
    logits = (REFERENCE + (REWARDS - weight * lengths) / beta).requires_grad_()
    answers = PAIRS.flatten()
    of = torch.arange(len(answers)).repeat_interleave(lengths[answers])
    nothing = torch.zeros(len(of), dtype=torch.float64)
    batch = make_batch(
        nothing, nothing, nothing, (REFERENCE / lengths)[answers[of]], of, torch.arange(len(answers)).reshape(-1, 2)
    )

    def pull(objective: Dpo) -> Tensor:
        loss, _ = objective(logits.log_softmax(0)[PAIRS], batch)
        return torch.autograd.grad((CHANCE * loss).sum(), logits)[0]

    torch.testing.assert_close(pull(LengthDpo(beta=beta, length_weight=weight)), torch.zeros_like(logits))
    assert not weight or pull(Dpo(beta=beta)).abs().max() > 1e-2
