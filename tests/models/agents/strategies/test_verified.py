"""Tries of a turn until a verifier accepts one, with probabilities computed by hand."""

import pytest

from models.agents.strategies.plain import Plain
from models.agents.strategies.verified import Verified
from models.agents.turn_scorer import ScorerSettings
from models.base.errors import UserError
from models.base.seeds import call_seed
from tests.support.tiny_strategies import DRAWN, GREEDY, Scripted, ask_of, turns_of

P = 0.3
"""Probability that a draft of the scripted policy is right."""


def drafts_right(text: str, seed: int) -> str:
    return "right" if (seed * 2654435761 % 2**32) / 2**32 < P else "wrong"


@pytest.mark.parametrize("tries", [1, 2, 4])
def test_a_turn_succeeds_with_the_chance_of_at_least_a_success_in_n_independent_tries(tries: int) -> None:
    count = 3000
    requests = [ask_of("?", seed) for seed in range(7, 7 + count)]
    turns, policy = turns_of(Verified(tries=tries, pattern="right"), Scripted(drafts_right), requests, DRAWN)
    expected = 1 - (1 - P) ** tries
    assert abs(turns.count("right") / count - expected) < 4 * (expected * (1 - expected) / count) ** 0.5
    share_tried_again = sum((1 - P) ** number for number in range(tries))
    assert policy.spent.calls / count == pytest.approx(share_tried_again, abs=0.1)


@pytest.mark.parametrize("drawing", [DRAWN, GREEDY], ids=["drawn", "greedy"])
def test_with_a_verifier_that_accepts_everything_the_turn_is_the_policys_own(drawing: object) -> None:
    requests = [ask_of("?", seed) for seed in range(20)]
    for strategy in (Verified(), Verified(tries=1, pattern="never"), Verified(tries=7, pattern="")):
        turns, policy = turns_of(strategy, Scripted(drafts_right), requests, drawing)  # type: ignore[arg-type]
        plain, _ = turns_of(Plain(), Scripted(drafts_right), requests, drawing)  # type: ignore[arg-type]
        assert turns == plain and policy.spent.calls == 20


def test_the_first_accepted_try_is_taken_and_no_more_are_drawn() -> None:
    said = {call_seed(5, 0): "no", call_seed(5, 1): "yes 1", call_seed(5, 2): "yes 2"}
    policy = Scripted(lambda text, seed: said[seed])
    (turn,), counted = turns_of(Verified(tries=3, pattern="^yes"), policy, [ask_of("?", 5)], DRAWN)
    assert turn == "yes 1" and counted.spent.calls == 2


def test_by_a_scorer_the_first_of_sufficient_value_is_taken_and_without_one_the_best() -> None:
    said = {call_seed(5, number): text for number, text in enumerate(["a", "bb", "c"])}
    chance = {"a": 0.2, "bb": 0.6, "c": 0.4}
    policy = Scripted(lambda text, seed: said[seed], lambda text, reply: chance[reply] ** (len(reply) + 1))
    for least, expected in ((-2.0, "a"), (-1.0, "bb"), (-0.1, "bb")):
        strategy = Verified(tries=3, scorer=ScorerSettings(), least=least)
        (turn,), _ = turns_of(strategy, policy, [ask_of("?", 5)], DRAWN)
        assert turn == expected, "the values are log 0.2, log 0.6 and log 0.4 for each token"


def test_a_try_that_was_cut_is_never_accepted() -> None:
    said = {call_seed(5, 0): "yes" * 9, call_seed(5, 1): "yes"}
    policy = Scripted(lambda text, seed: said[seed])
    (turn,), _ = turns_of(Verified(tries=2), policy, [ask_of("?", 5, max_tokens=8)], DRAWN)
    assert turn == "yes"


def test_a_pattern_that_is_not_an_expression_is_refused_in_a_line() -> None:
    with pytest.raises(UserError, match=r"strategy.pattern: '\(' is not a regular expression"):
        Verified(pattern="(")
