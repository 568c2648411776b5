"""Votes over drafts, with results computed by hand."""

import pytest

from models.agents.strategies.vote import Vote
from models.answers.ballot import winner
from models.base.seeds import call_seed
from tests.support.tiny_strategies import DRAWN, Scripted, ask_of, turns_of


@pytest.mark.parametrize(
    "texts, place",
    [
        (["#### 3", "#### 4", "the answer is 4."], 1),
        (["#### 0.5", "#### 7", "#### 1/2"], 0),
        (["#### 1", "#### 2", "#### 3"], 0),
        (["#### 2", "#### 1", "#### 1", "#### 2"], 0),
        (["", "", "#### 9"], 2),
        (["", ""], 0),
        (["tool: 3 +  4", "#### 7", "tool: 3 + 4"], 0),
    ],
)
def test_what_most_state_wins_and_the_first_of_several_that_are_stated_as_often(texts: list[str], place: int) -> None:
    assert winner(texts) == place


def test_a_turn_is_the_first_draft_that_says_what_most_drafts_say() -> None:
    said = {call_seed(5, 0): "#### 1", call_seed(5, 1): "so #### 2", call_seed(5, 2): "#### 2"}
    (turn,), _ = turns_of(Vote(drafts=3), Scripted(lambda text, seed: said[seed]), [ask_of("?", 5)], DRAWN)
    assert turn == "so #### 2"


def test_a_single_draft_is_the_policys_own_turn() -> None:
    (turn,), policy = turns_of(Vote(drafts=1), Scripted(lambda text, seed: f"{text}{seed}"), [ask_of("?", 5)], DRAWN)
    assert turn == "?5" and policy.spent.calls == 1


def test_half_a_draft_has_no_vote() -> None:
    said = {call_seed(5, 0): "#### 1" * 9, call_seed(5, 1): "#### 1" * 9, call_seed(5, 2): "#### 2"}
    requests = [ask_of("?", 5, max_tokens=8)]
    (turn,), _ = turns_of(Vote(drafts=3), Scripted(lambda text, seed: said[seed]), requests, DRAWN)
    assert turn == "#### 2"
