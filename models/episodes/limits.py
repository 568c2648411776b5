"""Where episodes are cut, and what becomes of those that were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from models.loop.turn import Cut

Rule = Literal["kept", "wrong", "masked"]
"""What becomes of an episode that was cut.

kept: it counts as one that ended by itself
wrong: no verifier looks for an answer in it, as in a completion that was cut
masked: the same, and it leaves the loss; it stays in its group's baseline
"""


@dataclass(frozen=True, kw_only=True)
class EpisodeLimits:
    """Where episodes are cut."""

    turns: int
    """Turns of the policy."""
    turn_tokens: int | None
    """Tokens of a turn; None: what is left of the episode."""
    seconds: float
    """What an environment may take for an answer."""
    at_last_turn: Rule
    """Of an episode that had all its turns."""
    when_stuck: Rule
    """Of an episode whose environment took too long or failed."""

    def rule(self, cut: Cut) -> Rule:
        """What becomes of an episode; of one that was cut at a limit of tokens `truncated:` says more."""
        if cut in ("time", "error"):
            return self.when_stuck
        return {"": "kept", "tokens": "wrong", "turns": self.at_last_turn}[cut]  # type: ignore[return-value]
