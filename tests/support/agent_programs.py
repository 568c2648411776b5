"""Rollouts of agent programs, and the check that every call to the policy is trained on once."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models.method.rollout import Rollout, parts_of
from models.parts.rollouts.program import ProgramRollouts
from tests.support.tiny_episodes import ENDING, Listening
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_resources import make_resources

AGENT = Path(__file__).with_name("agent_program.py")


def program(mode: str, **settings: Any) -> ProgramRollouts:
    return ProgramRollouts(
        **{
            "prompts": 2, "group_size": 2, "max_tokens": 48, "call_tokens": 6,
            "command": (sys.executable, "-S", str(AGENT), mode), "seconds": 30.0, **settings,
        }
    )  # fmt: skip


def draw(engine: Listening, source: ProgramRollouts, number: int = 0) -> list[Rollout]:
    return source(make_resources(engine, codec=ENDING), PROBLEMS[: source.prompts], number)


def trained(rollout: Rollout) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the prompt and the sampled ids of each call that the policy is trained on."""
    flags = rollout.trained or (True,) * len(rollout.completion)
    whole = rollout.completion
    return [
        ((*rollout.problem.tokens, *whole[: turn.start]), whole[turn.start : turn.stop])
        for turn in rollout.episode.turns
        if all(flags[turn.start : turn.stop])
    ]


def assert_all_calls_are_trained_on_once(engine: Listening, made: Sequence[Rollout]) -> None:
    made = parts_of(made)
    drawn = sorted((tuple(ask.prompt), generated.tokens) for ask, generated in engine.asked)
    assert drawn == sorted(call for rollout in made for call in trained(rollout))
    assert sum(map(len, (tokens for _, tokens in drawn))) == sum(rollout.trained_tokens for rollout in made)
