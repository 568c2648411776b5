"""Episodes: their turns, their limits, and the record of one that was played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

Cut = Literal["", "tokens", "turns", "time", "error"]
"""Why an episode did not end by itself.

tokens: a turn or the episode reached its limit of tokens
turns: the episode reached its limit of turns
time: an answer of the environment exceeded its time limit
error: the environment failed
"""


class Turn(NamedTuple):
    """One turn of the policy in an episode, with the environment's answer to it."""

    start: int
    """Index of the turn's first token in the completion."""
    stop: int
    """Index after the turn's last token in the completion."""
    reward: float = 0.0
    """Reward of the environment for the turn."""
    state: str = ""
    """State in which the turn was taken, as the environment reports it."""
    seconds: float = 0.0
    """Time of the environment's answer, seconds. It differs from run to run: training does not depend on it, unless the
    recipe requests exactly that."""
    text: str = ""
    """The policy's text."""
    response: str = ""
    """The environment's answer, whether or not the policy read it."""
    duration: float = 0.0
    """Duration of the turn's action that the environment declares, seconds; the same in every run."""
    correction: str = ""
    """Right text of the turn according to the environment; empty if it reports none."""


def transcript(turns: Sequence[Turn]) -> str:
    """Format an episode of several turns for inspection, each speaker on its own lines; empty for a single turn."""
    if len(turns) < 2:
        return ""
    return "\n".join(
        f"policy: {turn.text}" + (f"\nenvironment: {turn.response}" if turn.response else "") for turn in turns
    )


Rule = Literal["kept", "wrong", "masked"]
"""Treatment of an episode that was cut.

    kept     it counts as if it had ended by itself
    wrong    verifiers count it as wrong without looking for an answer, as they do for a cut completion
    masked   as wrong, and it is also excluded from the loss; it stays in its group's baseline
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
        """Return the rule for an episode that was cut for the reason `cut`.

        For one that was cut at a limit of tokens, the setting `truncated:` applies too.
        """
        if cut in ("time", "error"):
            return self.when_stuck
        return {"": "kept", "tokens": "wrong", "turns": self.at_last_turn}[cut]  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Episode:
    """Record of an episode that was played."""

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
