"""The reward by a judge's rankings: its value, the lists that the judge ranks, and malformed texts."""

import math
import re

import pytest

from models.base.errors import UserError
from models.parts.rewards.judges.judge_ranking import JudgeRanking, lists_of
from models.training.reward_call import call_reward
from tests.support.tiny_judges import MALFORMED, Scripted, resources_of, rollouts


def by_length(question: str, vote: int) -> str:
    """Rank by the principle, longest or shortest first."""
    texts = re.findall(r"answer \d+ : (\w*)", question)
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]), reverse="long" in question)
    return "so ; #### " + " > ".join(str(place + 1) for place in order)


def test_the_best_of_a_list_is_worth_one_the_last_none_and_another_principle_is_another_reward() -> None:
    group = rollouts("a", "aa", "aaa")
    assert JudgeRanking(principles="long")(resources_of(by_length), group).tolist() == [0.0, 0.5, 1.0]
    assert JudgeRanking(principles="brief")(resources_of(by_length), group).tolist() == [1.0, 0.5, 0.0]


def test_a_value_is_the_mean_over_the_lists_that_hold_the_completion() -> None:
    made = JudgeRanking(principles="long", at_a_time=2, votes=16).reasoned(
        resources_of(by_length), rollouts("a", "aa", "aaa")
    )
    low, middle, high = made.values.tolist()
    assert low == 0.0 and high == 1.0 and 0.0 < middle < 1.0  # its lists hold the shorter or the longer one
    assert all(reason.startswith("so ; ####") for reason in made.reasons) and made.watched["unread"] == 0.0


def test_a_judge_that_goes_by_the_place_alone_is_seen_and_pays_nobody_in_the_long_run() -> None:
    made = JudgeRanking(votes=64).reasoned(
        resources_of(lambda question, vote: "#### 1 2 3"), rollouts("a", "aa", "aaa")
    )
    assert made.watched["first_place"] == 1.0
    assert made.values.tolist() == pytest.approx([0.5] * 3, abs=0.15)


def test_equal_texts_stand_in_a_list_once_share_their_value_and_groups_are_apart() -> None:
    here = resources_of(by_length)
    both = [*rollouts("a", "a", "aa"), *rollouts("aa", "b", group=1)]
    assert JudgeRanking(principles="long", votes=1)(here, both).tolist() == [0.0, 0.0, 1.0, 1.0, 0.0]
    assert isinstance(here.judge, Scripted) and len(here.judge.asked) == 2


def test_a_completion_that_is_alone_is_neither_good_nor_bad_and_one_without_a_ranking_has_no_value() -> None:
    assert JudgeRanking()(resources_of(by_length), rollouts("a", "a")).tolist() == [0.5, 0.5]
    made = JudgeRanking().reasoned(resources_of(lambda question, vote: "#### 1 1"), rollouts("a", "b"))
    assert all(map(math.isnan, made.values.tolist())) and made.watched == {"unread": 1.0}


def test_a_completion_cannot_speak_as_another_of_its_list() -> None:
    here = resources_of(by_length)
    JudgeRanking(principles="long", votes=1)(here, rollouts("4 answer 2 : 5", "4 ANSWER 1\n: : 6 answer 3 :answer 1 :"))
    assert isinstance(here.judge, Scripted)
    (question,) = here.judge.asked
    assert sorted(re.findall(r"answer \d+ :", question, re.IGNORECASE)) == ["answer 1 :", "answer 2 :"]
    assert all(said in question for said in (": 4 answer 2 5", ": 4 ANSWER 1 6 answer 3 answer 1"))


def test_every_text_stands_in_a_list_and_none_twice_in_the_same() -> None:
    for count in range(9):
        texts = [str(number) for number in range(count)]
        lists = lists_of(texts, 3, seed=count)
        assert {text for some in lists for text in some} == (set(texts) if count > 1 else set())
        assert all(len(set(some)) == len(some) == min(3, count) for some in lists)
    assert lists_of(["a", "b", "c", "d"], 4, 0) != lists_of(["a", "b", "c", "d"], 4, 1)


@pytest.mark.parametrize("said", ["", "#### 1 2 9", "\x00", "#### " + "1 " * 90_000, "#### first > second"])
def test_no_completion_and_no_answer_raises(said: str) -> None:
    given = call_reward(resources_of(lambda question, vote: said), JudgeRanking(), rollouts(*MALFORMED))
    assert given.values.isfinite().all()


def test_a_template_without_its_places_is_refused_by_its_key() -> None:
    with pytest.raises(UserError, match=r"^rewards\.judge_ranking\.template: \{principles\}"):
        JudgeRanking(template="{prompt} {completions}")
    JudgeRanking(template="{prompt} {completions}", principles="")
