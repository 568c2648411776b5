"""Readings of a round's log-probs: each completion is read once, under the policy and under the reference."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.readings import Readings
from models.method.rollout import Rollout
from tests.support.tiny_models import plain_log_probs, tiny_policy

PROMPT = (3, 5, 7)
ROLLOUTS = [
    Rollout(Problem("p", "", tokens=PROMPT), 0, completion, None, "", True) for completion in ((2, 4), (6,), (8, 9, 1))
]


class Counting(Readings):
    """Readings that count the completions that were read."""

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner, 100)
        self.read = 0

    def under(
        self, model: nn.Module, sequences: Sequences, rollouts: Sequence[Rollout] = (), masked: bool = False
    ) -> list[Tensor]:
        self.read += len(sequences)
        assert masked and len(rollouts) == len(sequences)
        return super().under(model, sequences, rollouts, masked)


def learner_of(reference: bool = True) -> Learner:
    policy = tiny_policy()
    optimiser = torch.optim.SGD(policy.parameters(), lr=0.1)
    return Learner(policy, optimiser, tiny_policy(seed=1) if reference else None, None, None, MODEL_DISTRIBUTION)


def test_each_completion_is_read_once_whoever_asks_and_in_whatever_order() -> None:
    readings = Counting(learner_of())
    first = readings.reference(ROLLOUTS[:2])
    again = readings.reference([ROLLOUTS[2], ROLLOUTS[0]])
    assert again is not None
    assert first is not None
    assert readings.read == 3 and again[1] is first[0]
    readings.policy(ROLLOUTS)
    readings.policy(ROLLOUTS[1:])
    assert readings.read == 6


def test_what_is_read_are_the_log_probs_of_policy_and_reference() -> None:
    learner = learner_of()
    readings = Readings(learner, 100)
    sequences = Sequences([PROMPT] * 3, [rollout.completion for rollout in ROLLOUTS])
    for rows, model in ((readings.policy(ROLLOUTS), learner.policy), (readings.reference(ROLLOUTS), learner.reference)):
        assert rows is not None
        for row, expected in zip(rows, plain_log_probs(model, sequences), strict=True):
            torch.testing.assert_close(row, expected.detach(), rtol=1e-10, atol=1e-10)


def test_a_completion_with_the_same_tokens_is_another_completion() -> None:
    readings = Counting(learner_of())
    same = [Rollout(rollout.problem, 1, rollout.completion, None, "", True) for rollout in ROLLOUTS]
    readings.reference(ROLLOUTS)
    readings.reference(same)
    assert readings.read == 6


def test_without_a_reference_there_is_nothing_to_read() -> None:
    readings = Counting(learner_of(reference=False))
    assert readings.reference(ROLLOUTS) is None and readings.read == 0
