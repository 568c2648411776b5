"""An episode as it was played."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from models.loop.turn import Cut, Turn


@dataclass(frozen=True, eq=False)
class Episode:
    """An episode as it was played."""

    tokens: tuple[int, ...]
    """Everything behind the prompt, the environment's words included, [tokens]; the last is the policy's."""
    log_probs: Tensor | None
    """Of each token under the distribution that it was drawn from, zero where the environment wrote, [tokens], nats,
    float32 on the CPU; None where not wanted."""
    turns: tuple[Turn, ...]
    """The policy's; they, and what lies between them, make up `tokens`."""
    text: str
    """What the policy said, a line break between turns."""
    cut: Cut
    solved: bool | None
    """What the environment says of the goal; None: nothing."""
    prompt: tuple[int, ...] = ()
    """What it was read behind, [tokens]; empty: its problem's prompt."""
    seat: int = 0
    """Which of the seats that learn it was played at."""

    @property
    def reward(self) -> float:
        """What the environment gave, all turns together."""
        return sum(turn.reward for turn in self.turns)
