"""Societies of three members, each of which gives the answer that its role contains."""

import pytest

from models.agents.strategies.society import Society
from tests.support.tiny_strategies import Scripted, ask_of, turns_of

MEMBERS = ("say 1", "say 2", "say 3")


def obedient(text: str, seed: int) -> str:
    """Give the answer of the own role. After other answers, give the most frequent one, or the own if all differ."""
    own = text.split("say ")[1][0]
    if "others" not in text:
        return f"#### {own}"
    heard = text.rsplit("others\n", 1)[1].replace("#### ", "").split()
    return f"#### {max(heard, key=heard.count) if len(set(heard)) < len(heard) else own}"


def society(**settings: object) -> Society:
    return Society(**{"members": MEMBERS, "others": "others\n{answers}\n", **settings})  # type: ignore[arg-type]


def test_members_read_what_the_others_answered_and_never_their_own_answer() -> None:
    policy = Scripted(obedient)
    turns_of(society(), policy, [ask_of("Q")])
    assert policy.heard == [
        *(f"Q|\nsay {number}\n" for number in (1, 2, 3)),
        "Q|\nsay 1\n#### 1|\nothers\n#### 2\n#### 3\n\n",
        "Q|\nsay 2\n#### 2|\nothers\n#### 1\n#### 3\n\n",
        "Q|\nsay 3\n#### 3|\nothers\n#### 1\n#### 2\n\n",
    ]


@pytest.mark.parametrize("members, winner", [(("say 1", "say 2", "say 2"), "2"), (MEMBERS, "1")])
def test_in_a_democracy_most_decide_and_of_several_the_first(members: tuple[str, ...], winner: str) -> None:
    (turn,), asked = turns_of(society(members=members, interviews=0), Scripted(obedient), [ask_of("Q")])
    assert turn == f"#### {winner}" and asked.spent.calls == 3


def test_a_monarch_decides_alone_once_it_has_read_the_others() -> None:
    chosen = society(members=("say 1", "say 2", "say 2"), interviews=0, structure="monarchy")
    (turn,), asked = turns_of(chosen, Scripted(obedient), [ask_of("Q")])
    assert turn == "#### 2" and asked.spent.calls == chosen.most_calls == 4

    def stubborn(text: str, seed: int) -> str:
        return f"#### {text.split('say ')[1][0]}"

    (turn,), _ = turns_of(chosen, Scripted(stubborn), [ask_of("Q")])
    assert turn == "#### 1"


def test_societies_of_several_questions_do_not_hear_of_one_another() -> None:
    policy = Scripted(lambda text, seed: text[0])
    turns, _ = turns_of(society(), policy, [ask_of("A"), ask_of("B")])
    assert turns == ["A", "B"] and not any("A" in text and "B" in text for text in policy.heard)


def test_a_role_that_leaves_no_room_for_a_turn_is_not_told() -> None:
    policy = Scripted(lambda text, seed: "ok")
    (turn,), asked = turns_of(society(interviews=0), policy, [ask_of("Q", max_tokens=8)], room=10)
    assert turn == "ok" and policy.heard == ["Q", "Q", "Q"] and asked.spent.no_room == 3
