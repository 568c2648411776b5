"""DPO with mean log-ratios and with a price for length: pairs by hand, DPO as a limit, and the optimal policy."""

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
"""Completion of each token: the better answer has four tokens, the worse two."""


def loss_of(objective: LengthDpo, better: float, worse: float) -> float:
    """Return the loss of one pair with these log-ratios per token."""
    log_prob = numbers(*[better] * 4, *[worse] * 2)
    nothing = torch.zeros(6, dtype=torch.float64)
    batch = make_batch(nothing, nothing, nothing, nothing, OF, torch.tensor([[0, 1]]))
    return objective(batch.by_pair(log_prob), batch)[0].item()


def test_pairs_by_hand() -> None:
    # sums -2 and -2; means -0.5 and -1; the better answer is two tokens longer
    assert loss_of(LengthDpo(beta=1.0), -0.5, -1.0) == pytest.approx(math.log(2))
    assert loss_of(LengthDpo(beta=1.0, average="tokens"), -0.5, -1.0) == pytest.approx(math.log(1 + math.exp(-0.5)))
    assert loss_of(LengthDpo(beta=1.0, length_weight=0.3), -0.5, -1.0) == pytest.approx(math.log(1 + math.exp(-0.6)))


def test_with_neither_it_is_dpo() -> None:
    pairs = random_pairs()
    mine, dpo = as_it_is(LengthDpo(beta=0.3), pairs), as_it_is(Dpo(beta=0.3), pairs)
    torch.testing.assert_close(mine, dpo, rtol=0, atol=0)


@pytest.mark.parametrize("weight", [0.0, 0.4, -0.2])
def test_its_optimum_gives_up_reward_for_tokens(weight: float) -> None:
    """All pairs of four answers of one to four tokens, labelled by Bradley-Terry in the reward. The gradient is zero at
    the policy that maximises reward less `weight` per token less the KL; DPO's is not, unless `weight` is 0."""
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
