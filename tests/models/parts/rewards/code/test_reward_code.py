"""Reward code written by a judge: values, refused code with the reason, feedback, choice, and resume."""

from dataclasses import replace

import pytest

from models.base.errors import UserError
from models.method import tally as tallies
from models.method.rollout import RolloutEpisode
from models.parts.rewards.code.reward_code import RewardCode, agreement, fault_of, feedback_on, script_of
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe
from tests.support.tiny_judges import Scripted, resources_of, rollouts

SHORT = "def reward(prompt, completion, turns):\n    return 1.0 - len(completion) / 10"
LONG = "def reward(prompt, completion, turns):\n    return len(completion) / 10"
TURNS = "def reward(prompt, completion, turns):\n    return len(turns[0][0]) / 100 + (prompt == 'add') / 2"


def block(code: str) -> str:
    return f"This is it:\n```python\n{code}\n```"


def test_the_value_is_that_of_the_code_called_here_and_is_clipped() -> None:
    here = resources_of(lambda question, vote: block(TURNS))
    values = RewardCode(goal="g")(here, rollouts("a", "bcd"))
    scope: dict[str, object] = {}
    exec(TURNS, scope)
    expected = [scope["reward"]("add", text, [[text, ""]]) for text in ("a", "bcd")]  # type: ignore[operator]
    assert values.tolist() == pytest.approx(expected)
    clipped = RewardCode(goal="g", largest=0.25)(here, rollouts("a" * 20))
    assert clipped.tolist() == [0.25]


def test_the_judge_gets_the_goal_the_code_and_the_feedback_when_a_revision_is_due() -> None:
    answers = iter([block(SHORT), block(LONG)])
    here = resources_of(lambda question, vote: next(answers))
    reward = RewardCode(goal="be brief", every=2, question="{goal} | {code} | {feedback}")
    first = reward.reasoned(here, rollouts("aa"))
    second = reward.reasoned(here, rollouts("aa"))
    third = reward.reasoned(here, rollouts("aa", "aaaa"))
    assert first.values.tolist() == second.values.tolist() == pytest.approx([0.8])
    assert third.values.tolist() == pytest.approx([0.2, 0.4])
    assert [each.watched["revised"] for each in (first, second, third)] == [1.0, 0.0, 1.0]
    assert first.reasons == [SHORT] and second.reasons == [""] and third.watched["codes"] == 2.0
    assert isinstance(here.judge, Scripted) and len(here.judge.asked) == 2
    assert here.judge.asked[0] == "be brief | none | none yet: this is the first version"
    assert f"be brief | {SHORT} | mean 0.700, lowest 0.600, highest 0.800 of 2 episodes" in here.judge.asked[1]


@pytest.mark.parametrize(
    "code, reason",
    [("def reward(prompt, completion, turns:", "it is not Python"),
     ("x = 1", "does not define the function reward"),
     ("import os\n" + SHORT, "it is not plain"),
     ("def reward(prompt, completion, turns):\n    return 1 / 0", "ZeroDivisionError"),
     ("def reward(prompt, completion, turns):\n    return float('nan')", "not a finite number"),
     ("def reward(prompt, completion, turns):\n    return None", "TypeError")],
)  # fmt: skip
def test_code_that_cannot_be_used_is_answered_with_the_reason_and_the_next_is_used(code: str, reason: str) -> None:
    answers = iter([block(code), block(SHORT)])
    here = resources_of(lambda question, vote: next(answers))
    made = RewardCode(goal="g").reasoned(here, rollouts("aa"))
    assert made.values.tolist() == pytest.approx([0.8]) and made.watched["unusable"] == 1.0
    assert isinstance(here.judge, Scripted) and reason in here.judge.asked[1]


def test_code_that_runs_without_end_is_ended_and_refused() -> None:
    endless = "def reward(prompt, completion, turns):\n    while True:\n        pass"
    reward = RewardCode(goal="g", tries=1)
    reward = replace(reward, sandbox=replace(reward.sandbox, seconds=0.5))
    made = reward.reasoned(resources_of(lambda question, vote: block(endless)), rollouts("a"))
    assert made.values.isnan().all() and made.watched == {"revised": 1.0, "codes": 0.0, "unusable": 1.0}


def test_a_revision_that_fails_keeps_the_code() -> None:
    answers = iter([block(SHORT), "no", "no", "no"])
    here = resources_of(lambda question, vote: next(answers))
    reward = RewardCode(goal="g", every=1)
    reward(here, rollouts("aa"))
    made = reward.reasoned(here, rollouts("aa"))
    assert made.values.tolist() == pytest.approx([0.8]) and made.watched["unusable"] == 3.0


def test_without_any_code_there_is_no_value_and_the_judge_is_asked_in_the_next_round_too() -> None:
    here = resources_of(lambda question, vote: "no")
    reward = RewardCode(goal="g", every=0, tries=2)
    for _ in range(2):
        assert reward(here, rollouts("a")).isnan().all()
    assert isinstance(here.judge, Scripted) and len(here.judge.asked) == 4


def test_what_code_prints_and_texts_with_quotes_do_not_change_the_values() -> None:
    text = "'''\\\" \n \x00 é"
    noisy = (
        "print('[9]')\ndef reward(prompt, completion, turns):\n    print('x')\n    return 1.0 - len(completion) / 10"
    )
    here = resources_of(lambda question, vote: block(noisy))
    assert RewardCode(goal="g")(here, rollouts(text)).tolist() == pytest.approx([1.0 - len(text) / 10])
    assert "print()" in script_of(SHORT, []) and fault_of(SHORT) == ""


def test_the_template_that_orders_like_the_judge_is_chosen() -> None:
    def likes_long(question: str, vote: int) -> str:
        return f"#### {len(question.rpartition(' ')[2])}"

    reward = RewardCode(templates=(SHORT, LONG))
    made = reward.reasoned(resources_of(likes_long), rollouts("a", "aaa", "aaaaa"))
    assert made.values.tolist() == pytest.approx([0.1, 0.3, 0.5]) and made.reasons[0] == LONG
    undecided = reward.reasoned(resources_of(lambda question, vote: "?"), rollouts("a", "aaa"))
    assert undecided.reasons[0] == SHORT  # without a verdict: the first one


def test_agreement_by_hand() -> None:
    nan = float("nan")
    assert agreement([1.0, 2.0, 3.0], [0.1, 0.2, 0.3]) == 1.0
    assert agreement([3.0, 2.0, 2.0], [0.1, 0.2, 0.3]) == pytest.approx(0.5 / 3)
    assert agreement([1.0, 2.0], [0.5, 0.5]) == agreement([1.0, 2.0], [0.5, nan]) == 0.5


def test_feedback_compares_solved_episodes_with_others() -> None:
    solved, failed = (
        replace(each, episode=RolloutEpisode(solved=flag))
        for each, flag in zip(rollouts("yes", "no"), (True, False), strict=True)
    )
    words = feedback_on([0.75, 0.25], [solved, failed])
    assert "the 1 episodes that were solved: 0.750" in words and "were not solved: 0.250" in words
    assert "highest value:\nadd\nyes" in words and "lowest value:\nadd\nno" in words


def test_a_run_that_resumes_uses_the_same_code() -> None:
    reward = RewardCode(goal="g", every=5)
    here = resources_of(lambda question, vote: block(SHORT))
    reward(here, rollouts("aa"))
    there = resources_of(lambda question, vote: block(LONG))
    there = replace(there, learner=replace(there.learner, tally=tallies.read(tallies.written(here.learner.tally))))
    assert reward(there, rollouts("aa")).tolist() == pytest.approx([0.8])
    assert isinstance(there.judge, Scripted) and there.judge.asked == []


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(UserError, match=r"^rewards\.reward_code\.templates\.0: it does not define the function"):
        RewardCode(templates=("x = 1",))
    with pytest.raises(UserError, match=r"^rewards\.reward_code\.question: \{feedback\} is missing"):
        RewardCode(question="{goal} {code}")
    with pytest.raises(UserError, match=r"rewards\.reward_code\.goal: empty"):
        load_recipe(find_recipe("text2reward"), ["rewards.1.templates=[]"])
