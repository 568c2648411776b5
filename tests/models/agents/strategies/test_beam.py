"""Beam search over a tree of steps that is known as a whole, so that the best turn is known by enumeration."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from models.agents.strategies.beam import Beam
from models.agents.strategies.plain import Plain
from models.agents.strategy import Strategic
from models.agents.turn_scorer import NO_SCORER, ScorerSettings
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from tests.support.tiny_strategies import BYTES, DRAWN, GREEDY, Scripted, ask_of, read, turns_of

STEPS = ("x", "y", "z")
"""Possible texts of each step; a turn has three of them, separated by semicolons."""
DEPTH = 3
TURNS = [";".join(steps) for steps in product(STEPS, repeat=DEPTH)]
PROCESS = ScorerSettings(name="process_model")


class Steps(Scripted):
    """A policy whose k-th completion after a text, within a call, begins with the k-th step. It stops at stop ids."""

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        made, asked = [], Counter[str]()
        for request in requests:
            text = read(request.prompt)
            self.heard.append(text)
            number, asked[text] = asked[text], asked[text] + 1
            known = text.count(";")
            rest = [STEPS[(number + 7 * place) % len(STEPS)] for place in range(DEPTH - known)]
            ids = BYTES.completions([";".join(rest)])[0]
            stop = next((at for at, token in enumerate(ids) if token in request.stops or token in BYTES.ends), 0)
            whole = tuple(ids[: stop + 1])
            made.append(Generated(whole[: request.max_tokens], None, len(whole) <= request.max_tokens))
        return made


class Values:
    """A scorer of beginnings by a function of their text."""

    def __init__(self, value: object) -> None:
        self.value, self.read = value, 0

    def __call__(self, prompts: Sequence[Sequence[int]], turns: Sequence[Sequence[int]]) -> list[float]:
        return [self.value(text) for text in BYTES.text(turns)]  # type: ignore[operator]


def searched(
    strategy: Beam, value: object, drawing: TokenSampling = DRAWN, max_tokens: int = 60
) -> tuple[str, Generated]:
    strategic = Strategic(Steps(), BYTES, strategy, 4096, Values(value))
    (turn,) = strategic.complete([ask_of("Q", 5, max_tokens)], drawing)
    assert strategic.policy.spent.calls <= strategy.most_calls
    return BYTES.text([turn.tokens])[0], turn


def rank(text: str) -> float:
    """Return a value in (0, 1) that has no order by steps: only whole turns say which is best."""
    return (sum((place + 3) ** 3 * ord(sign) for place, sign in enumerate(text)) * 7919 % 1009) / 1009


@pytest.mark.parametrize("drawing", [DRAWN, GREEDY], ids=["drawn", "greedy"])
def test_a_beam_as_wide_as_there_are_continuations_is_exhaustive_search(drawing: TokenSampling) -> None:
    strategy = Beam(width=len(STEPS) ** DEPTH, expansions=len(STEPS), scorer=PROCESS)
    text, turn = searched(strategy, rank, drawing)
    assert text == max(TURNS, key=rank) and turn.finished


def test_a_narrow_beam_keeps_the_best_beginnings_only() -> None:
    """The best whole turn begins with x, but a beam of width 1 follows the value of the first step, which is y."""
    value = {"x;": 0.2, "y;": 0.9, "z;": 0.1} | {turn: 1.0 if turn.startswith("x") else 0.5 for turn in TURNS}

    def by_table(text: str) -> float:
        return value.get(text, 0.4 if text.startswith("x") else 0.3)

    assert searched(Beam(width=1, expansions=3, scorer=PROCESS), by_table)[0].startswith("y")
    assert searched(Beam(width=2, expansions=3, scorer=PROCESS), by_table)[0].startswith("x")


def test_the_last_step_is_drawn_to_the_end_of_the_turn() -> None:
    """With a single step the beam is the best of n whole turns."""
    text, turn = searched(Beam(width=1, expansions=3, steps=1, scorer=PROCESS), rank)
    assert turn.finished and text in TURNS
    assert text == max((";".join(STEPS[(n + 7 * place) % 3] for place in range(3)) for n in range(3)), key=rank)


def test_a_turn_that_was_cut_is_taken_only_if_all_were() -> None:
    _, turn = searched(Beam(width=2, expansions=3, scorer=PROCESS), rank, max_tokens=4)
    assert not turn.finished and len(turn.tokens) == 4
    text, turn = searched(Beam(width=2, expansions=3, scorer=PROCESS), rank, max_tokens=6)
    assert turn.finished and len(turn.tokens) == 6 and text in TURNS


@pytest.mark.parametrize("drawing", [DRAWN, GREEDY], ids=["drawn", "greedy"])
def test_with_a_single_beginning_the_turn_is_the_policys_own(drawing: TokenSampling) -> None:
    requests = [ask_of("Q", seed) for seed in range(5)]
    policy = Scripted(lambda text, seed: f"{seed};{seed}")
    turns, counted = turns_of(Beam(width=1, expansions=1, scorer=PROCESS), policy, requests, drawing)
    assert turns == turns_of(Plain(), policy, requests, drawing)[0] and counted.spent.calls == 5


@pytest.mark.parametrize(("answers", "shape"), [(1, (1, 1)), (3, (3, 1)), (4, (4, 1)), (8, (4, 2)), (10, (4, 2))])
def test_a_budget_is_the_number_of_beginnings_after_each_step(answers: int, shape: tuple[int, int]) -> None:
    strategy = Beam().at_budget(answers)
    assert (strategy.expansions, strategy.width) == shape
    assert strategy == replace(Beam(), expansions=shape[0], width=shape[1])


def test_without_a_scorer_or_with_marks_that_no_token_holds_it_is_refused_in_a_line() -> None:
    with pytest.raises(UserError, match="beam needs a scorer, such as process_model"):
        Beam(scorer=NO_SCORER)
    with pytest.raises(UserError, match=r"strategy\.marks: an empty text"):
        Beam(marks=("",))
    with pytest.raises(UserError, match=r"strategy\.marks: no token of the policy holds '<step>'"):
        searched(Beam(marks=("<step>",), scorer=PROCESS), rank)
