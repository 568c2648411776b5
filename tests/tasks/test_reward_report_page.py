"""The page of a report on a reward model: first errors and the results of a judge are shown if they were measured."""

from models.evaluation.bootstrap import Interval
from models.reward_models.judges.report import JudgeReport
from models.reward_models.step_accuracy import FirstErrors
from models.reward_models.trust import PolicyReport
from tasks.pages.reward_report_page import RewardModelMeasurements, page

REPORT = PolicyReport(2, None, None, 0.0, 0.0, {1: Interval(0.5, 0.4, 0.6)}, {1: 0.5})


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
