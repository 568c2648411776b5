"""Episodes: their turns, their limits, and the record of one that was played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

Cut = Literal["", "tokens", "turns", "time", "error"]
"""Why an episode did not end by itself.

tokens: a turn, or the episode, was as long as it may be
turns: it had as many turns as it may have
time: the environment took longer for an answer than it may
error: the environment failed
"""


class Turn(NamedTuple):
    """The policy's text of one turn, and the environment's response."""

    start: int
    """First token of the turn in the completion."""
    stop: int
    """End of the turn, exclusive."""
    reward: float = 0.0
    """Reward of the environment for the turn."""
    state: str = ""
    """State in which the turn was taken, as the environment reports it."""
    seconds: float = 0.0
    """Time of the environment's answer, seconds. It differs from run to run: training does not depend on it, unless the
    recipe requests exactly that."""
    said: str = ""
    """The policy's text."""
    heard: str = ""
    """The environment's answer, whether or not the policy read it."""
    duration: float = 0.0
    """Duration of its action, seconds, as the environment declares; the same in every run."""


def transcript(turns: Sequence[Turn]) -> str:
    """Format an episode of several turns for inspection, each speaker on its own lines; empty for a single turn."""
    if len(turns) < 2:
        return ""
    return "\n".join(f"policy: {turn.said}" + (f"\nenvironment: {turn.heard}" if turn.heard else "") for turn in turns)


Rule = Literal["kept", "wrong", "masked"]
"""How an episode that was cut is treated.

    kept     it counts as one that ended by itself
    wrong    no verifier looks for an answer in it, as in a completion that was cut
    masked   the same, and it is excluded from the loss; it stays in its group's baseline
"""


@dataclass(frozen=True, kw_only=True)
class EpisodeLimits:
    """Limits of episodes."""

    turns: int
    """Maximum number of turns of the policy."""
    turn_tokens: int | None
    """Maximum number of tokens of a turn; None: the rest of the episode's tokens."""
    seconds: float
    """Time limit of an environment's answer, seconds."""
    at_last_turn: Rule
    """Rule for an episode that used all its turns."""
    when_stuck: Rule
    """Rule for an episode whose environment took too long or failed."""

    def rule(self, cut: Cut) -> Rule:
        """Return the rule for an episode; for one that was cut at a limit of tokens see also the setting
        `truncated:`."""
        if cut in ("time", "error"):
            return self.when_stuck
        return {"": "kept", "tokens": "wrong", "turns": self.at_last_turn}[cut]  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Episode:
    """An episode that was played."""

    tokens: tuple[int, ...]
    """All tokens after the prompt, including the environment's, [tokens]; the last is the policy's."""
    log_probs: Tensor | None
    """Log-prob of each token under the distribution that it was drawn from, zero for the environment's tokens,
    [tokens], nats, float32 on the CPU; None if not requested."""
    turns: tuple[Turn, ...]
    """The policy's turns; with the tokens between them they make up `tokens`."""
    text: str
    """Text of the policy's turns, separated by line breaks."""
    cut: Cut
    solved: bool | None
    """Whether the environment reports that the goal was reached; None: it does not report it."""
    prompt: tuple[int, ...] = ()
    """Tokens of the prompt, [tokens]; empty: its problem's prompt."""
    seat: int = 0
    """Index among the seats that learn."""

    @property
    def reward(self) -> float:
        """Sum of the environment's rewards over all turns."""
        return sum(turn.reward for turn in self.turns)
