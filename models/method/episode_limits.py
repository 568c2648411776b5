"""Limits of episodes, and how episodes that were cut are treated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from models.method.turn import Cut

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
