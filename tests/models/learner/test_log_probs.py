"""What must be true of the learner's log-probs, each test named as the theorem it checks."""

import math

import pytest
import torch
from tiny_models import SEQUENCES, VOCABULARY, gradients, plain_log_probs, tiny_policy
from torch import nn

from models.learner import log_probs
from models.learner.log_probs import Sequences, chunked_log_probs, completion_log_probs

EXACT = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.5])
def test_they_equal_a_plain_full_log_softmax(temperature):
    model = tiny_policy()
    found, _ = completion_log_probs(model, SEQUENCES, temperature=temperature)
    torch.testing.assert_close(found, torch.cat(plain_log_probs(model, SEQUENCES, temperature)), **EXACT)


def test_neither_padding_nor_the_rest_of_the_batch_matters():
    model = tiny_policy()
    together, entropy_together = completion_log_probs(model, SEQUENCES)
    alone = [completion_log_probs(model, SEQUENCES.take([row])) for row in range(len(SEQUENCES))]
    torch.testing.assert_close(together, torch.cat([row[0] for row in alone]), **EXACT)
    torch.testing.assert_close(entropy_together, torch.cat([row[1] for row in alone]), **EXACT)


def test_what_follows_a_token_does_not_change_its_log_prob():
    model = tiny_policy()
    longer = Sequences([[3, 4]], [[5, 6, 7]])
    other = Sequences([[3, 4]], [[5, 6, 12]])
    torch.testing.assert_close(
        completion_log_probs(model, longer)[0][:2], completion_log_probs(model, other)[0][:2], **EXACT
    )


def test_chunks_change_neither_values_nor_gradients_and_stay_within_their_limit(monkeypatch):
    def run(model):
        log_prob, entropy = completion_log_probs(model, SEQUENCES, temperature=0.7)
        (log_prob * torch.linspace(-1, 2, log_prob.numel(), dtype=torch.float64)).sum().backward()
        return log_prob.detach(), entropy, gradients(model)

    whole = run(tiny_policy())
    monkeypatch.setattr(log_probs, "CHUNK_ELEMENTS", 3 * VOCABULARY)
    model, rows = tiny_policy(), []
    model.lm_head.register_forward_hook(lambda module, inputs, output: rows.append(output.shape[0]))
    chunked = run(model)
    tokens = sum(len(completion) for completion in SEQUENCES.completions)
    assert max(rows) == 3 and sum(rows) == 2 * tokens  # every chunk again in the backward pass
    for one, other in zip(whole, chunked, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def test_entropy_of_a_half_and_two_quarters_is_one_and_a_half_bits():
    head = nn.Linear(3, 3, bias=False, dtype=torch.float64)
    head.weight.data.copy_(torch.eye(3))
    states = torch.tensor([[0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]], dtype=torch.float64).log()
    log_prob, entropy = chunked_log_probs(states, head, torch.tensor([0, 2]))
    expected = torch.tensor([1.5 * math.log(2), math.log(3)], dtype=torch.float64)
    torch.testing.assert_close(entropy, expected)
    torch.testing.assert_close(log_prob, torch.tensor([0.5, 1 / 3], dtype=torch.float64).log())
    assert not entropy.requires_grad


def test_half_the_temperature_squares_the_odds():
    head = nn.Linear(2, 2, bias=False, dtype=torch.float64)
    head.weight.data.copy_(torch.eye(2))
    states = torch.tensor([[0.75, 0.25]], dtype=torch.float64).log()  # odds 3, squared 9
    log_prob, _ = chunked_log_probs(states, head, torch.tensor([0]), temperature=0.5)
    torch.testing.assert_close(log_prob.exp(), torch.tensor([0.9], dtype=torch.float64))


def test_the_gradient_at_the_logits_is_one_hot_minus_probability():
    head = nn.Linear(3, 3, bias=False, dtype=torch.float64)
    head.weight.data.copy_(torch.eye(3))
    states = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log().requires_grad_()
    log_prob, _ = chunked_log_probs(states, head, torch.tensor([1]))
    (found,) = torch.autograd.grad(log_prob.sum(), states)
    torch.testing.assert_close(found, torch.tensor([[-0.5, 0.75, -0.25]], dtype=torch.float64))


def test_half_precision_logits_still_give_float32_log_probs():
    found, _ = completion_log_probs(tiny_policy(torch.float32), SEQUENCES, autocast=torch.bfloat16)
    exact = torch.cat(plain_log_probs(tiny_policy(), SEQUENCES)).float()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, rtol=0.0, atol=0.5)
