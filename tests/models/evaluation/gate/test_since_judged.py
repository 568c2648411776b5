"""The change of a policy since it was judged: paired over common problems, and worse only if the interval shows it."""

import numpy as np
import pytest

from models.evaluation.bootstrap import paired_bootstrap, unpaired_bootstrap
from models.evaluation.gate.since_judged import ENOUGH, change_since_judged, is_worse
from models.evaluation.metrics import prompt_values
from models.evaluation.records import Completion, PromptRecord

METRIC = "sampled_accuracy"


def evaluation(seed: int, right: float, prompts: int = 100) -> list[PromptRecord]:
    chance = np.random.default_rng(seed)
    made = []
    for number in range(prompts):
        answers = [Completion("x", 4, bool(drawn < right), True) for drawn in chance.random(9)]
        made.append(PromptRecord(f"p{number}", 1, tuple(answers[1:]), answers[0]))
    return made


def test_the_interval_is_the_paired_one_and_that_of_the_same_answers_is_zero() -> None:
    old, new = evaluation(0, 0.7), evaluation(1, 0.5)
    change = change_since_judged(METRIC, old, new, list(zip(old, new, strict=True)), 0.99)
    values = [prompt_values(side, METRIC) for side in (new, old)]
    assert change is not None and change.paired and change.change == paired_bootstrap(*values, confidence=0.99)
    assert is_worse(change)
    same = change_since_judged(METRIC, old, old, [(record, record) for record in old], 0.99)
    assert same is not None and (same.change.low, same.change.high) == (0.0, 0.0) and not is_worse(same)


def test_a_better_policy_and_a_loss_that_may_be_chance_are_not_worse() -> None:
    old = evaluation(0, 0.5)
    for right, seed in ((0.7, 1), (0.49, 2)):
        new = evaluation(seed, right)
        assert not is_worse(change_since_judged(METRIC, old, new, list(zip(old, new, strict=True)), 0.99))


def test_with_few_problems_in_common_the_interval_is_the_unpaired_one() -> None:
    old, new = evaluation(0, 0.7), evaluation(1, 0.5)
    pairs = list(zip(old, new, strict=True))
    enough, few = (change_since_judged(METRIC, old, new, pairs[:count], 0.99) for count in (ENOUGH, ENOUGH - 1))
    assert enough is not None and enough.paired and few is not None and not few.paired
    values = [prompt_values(side, METRIC) for side in (new, old)]
    assert few.change == unpaired_bootstrap(*values, confidence=0.99)


@pytest.mark.parametrize(("prompts", "said"), [(4, False), (12, True)])
def test_a_small_evaluation_is_paired_whole_and_a_tiny_one_says_nothing(prompts: int, said: bool) -> None:
    old, new = evaluation(0, 1.0, prompts), evaluation(1, 0.0, prompts)
    change = change_since_judged(METRIC, old, new, list(zip(old, new, strict=True)), 0.99)
    assert is_worse(change) is said and (change is not None) is said


@pytest.mark.rotating(of=6)
def test_a_night_without_change_is_called_worse_no_more_often_than_the_confidence_says() -> None:
    nights = 400
    worse = 0
    for night in range(nights):
        old, new = evaluation(2 * night, 0.6, 40), evaluation(2 * night + 1, 0.6, 40)
        worse += is_worse(change_since_judged(METRIC, old, new, list(zip(old, new, strict=True)), 0.9))
    assert worse <= nights * 0.05 + 3 * (nights * 0.05 * 0.95) ** 0.5
