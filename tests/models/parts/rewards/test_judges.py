"""Rewards by a judge: scores, pairs, unreadable verdicts, and refused settings."""

import math
from dataclasses import replace

import pytest
import torch

from models.base.errors import UserError
from models.parts.rewards.judges.judge_pairs import JudgePairs, rivals_of
from models.parts.rewards.judges.judge_score import JudgeScore
from models.training.gather import _joined
from models.training.reward_call import call_reward
from models.training.round_metrics import sample_rows
from models.training.score import score
from tests.support.tiny_judges import MALFORMED, Scripted, resources_of, rollouts


def test_a_score_is_the_mean_of_the_votes_that_can_be_read_by_hand() -> None:
    votes = {0: "good ; #### 9", 1: "#### 3", 2: "well"}
    made = JudgeScore(votes=3).reasoned(resources_of(lambda question, vote: votes[vote]), rollouts("a", "b"))
    assert made.values.tolist() == pytest.approx([2 / 3, 2 / 3])
    assert made.reasons == ["good ; #### 9"] * 2 and made.watched == {"unread": pytest.approx(1 / 3)}


def test_the_judge_reads_prompt_completion_and_principles_in_the_words_of_the_recipe() -> None:
    here = resources_of(lambda question, vote: "#### 1")
    JudgeScore(template="{principles}: {prompt} / {completion}", principles="be brief")(here, rollouts("a"))
    assert isinstance(here.judge, Scripted) and here.judge.asked == ["be brief: add / a"]


def test_a_completion_without_a_verdict_has_the_defined_value_and_is_counted() -> None:
    reward = JudgeScore(limits=replace(JudgeScore().limits, value=0.25))
    here = resources_of(lambda question, vote: "#### 9" if question.endswith("good") else "no idea")
    given = call_reward(here, reward, rollouts("good", "bad"))
    assert given.values.tolist() == [1.0, 0.25] and given.failures == 1 and given.watched == {"unread": 0.5}
    scored = score(here, [reward], rollouts("good", "bad"))
    assert scored.watched == {"rewards/judge_score/failures": 1.0, "rewards/judge_score/unread": 0.5}


def test_the_reason_follows_its_completion_into_the_samples() -> None:
    here = resources_of(lambda question, vote: f"{question[-1]} ; #### 9")
    scored = score(here, [JudgeScore()], rollouts("a", "b"))
    assert [row["judge_score/reason"] for row in sample_rows(scored)] == ["a ; #### 9", "b ; #### 9"]
    assert scored.take(torch.tensor([1])).reasons == {"judge_score": ["b ; #### 9"]}
    assert _joined(scored, scored).reasons == {"judge_score": ["a ; #### 9", "b ; #### 9"] * 2}


@pytest.mark.parametrize("said", ["", "#### x", "#### 99", "\x00", "9" * 100_000, "#### first"])
def test_no_completion_and_no_answer_raises(said: str) -> None:
    for reward in (JudgeScore(), JudgePairs(rivals=3)):
        given = call_reward(resources_of(lambda question, vote: said), reward, rollouts(*MALFORMED))
        assert torch.isfinite(given.values).all()
    single = JudgePairs().reasoned(resources_of(lambda question, vote: said), rollouts("a"))
    assert single.values.tolist() == [0.5] and single.reasons == [""]


def test_pairs_by_hand_and_the_bias_to_the_first_place_is_watched() -> None:
    def longer(question: str, vote: int) -> str:
        first, second = question.partition(" first ")[2].split(" second ")
        return "#### first" if len(first) >= len(second) else "#### second"

    made = JudgePairs(rivals=2).reasoned(resources_of(longer), rollouts("a", "aa", "aaa"))
    assert made.values.tolist() == [0.0, 0.5, 1.0] and made.watched == {"unread": 0.0, "first_place": 0.5}
    biased = JudgePairs(rivals=2).reasoned(
        resources_of(lambda question, vote: "#### first"), rollouts("a", "aa", "aaa")
    )
    assert biased.values.tolist() == [0.5] * 3 and biased.watched["first_place"] == 1.0
    swayed = JudgePairs(swap=False).reasoned(resources_of(lambda question, vote: "#### first"), rollouts("a", "aa"))
    assert swayed.values.tolist() == [1.0, 0.0]


def test_equal_texts_are_not_asked_and_groups_are_apart() -> None:
    here = resources_of(lambda question, vote: "#### first")
    made = JudgePairs()(here, [*rollouts("a", "a"), *rollouts("a", "b", group=1)])
    assert made.tolist() == [0.5] * 4
    assert isinstance(here.judge, Scripted) and len(here.judge.asked) == 2


def test_a_completion_none_of_whose_comparisons_can_be_read_has_no_value() -> None:
    made = JudgePairs()(resources_of(lambda question, vote: "?"), rollouts("a", "b"))
    assert all(math.isnan(value) for value in made.tolist())


def test_each_completion_meets_so_many_rivals_and_no_pair_comes_twice() -> None:
    assert rivals_of([0, 0, 0, 0], 1) == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert rivals_of([0, 1, 0, 1], 5) == [(0, 2), (1, 3)]
    assert len(rivals_of([0] * 6, 9)) == 15 and rivals_of([0], 1) == []


def test_settings_that_make_no_sense_are_refused_by_their_key() -> None:
    with pytest.raises(UserError, match=r"^rewards\.judge_score: lowest is 3, not below highest, 3"):
        JudgeScore(lowest=3.0, highest=3.0)
    with pytest.raises(UserError, match=r"^rewards\.j\.template: \{first\}"):
        JudgePairs(label="j", template="{prompt} {second}")


def test_self_reference_asks_the_judge_for_its_own_answer_and_shows_it_in_both_orders() -> None:
    def says(question: str, vote: int) -> str:
        if question.startswith("solve"):
            return "7"
        _, own, _, first, *_ = question.split()  # the question is: add OWN first FIRST second SECOND
        return "#### first" if first == own else "#### second"

    here = resources_of(says)
    reward = JudgePairs(own="solve {prompt}", template="{prompt} {reference} first {first} second {second}")
    assert reward(here, rollouts("7", "8")).tolist() == [1.0, 0.0]
    assert isinstance(here.judge, Scripted)
    assert here.judge.asked == ["solve add", "add 7 first 7 second 8", "add 7 first 8 second 7"]
    assert call_reward(resources_of(lambda question, vote: "?"), reward, rollouts(*MALFORMED)).values.isfinite().all()
    with pytest.raises(UserError, match=r"^rewards\.judge_pairs\.template: \{reference\} is missing"):
        JudgePairs(own="solve {prompt}")
    with pytest.raises(UserError, match=r"^rewards\.judge_pairs\.own: \{prompt\} is missing"):
        JudgePairs(own="solve", template=reward.template)
