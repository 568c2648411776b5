"""An episode that goes on: what its next turn is asked with, and what a turn and the environment's answer change.

    ask      prompt and all tokens so far, the turn's seed, its room
    drew     the tokens of the turn
    heard    text, reward, over or not; or how the environment failed
    read     ids of that text, behind the sampled ids, which are never encoded again

Who calls these, in what order for which episode, is another matter (`models.episodes.play`, `models.episodes.pace`):
nothing here reads another episode.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from models.engine.engine import Ask, Generated
from models.episodes.environment import Heard, Info, Opened, View
from models.episodes.episode import Episode
from models.episodes.limits import EpisodeLimits
from models.errors import UserError
from models.finite import finite
from models.loop.turn import Cut, Turn
from models.seeds import turn_seed

_LOG = logging.getLogger("rewardflow.episodes")


@dataclass
class Playing:
    """An episode that goes on."""

    prompt: Sequence[int]
    opened: Opened | View
    seed: int
    """Of the completion; its turns' are made of it."""
    longest: int
    """Tokens that it may have behind the prompt."""
    limits: EpisodeLimits
    tokens: list[int] = field(default_factory=list)
    log_probs: list[Tensor] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    state: str = ""
    actions: tuple[str, ...] = ()
    """What the environment admits as the next turn, where it lists that."""
    over: bool = False
    cut: Cut = ""
    solved: bool | None = None

    @property
    def reads(self) -> tuple[int, ...]:
        """What stands before its next turn, [tokens]."""
        return (*self.prompt, *self.tokens)

    def ask(self) -> Ask:
        """Its next turn."""
        return Ask(
            self.reads if self.tokens else self.prompt,
            turn_seed(self.seed, len(self.turns)),
            min(self.limits.turn_tokens or self.longest, self.longest - len(self.tokens)),
            actions=self.actions,
        )

    def drew(self, generated: Generated, text: str) -> None:
        """Take a turn, whose text is `text`. One that was cut ends the episode: nobody answers half a turn."""
        start = len(self.tokens)
        self.tokens += generated.tokens
        if generated.log_probs is not None:
            self.log_probs.append(generated.log_probs)
        self.turns.append(Turn(start, len(self.tokens), state=self.state, said=text))
        if not generated.finished:
            self.end("tokens")

    def heard(self, answer: Heard | None, error: BaseException | None, seconds: float) -> None:
        """Take what the environment answered to the last turn, or what it raised, and the seconds that it took.

        Raises:
            BaseException: `error`, where it is no matter of this episode alone.
        """
        if answer is not None and error is None:
            try:
                return self._take(answer, seconds)
            except Exception as broken:  # what is no answer
                error = broken
        assert error is not None
        if isinstance(error, (UserError, MemoryError)) or not isinstance(error, Exception):
            raise error
        if isinstance(error, TimeoutError):
            return self.end("time")
        _LOG.warning("an environment failed, and with it one episode (%s: %s)", type(error).__name__, error)
        return self.end("error")

    def _take(self, answer: Heard, seconds: float) -> None:
        words, reward, terminated, truncated, info = answer
        if self.turns:  # what a seat hears before it had a turn is no turn's
            self.turns[-1] = self.turns[-1]._replace(
                reward=finite(reward), seconds=seconds, heard=words, duration=finite(info.get("duration", 0.0))
            )
        self.note(info)
        if "solved" in info:
            self.solved = bool(info["solved"])
        if terminated or truncated:
            self.end()
        elif len(self.turns) == self.limits.turns:
            self.end("turns")

    def note(self, info: Info) -> None:
        """Take what there is to know of the next turn."""
        self.state = str(info.get("state", ""))
        self.actions = tuple(info.get("actions", ()))

    def read(self, ids: Sequence[int]) -> None:
        """Take the ids of what was heard; where they leave no room for a turn the episode ends before them."""
        if len(self.tokens) + len(ids) >= self.longest:
            return self.end("tokens")
        self.tokens += ids
        self.log_probs.append(torch.zeros(len(ids)))
        return None

    def played(self, log_probs: bool, seat: int = 0) -> Episode:
        """The episode that it has become. `log_probs`: whether they are wanted; `seat`: see `Episode`."""
        return Episode(
            tuple(self.tokens),
            torch.cat(self.log_probs) if log_probs else None,
            tuple(self.turns),
            "\n".join(turn.said for turn in self.turns),
            self.cut,
            self.solved,
            tuple(self.prompt),
            seat,
        )

    def end(self, cut: Cut = "") -> None:
        self.over, self.cut = True, cut
