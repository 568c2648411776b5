"""The report on a judge: accuracy, bias to the first place, agreement of both orders, and unreadable answers."""

import math

import pytest

from models.base.errors import UserError
from models.evaluation.records import Completion, PromptRecord
from models.recipes.load import load_recipe
from models.reward_models.judges.pairs import CompletionPair
from models.reward_models.judges.report import judge_report, right_and_wrong
from tests.support.tiny_judges import Scripted

TEMPLATE = "{prompt} | {first} | {second}"
PAIRS = [CompletionPair(str(number), "right", "wrong", {}) for number in range(4)]


def test_a_judge_of_truth_is_right_without_bias_to_a_place() -> None:
    made = judge_report(Scripted(lambda q, vote: "#### first" if "| right |" in q else "#### second"), TEMPLATE, PAIRS)
    assert made.accuracy is not None and made.first_place is not None
    assert (made.accuracy.estimate, made.first_place.estimate, made.agreed, made.unread) == (1.0, 0.5, 1.0, 0.0)
    assert made.metrics()["first_place"] == 0.5 and made.pairs == 4


@pytest.mark.parametrize(("said", "place"), [("first", 1.0), ("second", 0.0)])
def test_a_judge_of_places_knows_nothing_and_its_bias_is_seen(said: str, place: float) -> None:
    made = judge_report(Scripted(lambda q, vote: f"#### {said}"), TEMPLATE, PAIRS)
    assert made.accuracy is not None and made.first_place is not None
    assert (made.accuracy.estimate, made.first_place.estimate, made.agreed) == (0.5, place, 0.0)


def test_a_judge_that_says_nothing_and_no_pairs_have_no_numbers() -> None:
    silent = judge_report(Scripted(lambda q, vote: "hm"), TEMPLATE, PAIRS)
    assert silent.accuracy is None and math.isnan(silent.agreed) and silent.metrics() == {"unread": 1.0}
    assert judge_report(Scripted(lambda q, vote: "#### first"), TEMPLATE, []).metrics() == {"unread": 0.0}


def test_of_each_prompt_that_has_both_a_right_and_a_wrong_sample_that_ended_are_compared() -> None:
    def record(*samples: tuple[str, bool, bool]) -> PromptRecord:
        made = tuple(Completion(text, 1, correct, finished) for text, correct, finished in samples)
        return PromptRecord("r", 0, made, made[0])

    records = [
        record(("a", True, True), ("cut", False, False), ("b", False, True), ("c", True, True)),
        record(("d", True, True), ("e", True, True)),
        record(("f", False, True), ("g", True, True)),
    ]
    assert right_and_wrong(["p", "q", "r"], records, 9) == [
        CompletionPair("p", "a", "b", {}),
        CompletionPair("r", "g", "f", {}),
    ]
    assert right_and_wrong(["p", "q", "r"], records, 1) == [CompletionPair("p", "a", "b", {})]


def test_a_report_that_asks_a_judge_needs_one_and_its_template_has_the_places() -> None:
    with pytest.raises(UserError, match=r"reward_model\.report\.judged asks a judge"):
        load_recipe("arithmetic", ["reward_model.report={judged: 9}"])
    load_recipe("arithmetic", ["reward_model.report={judged: 9}", "judge={}"])
    with pytest.raises(UserError, match=r"\{second\} is missing from the template"):
        load_recipe("arithmetic", ["reward_model.report={judged: 9, judge_template: '{prompt} {first}'}", "judge={}"])
