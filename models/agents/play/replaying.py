"""Replay of the turns of an episode, for the same problem or for another one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from models.agents.play.answers import in_time
from models.base.errors import UserError
from models.base.finite import finite
from models.method.environment import Environment
from models.method.episode import Turn
from models.method.problem import Problem


class Replayed(NamedTuple):
    """The environment's answers to turns that were taken before."""

    turns: tuple[Turn, ...]
    """The turns with the new answers, up to the end of the episode."""
    solved: bool | None
    """Whether the goal was reached at the last of them; None: not reported."""


def replay(
    environment: Environment, problem: Problem, goal: Problem, turns: Sequence[Turn], seed: int, seconds: float
) -> Replayed | None:
    """Replay the turns of an episode about `problem` under another goal, with the seed that the environment had.

    Args:
        environment: environment of the episode.
        problem: problem of the episode.
        goal: problem to replay the turns under.
        turns: the policy's turns, with the environment's answers.
        seed: seed that the environment was reset with.
        seconds: time limit of an answer.

    Returns:
        The turns as answered under the new goal; None if the environment fails, or if its text differs under the new
        goal or the old one: the policy would have read other words.
    """
    try:
        with closing(environment.open(problem)) as old, closing(environment.open(goal)) as new:
            old_text = in_time(seconds, lambda: old.reset(seed), old)[0]
            new_text, info = in_time(seconds, lambda: new.reset(seed), new)
            if new_text != old_text:
                return None
            replayed_turns: list[Turn] = []
            for turn in turns:
                state = str(info.get("state", ""))
                text, reward, terminated, truncated, info = in_time(seconds, lambda: new.step(turn.text), new)  # noqa: B023
                over = terminated or truncated
                if not over and text != turn.response:
                    return None
                replayed_turns.append(turn._replace(reward=finite(reward), state=state, response=text))
                if over:
                    break
    except (UserError, MemoryError):
        raise
    except Exception:  # an environment may raise any exception
        return None
    return Replayed(tuple(replayed_turns), bool(info["solved"]) if "solved" in info else None)
