"""Rounds of critique and improvement, with a policy that counts its drafts: its prompts, and the final draft."""

from models.agents.strategies.criticise_improve import CriticiseImprove
from tests.support.tiny_strategies import GREEDY, Scripted, ask_of, turns_of

STRATEGY = CriticiseImprove(rounds=2, critique="wrong?", improve="better")


def drafting(text: str, seed: int) -> str:
    """Return the next draft by number. After a request for a critique, return a critique."""
    if text.endswith("wrong?\n"):
        return f"too small {text.count('draft')}"
    return f"draft {text.count('draft') + 1}"


def test_each_round_reads_the_draft_and_its_critique_and_the_last_draft_is_the_turn() -> None:
    policy = Scripted(drafting)
    (turn,), asked = turns_of(STRATEGY, policy, [ask_of("Q")])
    assert turn == "draft 3" and asked.spent.calls == STRATEGY.most_calls == 5
    assert policy.heard == [
        "Q",
        "Q" + "draft 1|\nwrong?\n",
        "Q" + "draft 1|\nwrong?\n" + "too small 1|\nbetter\n",
        "Q" + "draft 1|\nwrong?\n" + "too small 1|\nbetter\n" + "draft 2|\nwrong?\n",
        "Q" + "draft 1|\nwrong?\n" + "too small 1|\nbetter\n" + "draft 2|\nwrong?\n" + "too small 2|\nbetter\n",
    ]


def test_an_improvement_that_does_not_end_leaves_the_draft_as_it_was() -> None:
    def endless(text: str, seed: int) -> str:
        return "x" * 99 if text.endswith("better\n") else "ok"

    (turn,), asked = turns_of(STRATEGY, Scripted(endless), [ask_of("Q")])
    assert turn == "ok" and asked.spent.calls == 5


def test_a_critique_that_does_not_end_is_not_answered() -> None:
    def endless(text: str, seed: int) -> str:
        return "x" * 99 if text.endswith("wrong?\n") else "ok"

    (turn,), asked = turns_of(STRATEGY, Scripted(endless), [ask_of("Q")])
    assert turn == "ok" and asked.spent.calls == 3


def test_where_there_is_no_room_for_a_question_the_draft_stands_and_it_is_counted() -> None:
    policy = Scripted(drafting)
    (turn,), asked = turns_of(STRATEGY, policy, [ask_of("Q", max_tokens=12)], GREEDY, room=13)
    assert turn == "draft 1" and policy.heard == ["Q"] and asked.spent.no_room == 2
