"""Demonstrations of several turns: their encoding, the tokens that count in the loss, and the weights."""

from typing import Any

import pytest
import torch

from models.agents.play.demonstrations import in_turns
from models.datasets.schema import TURNS
from models.learner.all_completions import all_log_probs
from models.learner.packing import Sequences
from models.learner.supervised import TokenCounts, accumulate, negative_log_likelihood
from models.text.bridge import bridge_of
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import CODEC

ROWS = [
    ("1 + 2 =", ("3 +", "4 5", "6 ;", "7", "8 = 9")),
    ("7", ("5",)),
    ("3 +", ("8 =", "error: 1 2", "2 + 2")),
    ("1 + 2 =", ("3 +", "9", "1")),
]


def rows() -> list[tuple[list[int], str]]:
    prompts = CODEC.prompts([prompt for prompt, _ in ROWS])
    return [(ids, TURNS.join(turns)) for ids, (_, turns) in zip(prompts, ROWS, strict=True)]


def a_sequence_a_turn() -> tuple[list[tuple[int, ...]], list[tuple[int, ...]], list[str]]:
    """Return every turn as a sequence after its history, and the environment's answer to it."""
    bridge = bridge_of(CODEC)
    prompts, completions, answers = [], [], []
    for ids, (_, turns) in zip(CODEC.prompts([prompt for prompt, _ in ROWS]), ROWS, strict=True):
        history = tuple(ids)
        for place, turn in enumerate(turns):
            if place % 2:
                history += tuple(bridge.ids([turn])[0])
                continue
            said = tuple(CODEC.completions([turn])[0])
            prompts.append(history)
            completions.append(said)
            answers.append(turns[place + 1] if place + 1 < len(turns) else "")
            history += said
    return prompts, completions, answers


def gradients(sequences: Sequences) -> tuple[float, list[torch.Tensor]]:
    policy: Any = tiny_policy(torch.float64)
    loss = accumulate(policy, sequences, 4096, None)
    return float(loss), [parameter.grad for parameter in policy.parameters() if parameter.grad is not None]


def test_the_masked_gradient_is_that_of_the_turns_taken_as_single_prompts() -> None:
    prompts, completions, _ = a_sequence_a_turn()
    whole, apart = gradients(in_turns(CODEC, "user", rows(), 99)), gradients(Sequences(prompts, completions))
    assert whole[0] == pytest.approx(apart[0], rel=1e-12)
    for one_sequence, single in zip(whole[1], apart[1], strict=True):
        torch.testing.assert_close(one_sequence, single, rtol=1e-12, atol=1e-12)


def test_counts_of_one_are_plain_fine_tuning_bit_for_bit() -> None:
    plain, counted = in_turns(CODEC, "user", rows(), 99), in_turns(CODEC, "user", rows(), 99, TokenCounts())
    assert plain == counted and plain.weights is not None
    assert {weight for row in plain.weights for weight in row} == {0.0, 1.0}


@pytest.mark.parametrize("erroneous", [0.0, 0.5, 2.0])
def test_a_turn_that_was_answered_by_an_error_counts_as_set(erroneous: float) -> None:
    prompts, completions, answers = a_sequence_a_turn()
    made = in_turns(CODEC, "user", rows(), 99, TokenCounts(erroneous=erroneous))
    policy = tiny_policy(torch.float64)
    logs = [float(row.sum()) for row in all_log_probs(policy, Sequences(prompts, completions))]
    weights = [erroneous if answer.startswith("error:") else 1.0 for answer in answers]
    lengths = [len(ids) for ids in completions]
    expected = -sum(w * log for w, log in zip(weights, logs, strict=True))
    expected /= sum(w * n for w, n in zip(weights, lengths, strict=True))
    assert negative_log_likelihood(policy, made, 4096) == pytest.approx(expected, rel=1e-12)


def test_what_stands_between_quotation_marks_counts_more_and_the_end_of_a_turn_does_not() -> None:
    codec = Codec(train_tokenizer(["x"], TokenizerSettings(kind="bytes", vocabulary=259)))
    turn = '{"name": "día", "n": 4}'
    [weights] = in_turns(codec, "user", [([3], turn)], 99, TokenCounts(key=3.0)).weights or []
    bold = bytes(byte for byte, weight in zip(turn.encode(), weights, strict=False) if weight == 3.0).decode()
    assert bold == "namedían" and set(weights) == {1.0, 3.0} and weights[-1] == 1.0


def test_a_turn_without_room_and_what_follows_it_are_left_out() -> None:
    for longest in range(1, 24):
        made = in_turns(CODEC, "user", rows(), longest)
        assert all(length <= longest for length in made.lengths)
        assert all(row[-1] for row in made.weights or [])
    assert len(in_turns(CODEC, "user", rows(), 1)) == 0


def test_a_demonstration_of_which_nothing_counts_is_left_out() -> None:
    failed = TURNS.join(("8 =", "error: no"))
    made = in_turns(CODEC, "user", [(list(CODEC.prompts(["7"])[0]), failed)], 99, TokenCounts(erroneous=0.0))
    assert len(made) == 0
