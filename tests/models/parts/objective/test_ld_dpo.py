"""Length-desensitised DPO: a pair by hand, DPO as a limit, and the published loss and gradient."""

import math

import pytest
import torch
from torch import Tensor

from models.parts.objective.dpo import Dpo
from models.parts.objective.ld_dpo import LengthDesensitisedDpo
from tests.support.ragged_pairs import as_it_is, random_pairs
from tests.support.tiny_batches import gradient_of, make_batch, numbers


def test_a_pair_by_hand() -> None:
    """The better answer has three tokens of log-ratio 1, the worse one of -1; the last two tokens count a quarter."""
    nothing, of = torch.zeros(4, dtype=torch.float64), torch.tensor([0, 0, 0, 1])
    batch = make_batch(nothing, nothing, nothing, nothing, of, torch.tensor([[0, 1]]))
    log_prob = numbers(1.0, 1.0, 1.0, -1.0)
    objective = LengthDesensitisedDpo(beta=1.0, tail=0.25)
    assert objective(log_prob, batch)[0].tolist() == pytest.approx([math.log(1 + math.exp(-2.5))])
    first, second, third, worse = gradient_of(objective, log_prob, batch).tolist()
    assert first == -worse and second == third == pytest.approx(first / 4)


def test_with_whole_tails_it_is_dpo() -> None:
    pairs = random_pairs()
    whole, _ = LengthDesensitisedDpo(beta=0.3, tail=1.0)(pairs.log_prob, pairs.batch)
    torch.testing.assert_close(whole, as_it_is(Dpo(beta=0.3), pairs)[0], rtol=0, atol=1e-14)


@pytest.mark.parametrize("tail", [0.0, 0.4])
@pytest.mark.parametrize("seed", [0, 1])
def test_loss_and_gradient_are_the_published_ones(seed: int, tail: float) -> None:
    """The published formula is TRL 1.16's `ld_alpha` (trl/trainer/dpo_trainer.py), computed pair by pair."""
    pairs = random_pairs(seed)
    loss, _ = LengthDesensitisedDpo(beta=0.4, tail=tail)(pairs.log_prob, pairs.batch)
    published, reference = [], pairs.batch.reference
    assert reference is not None and pairs.batch.pairs is not None
    for number in range(len(pairs.batch.pairs)):
        w, l, rw, rl = [  # noqa: E741 - as the paper has it
            row for values in (pairs.log_prob, reference) for row in pairs.answers(values, number)
        ]
        shared = min(len(w), len(l))

        def scaled(row: Tensor, shared: int = shared) -> Tensor:
            return row[:shared].sum() + tail * row[shared:].sum()

        delta = scaled(w) - scaled(rw) - (scaled(l) - scaled(rl))
        published.append(torch.log1p(torch.exp(-0.4 * delta)))
    torch.testing.assert_close(loss, torch.stack(published), rtol=0, atol=1e-12)
    mine, theirs = (
        torch.autograd.grad(total, pairs.log_prob)[0] for total in (loss.sum(), torch.stack(published).sum())
    )
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
