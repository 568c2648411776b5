"""The page of a report on a reward model: first errors and the results of a judge are shown if they were measured."""

import json

from models.evaluation.bootstrap import Interval
from models.reward_models.judges.report import JudgeReport
from models.reward_models.step_accuracy import FirstErrors
from models.reward_models.trust import PolicyReport
from tasks.pages.reward_report_page import RewardModelMeasurements, as_json, page

REPORT = PolicyReport(2, None, None, 0, None, None, 0.0, 0.0, {1: Interval(0.5, 0.4, 0.6)}, {1: 0.5})


def test_first_errors_stand_on_the_page_and_among_the_numbers_where_they_are_known() -> None:
    measured = RewardModelMeasurements(policies={"before training": REPORT}, first_errors=FirstErrors(0.5, 0.25))
    assert "named in 50.0% of the samples that have one, and none in 25.0% of the others: F1 33.3%" in page(
        measured, []
    )
    numbers = measured.metrics()
    assert round(numbers["first_errors/f1"], 4) == 0.3333 and numbers["first_errors/correct"] == 0.25
    unknown = RewardModelMeasurements(policies={"before training": REPORT}, first_errors=FirstErrors(float("nan"), 1.0))
    assert "first_errors/f1" not in unknown.metrics() and unknown.metrics()["first_errors/correct"] == 1.0
    nothing = RewardModelMeasurements(policies={"before training": REPORT})
    assert "first wrong step" not in page(nothing, []) and not any("first_errors" in name for name in nothing.metrics())


def test_what_a_judge_makes_of_pairs_stands_on_the_page_and_among_the_numbers() -> None:
    judge = JudgeReport(40, Interval(0.75, 0.6, 0.9), Interval(0.8, 0.7, 0.9), 0.5, 0.125)
    measured = RewardModelMeasurements(policies={"before training": REPORT}, judge=judge)
    said = page(measured, [])
    assert "of 40 pairs" in said and "75.0% [60.0%, 90.0%]" in said and "80.0% [70.0%, 90.0%]" in said
    numbers = measured.metrics()
    assert numbers["judge/first_place"] == 0.8 and numbers["judge/agreed"] == 0.5 and numbers["judge/unread"] == 0.125


def reward_model(first: float, gain: float) -> PolicyReport:
    """Return the report on a reward model with this probability that a right sample is first, and this gain."""
    share, rank = (Interval(value, value, value) for value in (first, (1 + first) / 2))
    best_of = {1: Interval(0.2, 0.2, 0.2), 16: Interval(0.2 + gain, 0.2, 0.9)}
    return PolicyReport(9, share, share, 9, share, rank, 0.0, 0.0, best_of, {1: 0.2, 16: 0.9})


def test_one_against_nine_of_several_reward_models_is_compared_with_the_gain_of_best_of_n() -> None:
    measured = RewardModelMeasurements(policies={"before training": reward_model(0.5, 0.3)})
    measured.others = {"a/1": reward_model(0.2, 0.1)}
    measured.agreement = {"a/1": 0.75}
    assert "one_against_correlation" not in measured.metrics()  # two reward models are too few
    measured.others["a/2"] = reward_model(0.9, 0.2)
    numbers = measured.metrics()
    assert numbers["one_against_correlation"] == 0.5  # ranks 2 1 3 and 3 1 2: 1 - 6 * 2 / (3 * 8)
    assert numbers["reciprocal_rank"] == 0.75 and numbers["other_0/one_against"] == 0.2
    text = page(measured, [])
    assert "one against 9" in text and "rank correlation +0.50" in text
    assert "a/1 orders 75.0% of the pairs of samples alike; it has a right sample above 9 wrong ones in 20.0%" in text
    measured.others["a/2"] = reward_model(0.9, 0.3)
    measured.others["a/1"] = reward_model(0.2, 0.3)
    assert "one_against_correlation" not in measured.metrics()  # without spread of the gains


def test_the_findings_are_in_the_json_next_to_the_measures() -> None:
    report = json.loads(as_json(RewardModelMeasurements(policies={"before training": REPORT}), ["separation is low"]))
    assert report["against"] == ["separation is low"] and report["wrong_drawn"] == 9
