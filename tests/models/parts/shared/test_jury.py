"""Pairs by a jury: the votes of the jurors, the fate of a pair, and refused settings."""

import math
from collections.abc import Callable, Sequence

import pytest

from models.base.errors import UserError
from models.method.problem import Problem
from models.parts.rewards.judges.checklist import Checklist
from models.parts.rewards.judges.judge_pairs import JudgePairs
from models.parts.rewards.judges.judge_ranking import JudgeRanking
from models.parts.rewards.judges.judge_score import JudgeScore
from models.parts.shared.jury import JurySettings, Verdicts, ask_jury, decide
from models.recipes.load import load_recipe
from models.reward_models.solutions import Solution
from tests.support.tiny_judges import MALFORMED, Scripted


def solutions(*texts: str, name: str = "p", finished: bool = True) -> list[Solution]:
    problem = Problem(name, f"prompt {name}", "7")
    return [Solution(problem, (5, 1), (1,), text, finished, text == "right") for text in texts]


def longer(question: str, vote: int) -> str:
    """Prefer the longer text in either order."""
    first, _, second = question.partition(" first ")[2].partition(" second ")
    return f"#### {'first' if len(first) > len(second) else 'second' if len(second) > len(first) else 'neither'}"


def always(answer: str) -> Callable[[str, int], str]:
    return lambda question, vote: answer


def said(
    settings: JurySettings, says: Callable[[str, int], str], made: Sequence[Solution]
) -> tuple[Verdicts, list[tuple[str, str]]]:
    verdicts = ask_jury(settings, Scripted(says), made, 0)
    return verdicts, [(pair.chosen.text, pair.rejected.text) for pair in verdicts.pairs]


def test_each_completion_meets_its_rivals_and_the_better_one_is_chosen_whichever_stands_first() -> None:
    verdicts, pairs = said(JurySettings(rivals=1), longer, solutions("a", "aaa", "aa"))
    assert set(pairs) == {("aaa", "a"), ("aaa", "aa"), ("aa", "a")}
    assert verdicts.pair_count == 3 and verdicts.fates == {"agreed": 3, "tied": 0, "disputed": 0, "unread": 0}
    assert all(pair.gap == 1.0 for pair in verdicts.pairs)


def test_a_juror_that_goes_by_the_place_prefers_nobody() -> None:
    for place in ("first", "second"):
        verdicts, pairs = said(JurySettings(), always(f"#### {place}"), solutions("a", "b"))
        assert not pairs and verdicts.fates["tied"] == verdicts.pair_count == 1
    ranks = JurySettings(jury=[JudgeRanking()])  # two votes read a list in both orders
    verdicts, pairs = said(ranks, always("#### 1 2"), solutions("a", "b"))
    assert not pairs and verdicts.fates["tied"] == 1
    one_order = JurySettings(jury=[JudgePairs(swap=False)])
    assert said(one_order, always("#### second"), solutions("a", "b"))[1] == [("b", "a")]


def test_only_what_all_jurors_say_is_kept_or_as_many_as_are_asked_for() -> None:
    def says(question: str, vote: int) -> str:
        if question.startswith("judge"):  # a score: the number of b in the solution
            return f"#### {question.partition(' solution ')[2].count('b')}"
        return longer(question, vote)

    made = solutions("aaaa", "bbb", "bb")
    both = JurySettings(jury=[JudgePairs(), JudgeScore()])
    verdicts, pairs = said(both, says, made)
    assert pairs == [("bbb", "bb")] and verdicts.fates == {"agreed": 1, "tied": 0, "disputed": 2, "unread": 0}
    # Two wins give 1. The scores 3 and 2 differ by 1 on a scale from 0 to 9.
    assert verdicts.pairs[0].gap == pytest.approx((1.0 + 1.0 / 9.0) / 2.0)
    most = JurySettings(jury=[JudgePairs(), JudgePairs(label="again"), JudgeScore()], least_agreed=0.6)
    assert set(said(most, says, made)[1]) == {("aaaa", "bbb"), ("aaaa", "bb"), ("bbb", "bb")}


@pytest.mark.parametrize(("votes", "least", "fate"), [
    ([0.5, 1.0], 1.0, "agreed"), ([-0.5, -1.0], 1.0, "agreed"), ([0.5, 0.0], 1.0, "tied"), ([0.0, 0.0], 1.0, "tied"),
    ([0.5, -0.1], 1.0, "disputed"), ([0.5, math.nan], 1.0, "unread"), ([math.nan], 1.0, "unread"),
    ([0.5, 0.5, -0.1], 0.6, "agreed"), ([0.5, 0.5, math.nan], 0.6, "agreed"), ([0.5, -0.5, 0.0], 0.6, "disputed"),
    ([0.1, 0.1, -1.0], 0.6, "disputed"), ([0.5, math.nan, math.nan], 0.6, "unread"),
])  # fmt: skip
def test_the_fate_of_a_pair_by_hand(votes: list[float], least: float, fate: str) -> None:
    assert decide(votes, least)[0] == fate
    assert decide([-vote for vote in votes], least) == (fate, -decide(votes, least)[1])


def test_pairs_are_of_one_prompt_and_equal_texts_meet_once() -> None:
    made = [*solutions("a", "aa", "a", "aa"), *solutions("a", "aaa", name="q"), *solutions("alone", name="r")]
    verdicts, pairs = said(JurySettings(rivals=7), longer, made)
    assert pairs == [("aa", "a"), ("aaa", "a")] and verdicts.pair_count == 2
    assert [pair.chosen.problem.id for pair in verdicts.pairs] == ["p", "q"]
    assert all(pair.chosen.problem == pair.rejected.problem for pair in verdicts.pairs)


def test_what_was_cut_takes_no_part_unless_that_is_asked() -> None:
    made = [*solutions("a", "aa"), *solutions("aaaa", finished=False)]
    assert said(JurySettings(), longer, made)[1] == [("aa", "a")]
    assert len(said(JurySettings(cut=True), longer, made)[1]) == 3


def test_of_a_prompt_the_widest_are_kept() -> None:
    scores = JurySettings(jury=[JudgeScore()], rivals=2, most=1)
    made = solutions("bbb", "b", "bbbbbb")

    def says(question: str, vote: int) -> str:
        return f"#### {question.count('b')}"

    verdicts, pairs = said(scores, says, made)
    assert pairs == [("bbbbbb", "b")] and verdicts.fates["agreed"] == 3


@pytest.mark.parametrize("answer", ["", "####", "#### maybe", "\x00\ud800", "#### first second", "9" * 100_000])
@pytest.mark.parametrize("juror", [JudgePairs(), JudgeScore(), JudgeRanking(), Checklist()], ids=lambda part: part.name)
def test_whatever_is_written_and_said_no_pair_comes_of_what_cannot_be_read(answer: str, juror: JudgePairs) -> None:
    verdicts, pairs = said(JurySettings(jury=[juror], rivals=9), always(answer), solutions(*MALFORMED))
    assert not pairs and verdicts.fates["unread"] == verdicts.pair_count == len(MALFORMED) * (len(MALFORMED) - 1) // 2


def test_a_jury_that_says_nothing_can_be_tried_out() -> None:
    trial = JurySettings(unread="drawn", rivals=1)
    assert said(trial, always(""), solutions("a", "b"))[1] == [("a", "b")]
    assert said(trial, longer, [])[0] == Verdicts([], {"agreed": 0, "tied": 0, "disputed": 0, "unread": 0})


def test_settings_and_recipes_that_make_no_sense_are_refused_by_their_key() -> None:
    with pytest.raises(UserError, match=r"^reward_model\.pairs\.jury: no juror is given"):
        JurySettings(jury=[])
    with pytest.raises(UserError, match=r"reward_model\.pairs\.jury\.1.*exact_answer.*judge_pairs"):
        load_recipe("refined_rewards", ["reward_model.pairs.jury=[{name: judge_pairs}, {name: exact_answer}]"])
    with pytest.raises(UserError, match=r"reward_model\.pairs\.jury asks a judge"):
        load_recipe("refined_rewards", ["judge=null"])
    with pytest.raises(UserError, match=r"pairs: a jury makes preferences"):
        load_recipe("refined_rewards", ["reward_model.parallel=true"])
    with pytest.raises(UserError, match=r"judge: no part of the recipe asks one"):
        load_recipe("refined_rewards", ["reward_model.pairs=null"])
    with pytest.raises(UserError, match=r"least_agreed"):
        load_recipe("refined_rewards", ["reward_model.pairs.least_agreed=0.5"])


def test_the_two_arms_differ_in_nothing_but_the_reward() -> None:
    fitted, judged = load_recipe("refined_rewards").model_dump(), load_recipe("principle_judge").model_dump()
    differing = {key for key in fitted if fitted[key] != judged[key]}
    assert differing == {"name", "reward_model", "rewards", "alarm"}
