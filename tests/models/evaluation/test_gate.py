"""What must be true of the gate: nothing gets past it that is not shown better, and each guard can shut it alone."""

import math
from dataclasses import replace

import pytest
from pydantic import TypeAdapter, ValidationError

from models.errors import UserError
from models.evaluation.gate import GateSettings, judge
from models.evaluation.records import Completion, PromptRecord

SETTINGS = GateSettings(resamples=500, diversity_margin=0.5, safety_patterns=("forbidden",))
PROMPTS = 60


def policy(right, *, tokens=10, score=None, distinct=4, greedy=True, flagged=0, easiest=None):
    """An evaluation of 60 prompts with 4 samples, `right` of them correct; on level 1 `easiest` where it is given."""
    records = []
    for number in range(PROMPTS):
        level = 1 + number % 3
        correct = easiest if easiest is not None and level == 1 else right
        samples = tuple(
            Completion(
                text=f"text {index % distinct} {'forbidden' if number * 4 + index < flagged else ''} #### {number}",
                tokens=tokens,
                correct=index < correct,
                finished=True,
                reward_score=(1.0 if index < correct else -1.0) if score is None else score(index, correct),
            )
            for index in range(4)
        )
        first = replace(samples[0], correct=greedy)
        records.append(PromptRecord(id=f"p{number}", level=level, samples=samples, greedy=first))
    return records


BASE, BETTER = policy(1), policy(3)


def failed(candidate, baseline=BASE, settings=SETTINGS):
    verdict = judge(candidate, baseline, settings)
    names = [check.name for check in verdict.checks if not check.passed]
    assert verdict.promoted == (not names)
    return names


def test_a_better_model_that_breaks_nothing_is_promoted():
    verdict = judge(BETTER, BASE, SETTINGS)
    assert verdict.promoted and verdict.difference.estimate == pytest.approx(0.5) and verdict.difference.low > 0
    assert [check.name for check in verdict.checks] == [
        "better",
        "safety",
        "length",
        "diversity",
        "capability_greedy_accuracy",
        "capability_easiest_accuracy",
        "divergence",
        "reward_gap",
    ]


def test_the_same_model_is_never_promoted_over_itself():
    verdict = judge(BASE, BASE, SETTINGS)
    assert not verdict.promoted and verdict.difference.low <= 0 <= verdict.difference.high
    assert failed(BASE) == ["better"]


def test_a_worse_model_and_one_that_is_better_by_chance_only_are_refused():
    assert "better" in failed(BASE, BETTER)
    lucky = [*policy(2)[:1], *BASE[1:]]  # one prompt of sixty, once
    assert judge(lucky, BASE, SETTINGS).difference.estimate > 0
    assert failed(lucky) == ["better"]


ONE_FAULT = {
    "safety": policy(3, flagged=1),
    "length": policy(3, tokens=13),
    "diversity": policy(3, distinct=1),
    "capability_greedy_accuracy": policy(3, greedy=False),
    "capability_easiest_accuracy": policy(4, easiest=0),
    "divergence": policy(3, score=lambda index, correct: -1.0 if index < correct else 1.0),
    "reward_gap": policy(3, score=lambda index, correct: 9.0 if index < correct else 8.0),
}


@pytest.mark.parametrize("guard", ONE_FAULT)
def test_each_guard_alone_blocks(guard):
    assert failed(ONE_FAULT[guard]) == [guard]


@pytest.mark.parametrize("guard", ONE_FAULT)
def test_a_guard_without_margin_is_not_asked_for(guard):
    name = "capability_margin" if guard.startswith("capability") else f"{guard}_margin"
    settings = replace(SETTINGS, **{name: None})
    assert guard not in [check.name for check in judge(ONE_FAULT[guard], BASE, settings).checks]
    assert failed(ONE_FAULT[guard], settings=settings) == []


@pytest.mark.parametrize(
    ("guard", "margin", "worsened"),
    [
        ("safety_margin", 24 / 240, policy(3, flagged=24)),
        ("length_margin", 0.3, policy(3, tokens=13)),
        ("diversity_margin", 0.25, policy(3, distinct=3)),
        ("capability_margin", 1.0, policy(3, greedy=False)),
        ("divergence_margin", 1.0, ONE_FAULT["divergence"]),
    ],
)
def test_a_guard_holds_at_its_margin_and_fails_just_past_it(guard, margin, worsened):
    assert failed(worsened, settings=replace(SETTINGS, **{guard: margin})) == []
    assert len(failed(worsened, settings=replace(SETTINGS, **{guard: margin - 1e-6}))) == 1


def test_a_policy_without_reward_model_is_judged_by_the_rest():
    silent = [policy(right, score=lambda index, correct: math.nan) for right in (3, 1)]
    verdict = judge(*silent, SETTINGS)
    assert verdict.promoted
    undefined = {check.name: check for check in verdict.checks if "not defined" in check.detail}
    assert set(undefined) == {"divergence", "reward_gap"} and math.isnan(undefined["divergence"].value)


def test_the_order_of_the_prompts_does_not_matter_and_other_prompts_are_refused():
    assert judge(BETTER, BASE[::-1], SETTINGS) == judge(BETTER, BASE, SETTINGS)
    with pytest.raises(UserError, match="not measured on the same prompts"):
        judge(BETTER, BASE[1:], SETTINGS)


def test_another_metric_may_decide():
    assert not judge(BETTER, BASE, replace(SETTINGS, metric="greedy_accuracy")).promoted  # the greedy ones are equal
    assert judge(BETTER, BASE, replace(SETTINGS, metric="level_2_accuracy")).promoted
    with pytest.raises(UserError, match="level_9_accuracy is defined on none"):
        judge(BETTER, BASE, replace(SETTINGS, metric="level_9_accuracy"))
    with pytest.raises(UserError, match=r"gate\.capabilities: level_9_accuracy is defined on none"):
        judge(BETTER, BASE, replace(SETTINGS, capabilities=("level_9_accuracy",)))


def test_settings_that_make_no_sense_are_refused_before_anything_runs():
    for key, value in {
        "metric": "acuracy",
        "capabilities": ("pass_at_0",),
        "confidence": 1.0,
        "resamples": 5,
        "length_margin": -0.1,
        "divergence_margin": math.nan,
        "safety_patterns": ("(",),
    }.items():
        with pytest.raises(UserError):
            GateSettings(**{key: value})
    with pytest.raises(ValidationError, match="margin"):
        TypeAdapter(GateSettings).validate_python({"margin": 0.1})  # an unknown key
    assert TypeAdapter(GateSettings).validate_python({"capabilities": ["pass_at_16"]}).samples_needed == 16
