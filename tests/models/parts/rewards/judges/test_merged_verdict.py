"""The reward by several critics: the merged verdict, its critics and wordings, and malformed texts."""

import math
from dataclasses import replace

import pytest

from models.base.errors import UserError
from models.method.judge import Answer
from models.parts.rewards.judges.merged_verdict import MergedVerdict, merge
from models.training.reward_call import call_reward
from tests.support.tiny_judges import MALFORMED, Scripted, resources_of, rollouts

ALONE = MergedVerdict(group=False)


def says(*verdicts: str) -> Scripted:
    return Scripted(lambda question, vote: f"vote {vote} ; {verdicts[vote]}")


def test_a_completion_that_states_what_most_critics_do_is_worth_one_by_hand() -> None:
    here = replace(resources_of(lambda question, vote: ""), judge=says("#### 9", "#### 1", "#### 9", "?"))
    made = ALONE.reasoned(here, rollouts("so ; #### 9", "#### 9.0", "#### 1", "no verdict"))
    assert made.values.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert made.reasons == ["vote 0 ; #### 9"] * 4 and made.watched == {"unread": 0.25, "merged": 1.0}


def test_the_completions_of_a_group_are_critics_too_where_that_is_asked() -> None:
    here = replace(resources_of(lambda question, vote: ""), judge=says("#### 1"))
    group = rollouts("#### 9", "#### 9", "#### 1")
    assert MergedVerdict(votes=1, group=False)(here, group).tolist() == [0.0, 0.0, 1.0]
    tie = MergedVerdict(votes=1)(here, group)  # two votes against two, so no verdict is merged
    assert all(map(math.isnan, tie.tolist()))
    assert MergedVerdict(votes=1)(here, rollouts("#### 9", "#### 9")).tolist() == [1.0, 1.0]


def test_every_wording_is_asked_about_each_prompt_once() -> None:
    here = resources_of(lambda question, vote: "#### 1")
    reward = MergedVerdict(wordings=("{prompt}", "kindly {prompt}"), votes=2)
    reward(here, [*rollouts("a", "b"), *rollouts("c", group=1, prompt="other")])
    assert isinstance(here.judge, Scripted)
    assert here.judge.asked == ["add", "other", "kindly add", "kindly other"]


def test_a_verdict_of_too_few_is_not_merged() -> None:
    answers = [Answer(f"#### {said}", True) for said in ("1", "1", "2", "3", "4")]
    assert merge(answers, 0.4) == "1" and merge(answers, 0.5) is None
    assert merge([Answer("x", True), Answer("#### 7", False)], 0.0) is None and merge([], 0.0) is None


@pytest.mark.parametrize("said", ["", "####", "\x00\ud800", "#### " + "9" * 100_000, "#### 1/0"])
def test_no_completion_and_no_answer_raises(said: str) -> None:
    given = call_reward(resources_of(lambda question, vote: said), MergedVerdict(), rollouts(*MALFORMED))
    assert given.values.isfinite().all() and len(given.values) == len(MALFORMED)


def test_a_wording_without_the_prompt_is_refused_by_its_key() -> None:
    with pytest.raises(UserError, match=r"^rewards\.merged_verdict\.wordings\.1: \{prompt\}"):
        MergedVerdict(wordings=("{prompt}", "judge"))
    with pytest.raises(UserError, match=r"^rewards\.merged_verdict\.wordings: there is none"):
        MergedVerdict(wordings=())
