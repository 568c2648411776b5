"""Language guards of the gate: short, repetitive or unnatural answers are refused, even if they are correct.

Each refused candidate is better in the metric and worse in one property only.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.evaluation.gate.gate import GateSettings, judge
from models.evaluation.measured import own_phrases
from models.evaluation.records import Completion, PromptRecord

SETTINGS = GateSettings(
    samples=2,
    shortness_margin=0.4,
    phrases_margin=0.5,
    fluency_margin=0.5,
    divergence_margin=None,
    reward_gap_margin=None,
)
GUARDS = {"shortness", "phrases", "fluency"}


def policy(
    right: int, tokens: int = 20, nats: float = 1.5, words: str = "own {0} words {0} stand {0} here"
) -> list[PromptRecord]:
    """Make an evaluation of 90 prompts with two samples, `right` of them correct."""
    records = []
    for number in range(90):
        samples = tuple(
            Completion(
                words.format(f"{number}-{index}"), tokens, index < right, True, start_nats=nats + 0.01 * (number % 7)
            )
            for index in range(2)
        )
        records.append(PromptRecord(f"p{number}", 1, samples, replace(samples[0], correct=right > 0)))
    return records


BASE = policy(0)


def failed(candidate: list[PromptRecord], settings: GateSettings = SETTINGS) -> set[str]:
    verdict = judge(candidate, BASE, settings, reward_model=False)
    assert verdict.promoted == (not any(check.failed for check in verdict.checks))
    return {check.name for check in verdict.checks if check.failed}


def test_a_better_policy_that_speaks_as_before_is_promoted() -> None:
    assert failed(policy(2)) == set()


@pytest.mark.parametrize(
    ("candidate", "guard"),
    [
        (policy(2, tokens=8), "shortness"),
        (policy(2, nats=2.4), "fluency"),
        (policy(2, words="the same words stand in all answers {0}"), "phrases"),
        (policy(2, words="bees {0}"), "phrases"),
        (policy(2, nats=float("nan")), "fluency"),
    ],
)
def test_one_that_speaks_worse_is_refused_by_the_guard_of_it_alone(candidate: list[PromptRecord], guard: str) -> None:
    assert failed(candidate) == {guard}


def test_changes_within_the_margins_pass() -> None:
    assert failed(policy(2, tokens=14, nats=1.8)) == set()


def test_no_guard_of_the_language_is_asked_for_unless_a_recipe_sets_its_margin() -> None:
    plain = replace(SETTINGS, shortness_margin=None, phrases_margin=None, fluency_margin=None)
    verdict = judge(policy(2, tokens=8, nats=9.0), BASE, plain, reward_model=False)
    assert verdict.promoted and not GUARDS & {check.name for check in verdict.checks}


def test_phrases_are_counted_over_all_prompts_by_hand() -> None:
    texts = ["a b c d", "A b c e", "x y", "q q q q q"]
    records = [
        PromptRecord(text, 0, (Completion(text, 4, True, True),), Completion("", 1, True, True)) for text in texts
    ]
    # a-b-c occurs twice, b-c-d and b-c-e once; two words have no phrase; q-q-q occurs three times in one answer
    assert own_phrases(records).tolist() == [0.5, 0.5, 0.0, 0.0]
