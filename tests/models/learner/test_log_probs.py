"""The learner's log-probs: they equal a plain full log-softmax and do not depend on the rest of the row."""

from typing import Any

import pytest
import torch

from models.learner.distribution import Distribution
from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences
from tests.support.tiny_models import SEQUENCES, plain_log_probs, tiny_policy

EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.5])
def test_they_equal_a_plain_full_log_softmax(temperature: float) -> None:
    model = tiny_policy()
    log_probs, _ = completion_log_probs(model, SEQUENCES, distribution=Distribution(temperature=temperature))
    torch.testing.assert_close(log_probs, torch.cat(plain_log_probs(model, SEQUENCES, temperature)), **EXACT)


def test_the_rest_of_the_row_does_not_matter() -> None:
    model = tiny_policy()
    together, entropy_together = completion_log_probs(model, SEQUENCES)
    alone = [completion_log_probs(model, SEQUENCES.take([row])) for row in range(len(SEQUENCES))]
    torch.testing.assert_close(together, torch.cat([row[0] for row in alone]), **EXACT)
    torch.testing.assert_close(entropy_together, torch.cat([row[1] for row in alone]), **EXACT)


def test_what_follows_a_token_does_not_change_its_log_prob() -> None:
    model = tiny_policy()
    longer = Sequences([[3, 4]], [[5, 6, 7]])
    other = Sequences([[3, 4]], [[5, 6, 12]])
    torch.testing.assert_close(
        completion_log_probs(model, longer)[0][:2], completion_log_probs(model, other)[0][:2], **EXACT
    )


def test_half_precision_products_still_give_float32_log_probs() -> None:
    log_probs, _ = completion_log_probs(tiny_policy(torch.float32), SEQUENCES, autocast=torch.bfloat16)
    exact = torch.cat(plain_log_probs(tiny_policy(), SEQUENCES)).float()
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs, exact, rtol=0.0, atol=0.5)


def test_a_completion_without_a_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing predicts the first token"):
        completion_log_probs(tiny_policy(), Sequences([[3], []], [[4], [5]]))
