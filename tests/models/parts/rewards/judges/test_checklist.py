"""The reward by checklist: its value by hand, the questions to the judge, missing verdicts, and malformed texts."""

import math
from dataclasses import replace

import pytest

from models.base.errors import UserError
from models.method.judge import Answer
from models.parts.rewards.judges.checklist import Checklist
from models.reward_models.judges.verdict import holds, listed
from models.training.reward_call import call_reward
from tests.support.tiny_judges import MALFORMED, Scripted, resources_of, rollouts


def says(question: str, vote: int) -> str:
    """Answer with a list of two items for each prompt, and confirm the items that the completion contains."""
    if question.startswith("list "):
        return "#### red ; blue"
    item, _, completion = question.removeprefix("tick ").partition(" in ")
    return f"{item} ; #### {'yes' if item in completion else 'no'}"


def test_a_completion_is_worth_the_share_of_the_items_that_hold_and_says_which_by_hand() -> None:
    made = Checklist().reasoned(resources_of(says), rollouts("red", "red blue", ""))
    assert made.values.tolist() == [0.5, 1.0, 0.0]
    assert made.reasons == ["yes: red ; no: blue", "yes: red ; yes: blue", "no: red ; no: blue"]
    assert made.watched == {"unread": 0.0, "unlisted": 0.0, "items": 2.0}


def test_the_list_of_a_prompt_is_asked_for_once_however_many_completions_it_has() -> None:
    here = resources_of(says)
    Checklist()(here, [*rollouts("a", "b", "c"), *rollouts("d", group=1)])
    assert isinstance(here.judge, Scripted)
    assert sum(question.startswith("list ") for question in here.judge.asked) == 1  # both groups have the same prompt
    assert sum(question.startswith("tick ") for question in here.judge.asked) == 8


def test_items_of_the_recipe_stand_in_place_of_a_list_that_the_judge_would_write() -> None:
    here = resources_of(says)
    assert Checklist(items=("red", "green", "blue"))(here, rollouts("red blue")).tolist() == [pytest.approx(2 / 3)]
    assert isinstance(here.judge, Scripted) and not any(asked.startswith("list ") for asked in here.judge.asked)


def test_an_item_holds_where_more_than_half_of_its_votes_say_so() -> None:
    votes = ["#### yes", "#### no", "who knows"]
    made = Checklist(items=("x",), votes=3)(resources_of(lambda question, vote: votes[vote]), rollouts("a"))
    assert made.tolist() == [0.0]
    votes[1] = "#### yes"
    made = Checklist(items=("x",), votes=3)(resources_of(lambda question, vote: votes[vote]), rollouts("a"))
    assert made.tolist() == [1.0]


def test_an_item_without_a_verdict_does_not_hold_and_a_completion_without_any_has_no_value() -> None:
    def silent_on_blue(question: str, vote: int) -> str:
        return "hm" if question.startswith("tick blue") else says(question, vote)

    made = Checklist().reasoned(resources_of(silent_on_blue), rollouts("red", "blue"))
    assert made.values.tolist() == [0.5, 0.0] and made.watched["unread"] == 0.5
    unlisted = Checklist().reasoned(resources_of(lambda question, vote: "no list"), rollouts("red"))
    assert math.isnan(unlisted.values.item()) and unlisted.watched["unlisted"] == 1.0
    given = call_reward(resources_of(lambda question, vote: "?"), Checklist(), rollouts("red", "blue"))
    assert given.values.tolist() == [0.0, 0.0] and given.failures == 2


@pytest.mark.parametrize(
    "said", ["", "#### ;;;", "#### x ; y", "\x00", "####" + " z ;" * 5000, "#### " + "w" * 9999, "#### é\ud800 ; yes"]
)
def test_no_completion_and_no_answer_raises(said: str) -> None:
    for reward in (Checklist(), Checklist(items=("a", "{completion}"))):
        given = call_reward(resources_of(lambda question, vote: said), reward, rollouts(*MALFORMED))
        assert given.values.isfinite().all() and len(given.values) == len(MALFORMED)


def test_a_list_is_read_strictly() -> None:
    def read(text: str, most: int = 3) -> list[str] | None:
        return listed(Answer(text, True), most)

    assert read("so ; #### a ; b;a ;; c ; d") == ["a", "b", "c"]
    assert read("a ; b") is None and read("#### ;") is None and read("#### " + "x" * 501) is None
    assert listed(Answer("#### a", False), 3) is None  # the answer was cut, so the list may be incomplete
    yes, no, none = (Answer(text, True) for text in ("#### Yes", "#### no", "#### maybe"))
    assert holds([yes, no, none]) == 0.5 and holds([none]) is None and holds([]) is None


def test_settings_that_make_no_sense_are_refused_by_their_key() -> None:
    with pytest.raises(UserError, match=r"^rewards\.checklist\.template: \{item\}"):
        Checklist(template="{completion}")
    with pytest.raises(UserError, match=r"^rewards\.c\.lists: \{prompt\}"):
        Checklist(label="c", lists="list")
    with pytest.raises(UserError, match=r"^rewards\.checklist\.items\.1: an item says something"):
        Checklist(items=("a", " "))


def test_the_limits_of_judges_are_its_limits() -> None:
    given = call_reward(
        resources_of(lambda question, vote: "?"),
        replace(Checklist(), limits=replace(Checklist().limits, value=0.25)),
        rollouts("a"),
    )
    assert given.values.tolist() == [0.25]
