"""Play the turns of an episode once more, about the same problem or about another one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from models.episodes.answers import in_time
from models.episodes.environment import Environment
from models.errors import UserError
from models.finite import finite
from models.loop.rollout import Problem
from models.loop.turn import Turn


class Replayed(NamedTuple):
    """What an environment says to turns that were taken before."""

    turns: tuple[Turn, ...]
    """As they are answered now, up to where the episode ends."""
    solved: bool | None
    """What it says of the goal at the last of them; None: nothing."""


def replay(
    environment: Environment, problem: Problem, goal: Problem, turns: Sequence[Turn], seed: int, seconds: float
) -> Replayed | None:
    """The turns of an episode about `problem` under another goal, with the seed that the environment had.

    Args:
        environment: whose episode it was.
        problem: what it was about.
        goal: what it is to be about.
        turns: the policy's, with what was heard.
        seed: that the environment was reset with.
        seconds: what it may take for an answer.

    Returns:
        None where the environment says anything else than it said, under the new goal or under the old one, or fails:
        the policy would have read other words.
    """
    try:
        with closing(environment.open(problem)) as old, closing(environment.open(goal)) as new:
            first = in_time(seconds, lambda: old.reset(seed), old)[0]
            greeting, info = in_time(seconds, lambda: new.reset(seed), new)
            if greeting != first:
                return None
            answered: list[Turn] = []
            for turn in turns:
                state = str(info.get("state", ""))
                heard, reward, terminated, truncated, info = in_time(seconds, lambda: new.step(turn.said), new)  # noqa: B023
                over = terminated or truncated
                if not over and heard != turn.heard:
                    return None
                answered.append(turn._replace(reward=finite(reward), state=state, heard=heard))
                if over:
                    break
    except (UserError, MemoryError):
        raise
    except Exception:  # whatever an environment raises
        return None
    return Replayed(tuple(answered), bool(info["solved"]) if "solved" in info else None)
