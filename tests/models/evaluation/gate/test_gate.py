"""The gate: it promotes only a candidate that is shown to be better, each guard alone can refuse it, and a value that
is missing or not finite refuses it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from models.base.errors import UserError
from models.evaluation.gate.budget import next_look
from models.evaluation.gate.gate import GateSettings, judge
from models.evaluation.records import Completion, PromptRecord

SETTINGS = GateSettings(
    samples=4, diversity_margin=0.5, safety_patterns=("forbidden",), safety_margin=0.05, capability_margin=0.2
)
PROMPTS = 90


def policy(
    right: int,
    *,
    tokens: int = 10,
    score: Callable[[int, int], float] | None = None,
    distinct: int = 4,
    greedy: bool = True,
    flagged: int = 0,
    easiest: int | None = None,
) -> list[PromptRecord]:
    """Make an evaluation of 90 prompts with 4 samples: `right` are correct, or on level 1 `easiest`, if it is given."""
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


def states(
    candidate: Sequence[PromptRecord],
    baseline: Sequence[PromptRecord] = BASE,
    settings: GateSettings = SETTINGS,
    **more: Any,
) -> dict[str, str]:
    verdict = judge(candidate, baseline, settings, **more)
    assert verdict.promoted == (not any(check.failed for check in verdict.checks))
    return {check.name: check.state for check in verdict.checks}


def failed(
    candidate: Sequence[PromptRecord],
    baseline: Sequence[PromptRecord] = BASE,
    settings: GateSettings = SETTINGS,
    **more: Any,
) -> list[str]:
    return [name for name, state in states(candidate, baseline, settings, **more).items() if state == "failed"]


def with_score(records: Sequence[PromptRecord], value: float, prompt: int = 17, sample: int = 2) -> list[PromptRecord]:
    """Return the records with one reward score replaced."""
    record = records[prompt]
    samples = [replace(s, reward_score=value) if i == sample else s for i, s in enumerate(record.samples)]
    return [*records[:prompt], replace(record, samples=tuple(samples)), *records[prompt + 1 :]]


GUARDS = [
    "safety",
    "length",
    "diversity",
    "capability_greedy_accuracy",
    "capability_easiest_accuracy",
    "divergence",
    "reward_gap",
]


def test_a_better_model_that_breaks_nothing_is_promoted() -> None:
    verdict = judge(BETTER, BASE, SETTINGS)
    assert verdict.promoted and verdict.difference.estimate == pytest.approx(0.5) and verdict.difference.low > 0
    assert [check.name for check in verdict.checks] == ["better", *GUARDS, "anchor"]


def test_every_guard_is_held_against_the_champion_and_the_anchor() -> None:
    verdict = judge(BETTER, BASE, SETTINGS, anchor=BASE)
    assert verdict.promoted
    assert [check.name for check in verdict.checks] == ["better", *GUARDS, *(f"{name}_anchor" for name in GUARDS)]


def test_the_same_model_is_never_promoted_over_itself() -> None:
    verdict = judge(BASE, BASE, SETTINGS)
    assert not verdict.promoted and verdict.difference.low <= 0 <= verdict.difference.high
    assert failed(BASE) == ["better"]


def test_a_worse_model_and_one_that_is_better_by_chance_only_are_refused() -> None:
    assert "better" in failed(BASE, BETTER)
    lucky = [*policy(2)[:1], *BASE[1:]]  # one more correct sample, on one of ninety prompts
    assert judge(lucky, BASE, SETTINGS).difference.estimate > 0
    assert failed(lucky) == ["better"]


def test_losses_within_their_margin_do_not_add_up_over_ten_promotions() -> None:
    """Each candidate is a tenth longer than the champion. Compared with the anchor, the third is too long."""
    lengths, champion, anchor = [100], policy(1, tokens=100), policy(1, tokens=100)
    for _ in range(10):
        longer = policy(3, tokens=round(lengths[-1] * 1.1))
        if not failed(longer, champion, anchor=anchor):
            lengths.append(longer[0].samples[0].tokens)
            champion = policy(1, tokens=lengths[-1])
    assert lengths == [100, 110, 121]
    assert failed(policy(3, tokens=133), policy(1, tokens=121), anchor=anchor) == ["length_anchor"]


ONE_FAULT = {
    "safety": policy(3, flagged=24),
    "length": policy(3, tokens=13),
    "diversity": policy(3, distinct=1),
    "capability_greedy_accuracy": policy(3, greedy=False),
    "capability_easiest_accuracy": policy(4, easiest=0),
    "divergence": policy(3, score=lambda index, correct: -1.0 if index < correct else 1.0),
    "reward_gap": policy(3, score=lambda index, correct: 9.0 if index < correct else 8.0),
}


@pytest.mark.parametrize("guard", ONE_FAULT)
def test_each_guard_alone_blocks(guard: str) -> None:
    assert failed(ONE_FAULT[guard], settings=SETTINGS) == [guard]


@pytest.mark.parametrize("guard", ONE_FAULT)
def test_a_guard_without_margin_is_not_asked_for(guard: str) -> None:
    name = "capability_margin" if guard.startswith("capability") else f"{guard}_margin"
    absent: dict[str, Any] = {name: None}
    settings = replace(SETTINGS, **absent)
    assert guard not in states(ONE_FAULT[guard], settings=settings)
    assert failed(ONE_FAULT[guard], settings=settings) == []


@pytest.mark.parametrize(
    ("guard", "margin", "worsened"),
    [
        ("length_margin", 0.3, policy(3, tokens=13)),
        ("diversity_margin", 0.25, policy(3, distinct=3)),
        ("divergence_margin", 1.0, ONE_FAULT["divergence"]),
    ],
)
def test_a_guard_without_any_noise_holds_at_its_margin_and_fails_just_past_it(
    guard: str, margin: float, worsened: list[PromptRecord]
) -> None:
    at_it: dict[str, Any] = {guard: margin}
    past_it: dict[str, Any] = {guard: margin - 1e-6}
    assert failed(worsened, settings=replace(SETTINGS, **at_it)) == []
    assert len(failed(worsened, settings=replace(SETTINGS, **past_it))) == 1


def test_a_guard_is_an_interval_a_loss_that_may_lie_past_the_margin_fails() -> None:
    """18 of 90 greedy answers are lost. The estimate 0.2 equals the margin, but the interval reaches beyond it."""
    losing = [replace(r, greedy=replace(r.greedy, correct=n >= 18)) for n, r in enumerate(policy(3))]
    assert failed(losing) == ["capability_greedy_accuracy"]
    assert failed(losing, settings=replace(SETTINGS, capability_margin=0.28)) == []


INVERTED = policy(3, score=lambda index, correct: -1.0 if index < correct else 1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_score_that_is_not_finite_refuses_also_with_an_inverted_reward_model(value: float) -> None:
    assert failed(INVERTED) == ["divergence"]
    broken = with_score(INVERTED, value)
    assert failed(broken) == ["divergence", "reward_gap"]
    detail = next(check.detail for check in judge(broken, BASE, SETTINGS).checks if check.name == "divergence")
    assert detail == "1 of 360 numbers (reward score of the candidate) are missing or not finite"


def test_a_score_of_the_baseline_or_the_anchor_that_is_not_finite_refuses() -> None:
    assert failed(BETTER, with_score(BASE, math.nan)) == ["divergence", "reward_gap"]
    assert failed(BETTER, anchor=with_score(BASE, math.nan)) == ["divergence_anchor", "reward_gap_anchor"]


def test_a_reward_model_that_says_one_thing_of_everything_refuses() -> None:
    flat = policy(1, score=lambda index, correct: 1.0)
    assert "reward_gap" in failed(BETTER, flat)


def test_without_a_reward_model_in_the_recipe_its_guards_are_not_applicable_and_say_so() -> None:
    silent = (policy(3, score=lambda index, correct: math.nan), policy(1, score=lambda index, correct: math.nan))
    checks = {check.name: check for check in judge(*silent, SETTINGS, reward_model=False).checks}
    assert judge(*silent, SETTINGS, reward_model=False).promoted
    for guard in ("divergence", "reward_gap"):
        assert checks[guard].state == "not_applicable" and checks[guard].detail == "the recipe fits no reward model"
    assert failed(*silent) == ["divergence", "reward_gap"]  # with a reward model, scores are missing


def test_nothing_wrong_left_to_compare_with_is_not_applicable() -> None:
    checks = {check.name: check for check in judge(policy(4), BASE, SETTINGS).checks}
    assert checks["divergence"].state == "not_applicable"
    assert checks["divergence"].detail == "0 of 90 prompts have a wrong sample, too few to compare right with wrong"
    assert judge(policy(4), BASE, SETTINGS).promoted


def test_a_metric_that_is_not_finite_refuses() -> None:
    nan: dict[str, Any] = {"correct": math.nan}
    lost = [replace(record, samples=tuple(replace(s, **nan) for s in record.samples)) for record in BETTER]
    assert "better" in failed(lost)


def test_a_spent_budget_refuses_whatever_the_difference_and_names_the_way_out() -> None:
    verdict = judge(BETTER, BASE, SETTINGS, look=SETTINGS.next_look(365, 0.05))
    assert [check.name for check in verdict.checks if check.failed] == ["better"]
    assert "take a new gate split" in verdict.checks[0].detail and verdict.detectable == math.inf


def test_a_later_look_asks_for_more_evidence() -> None:
    small = [*policy(2)[:12], *BASE[12:]]
    assert failed(small, look=next_look(0, 0.0, budget=0.5, looks=1)) == []
    assert failed(small, look=SETTINGS.next_look(364, 0.04)) == ["better"]


def test_the_verdict_states_what_it_could_have_seen_and_what_is_left_of_the_budget() -> None:
    noisy = [policy(1 + int(np.random.default_rng(n).integers(0, 3)))[n] for n in range(PROMPTS)]
    verdict = judge(noisy, policy(2), SETTINGS)
    assert 0 < verdict.detectable < 0.5
    seen, budget = verdict.lines
    assert f"{verdict.detectable:.3f}" in seen and "80 % power" in seen
    assert budget.startswith("look 1 of 365") and "is left" in budget


def test_the_order_of_the_prompts_does_not_matter_and_other_prompts_are_refused() -> None:
    assert judge(BETTER, BASE[::-1], SETTINGS, anchor=BASE[::-1]) == judge(BETTER, BASE, SETTINGS, anchor=BASE)
    with pytest.raises(UserError, match="not measured on the same prompts"):
        judge(BETTER, BASE[1:], SETTINGS)
    with pytest.raises(UserError, match="not measured on the same prompts"):
        judge(BETTER, BASE, SETTINGS, anchor=BASE[1:])


def test_another_metric_may_decide() -> None:
    assert not judge(BETTER, BASE, replace(SETTINGS, metric="greedy_accuracy")).promoted  # the greedy answers are equal
    assert judge(BETTER, BASE, replace(SETTINGS, metric="level_2_accuracy")).promoted
    with pytest.raises(UserError, match="level_9_accuracy is defined on none"):
        judge(BETTER, BASE, replace(SETTINGS, metric="level_9_accuracy"))
    with pytest.raises(UserError, match=r"gate\.capabilities: level_9_accuracy is defined on none"):
        judge(BETTER, BASE, replace(SETTINGS, capabilities=("level_9_accuracy",)))


def test_settings_that_make_no_sense_are_refused_before_anything_runs() -> None:
    senseless: dict[str, Any] = {
        "metric": "acuracy",
        "capabilities": ("pass_at_0",),
        "confidence": 1.0,
        "error_budget": 0.0,
        "looks": 0,
        "problems": 0,
        "length_margin": -0.1,
        "divergence_margin": math.nan,
        "safety_patterns": ("(",),
    }
    for key, value in senseless.items():
        with pytest.raises(UserError):
            GateSettings(**{key: value})
    with pytest.raises(UserError, match="tokens is not a share"):
        GateSettings(metric="tokens")
    with pytest.raises(UserError, match=r"gate\.samples is 8, but the gate's metrics need 16"):
        GateSettings(capabilities=("pass_at_16",), samples=8)
    with pytest.raises(ValidationError, match="margin"):
        TypeAdapter(GateSettings).validate_python({"margin": 0.1})  # an unknown key
    assert TypeAdapter(GateSettings).validate_python({"capabilities": ["pass_at_16"]}).samples_needed == 16
