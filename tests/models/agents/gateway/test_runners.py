"""Results of agent programs: every value gives an outcome or ends the program's own episode."""

import sys
from typing import Any

import pytest

from models.agents.gateway.agents import AgentPrograms
from models.agents.gateway.runners import ProgramFailed, ProgramReport, outcome_of
from models.engines.engine import Sampling
from models.method.episode import EpisodeLimits
from tests.support.tiny_episodes import ENDING, Listening
from tests.support.tiny_loops import PROBLEMS

LONG = 10**5000
"""Python refuses to print a number with so many digits."""


class Unwritten:
    """An object whose text representation fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_a_reward_that_training_cannot_hold_is_none() -> None:
    rewards: list[Any] = [10**400, -(10**400), LONG, float("inf"), float("nan"), 1e39, "1", True, None]
    for reward in rewards:
        with pytest.raises(ProgramFailed, match=r"^its reward: .* is not a finite number$"):
            outcome_of({"reward": reward})


def test_a_result_that_cannot_be_written_is_none() -> None:
    results: list[Any] = [LONG, [LONG], Unwritten(), *({key: Unwritten()} for key in ("reward", "answer", "solved"))]
    for result in [*results, {"answer": LONG}]:
        with pytest.raises(ProgramFailed, match=r"^its result (cannot be read|is a int)"):
            outcome_of(result)


def test_rewards_are_numbers_of_any_kind() -> None:
    assert [outcome_of({"reward": reward}) for reward in (0, -3, 0.5)] == [
        ProgramReport(0.0),
        ProgramReport(-3.0),
        ProgramReport(0.5),
    ]
    assert outcome_of({}) == ProgramReport() and outcome_of({"answer": 7}).answer == "7"


@pytest.mark.parametrize("huge", ["1e999", "1" + "0" * 400, "1" + "0" * 5000, "NaN"])
def test_a_program_whose_reward_is_no_number_ends_its_own_episode(engine: Listening, huge: str) -> None:
    code = f"""import json; print('{{"reward": %s}}' % ({huge!r} if json.loads(input())["id"] == "p1" else 1))"""
    programs = AgentPrograms(command=(sys.executable, "-S", "-c", code), side_by_side=2, shows_answer=False)
    limits = EpisodeLimits(turns=4, turn_tokens=None, seconds=60, at_last_turn="kept", when_stuck="masked")
    made = programs.drive(engine, ENDING, limits, PROBLEMS[:2], Sampling(max_tokens=8, samples=2), 0)
    assert [[episode.cut for episode in group] for group in made] == [["", ""], ["error", "error"]]
