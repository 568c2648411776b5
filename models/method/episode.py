"""An episode that was played."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from models.method.turn import Cut, Turn


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
