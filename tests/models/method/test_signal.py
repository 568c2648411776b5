"""Signals and rewards by completion and by token: all advantages return a signal, and token rewards are summed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.method.advantage import Advantage, Signal
from models.method.registry import parts
from models.method.resources import RunResources
from models.method.reward import TokenReward
from models.method.rollout import Rollout
from models.parts.advantage.group_relative import GroupRelative
from models.training.score import score
from tests.support.tiny_models import COMPLETIONS, SEQUENCES, scored
from tests.support.tiny_resources import make_resources

LENGTHS = [len(ids) for ids in COMPLETIONS]
VALUES = torch.tensor([1 / 3, -2.0, 0.0, 5.0, 1e-9], dtype=torch.float64)
ROUND = scored(VALUES, [2, 3], sequences=SEQUENCES)


def test_a_completions_value_stands_at_each_of_its_tokens_to_the_last_bit() -> None:
    signal = Signal.of_completions(VALUES, torch.tensor(LENGTHS))
    assert [row.tolist() for row in signal.tokens] == [
        [value] * n for value, n in zip(VALUES.tolist(), LENGTHS, strict=True)
    ]
    assert signal.returns is None


def test_an_advantage_of_completions_gives_a_signal_as_every_other_does() -> None:
    whole = GroupRelative().of_completions(make_resources(), ROUND)
    signal = GroupRelative()(make_resources(), ROUND)
    assert isinstance(signal, Signal) and [len(row) for row in signal.tokens] == LENGTHS
    assert all(torch.equal(row, value.expand(len(row))) for row, value in zip(signal.tokens, whole, strict=True))


def test_every_advantage_says_that_it_gives_a_signal_and_nothing_else() -> None:
    metrics = {name: part.__call__.__annotations__["return"] for name, part in parts("advantage").items()}
    assert set(metrics.values()) == {"Signal", "ValuedSignal"}, metrics
    assert Advantage.__call__.__annotations__["return"] == "Signal"


class Counting(TokenReward):
    """Reward of 1 for the first token of a completion, 2 for the second, and so on."""

    name = "counting"

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        return [torch.arange(1.0, len(rollout.completion) + 1) for rollout in rollouts]


def test_a_reward_by_token_is_worth_the_sum_of_its_tokens() -> None:
    reward = Counting(weight=0.5)
    assert reward.by_token
    assert reward(make_resources(), ROUND.rollouts).tolist() == [n * (n + 1) / 2 for n in LENGTHS]
    worth = score(make_resources(), [reward, Counting(weight=1.0, label="again")], ROUND.rollouts)
    assert worth.components["counting"].tolist() == [n * (n + 1) / 2 for n in LENGTHS]
    assert worth.token_rewards is not None
    assert [row.tolist() for row in worth.token_rewards] == [[1.5 * t for t in range(1, n + 1)] for n in LENGTHS]
    torch.testing.assert_close(worth.rewards, torch.stack([row.sum() for row in worth.token_rewards]))
