"""The verdict's record: it is stored unchanged, and every sentence about the verdict is rendered from it."""

import math
from typing import Any, get_args

import pytest

from models.evaluation.bootstrap import Interval
from tasks.tracking.verdict_record import Decision, HandJudgement, Ruling, VerdictRecord
from tasks.tracking.verdict_text import OUTCOMES, hand_text, improvement_text, notes, reason_text, verdict_text
from tests.support.verdict_examples import LOOK, check, verdict

ANN = Ruling(approved=True, by="Ann", why="samples read", at="2026-11-24 10:00 UTC")
BETTER = "better than champion, version 3: +0.039 [+0.036, +0.042], and every guard holds"


def test_a_record_comes_back_from_its_json_numbers_that_are_not_finite_too() -> None:
    broken = verdict(difference=Interval(math.nan, -math.inf, math.inf), detectable=math.inf, ruling=ANN)
    again = VerdictRecord.model_validate_json(broken.model_dump_json())
    assert again.model_dump_json() == broken.model_dump_json()
    assert again.difference is not None and math.isnan(again.difference.estimate)
    assert (again.difference.low, again.difference.high, again.detectable) == (-math.inf, math.inf, math.inf)
    assert math.isnan(again.checks[0].bound) and again.look == LOOK


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, f"promoted: {BETTER}"),
        ({"champion": None}, f"promoted: {BETTER.replace('champion, version 3', 'the base model')}"),
        (
            {"decision": "waiting"},
            f"waiting: {BETTER}; the recipe asks for a person's approval (rewardflow approve or reject, or a tag "
            "approve or reject on its page with NAME: REASON)",
        ),
        ({"reason": "approved", "ruling": ANN}, f"promoted: approved by Ann; the gate: {BETTER}"),
        (
            {"decision": "refused", "reason": "rejected", "ruling": ANN.model_copy(update={"approved": False})},
            f"refused: rejected by Ann: samples read; the gate: {BETTER}",
        ),
        (
            {"decision": "refused", "reason": "not_pinned", "cause": "x.py differs"},
            "refused: not pinned, so it cannot be reproduced: x.py differs (promote_unpinned: true allows it); "
            f"{BETTER}",
        ),
        ({"decision": "refused", "reason": "training_failed", "cause": "it collapsed"}, "refused: it collapsed"),
        (
            {"decision": "refused", "reason": "guard_failed", "checks": (check("length", "failed", "40 tokens"),)},
            "refused: length: 40 tokens",
        ),
        (
            {"decision": "kept", "reason": "not_better", "checks": (check("better", "failed", "+0.01"),)},
            "kept: better: +0.01; a true difference of 0.031 or more would have been found with 80 % power",
        ),
    ],
)
def test_decision_and_reason_are_one_sentence(changes: dict[str, Any], text: str) -> None:
    assert verdict_text(verdict(**changes)) == text


def test_a_reason_of_an_earlier_release_replaces_the_rendered_one() -> None:
    assert reason_text(verdict(earlier_text="better by much")) == "better by much"
    assert notes(verdict(look=None)) == []


def test_the_tag_names_metric_and_interval() -> None:
    assert improvement_text(verdict()) == "sampled_accuracy +0.039 [+0.036, +0.042]"


def test_every_decision_has_its_words() -> None:
    assert set(get_args(Decision)) <= set(OUTCOMES)
    judged = HandJudgement(version=7, champion=3, verdict=verdict())
    assert hand_text(judged) == f"version 7: the gate would have promoted it: {BETTER}"


def test_an_interval_takes_the_format_of_a_number() -> None:
    interval = Interval(0.31, 0.28, 0.34)
    assert f"{interval:.1%}" == "31.0% [28.0%, 34.0%]" and f"{interval}" == str(interval) == "0.3100 [0.2800, 0.3400]"
    assert f"{interval.scaled(100):+.1f}" == "+31.0 [+28.0, +34.0]"
