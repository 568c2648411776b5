"""The state of an open episode: the request for its next turn, and the updates by a turn and the environment's answer.

    request  prompt and all tokens so far, the turn's seed, its room
    drew     the tokens of the turn
    receive  text, reward, over or not; or how the environment failed
    read     ids of that text, appended to the sampled ids, which are never encoded again

The order of these calls is defined elsewhere (`models.agents.play.play`, `models.agents.play.pace`): nothing here reads
another episode.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from models.base.errors import UserError
from models.base.finite import finite
from models.base.seeds import turn_seed
from models.engines.engine import CompletionRequest, Generated
from models.method.environment import EnvironmentAnswer, EnvironmentEpisode, Info, View
from models.method.episode import Cut, Episode, EpisodeLimits, Turn

_LOG = logging.getLogger("rewardflow.episodes")


@dataclass
class Playing:
    """The state of an open episode."""

    prompt: Sequence[int]
    opened: EnvironmentEpisode | View
    seed: int
    """Seed of the completion; the seeds of its turns are derived from it."""
    longest: int
    """Maximum number of tokens after the prompt."""
    limits: EpisodeLimits
    tokens: list[int] = field(default_factory=list)
    log_probs: list[Tensor] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    state: str = ""
    correction: str = ""
    """Right text of the next turn according to the environment; empty if it reports none."""
    actions: tuple[str, ...] = ()
    """Texts that the environment allows as the next turn, if it lists them."""
    over: bool = False
    cut: Cut = ""
    solved: bool | None = None

    @property
    def reads(self) -> tuple[int, ...]:
        """Tokens before its next turn, [tokens]."""
        return (*self.prompt, *self.tokens)

    def request(self) -> CompletionRequest:
        """Return the request for its next turn."""
        return CompletionRequest(
            self.reads if self.tokens else self.prompt,
            turn_seed(self.seed, len(self.turns)),
            min(self.limits.turn_tokens or self.longest, self.longest - len(self.tokens)),
            actions=self.actions,
        )

    def record_turn(self, generated: Generated, text: str) -> None:
        """Record the policy's turn, whose text is `text`.

        A turn that was cut ends the episode, because half a turn is not answered.
        """
        start = len(self.tokens)
        self.tokens += generated.tokens
        if generated.log_probs is not None:
            self.log_probs.append(generated.log_probs)
        self.turns.append(Turn(start, len(self.tokens), state=self.state, text=text, correction=self.correction))
        if not generated.finished:
            self.end("tokens")

    def receive(self, answer: EnvironmentAnswer | None, error: BaseException | None, seconds: float) -> None:
        """Record the environment's answer to the last turn, or its exception, and the seconds that it took.

        Raises:
            BaseException: `error`, if it concerns more than this episode.
        """
        if answer is not None and error is None:
            try:
                return self._take(answer, seconds)
            except Exception as broken:  # it is not a valid answer
                error = broken
        assert error is not None
        if isinstance(error, (UserError, MemoryError)) or not isinstance(error, Exception):
            raise error
        if isinstance(error, TimeoutError):
            return self.end("time")
        _LOG.warning("an environment failed, and with it one episode (%s: %s)", type(error).__name__, error)
        return self.end("error")

    def _take(self, answer: EnvironmentAnswer, seconds: float) -> None:
        text, reward, terminated, truncated, info = answer
        if self.turns:  # a text that a seat reads before its first turn belongs to none of its turns
            self.turns[-1] = self.turns[-1]._replace(
                reward=finite(reward), seconds=seconds, response=text, duration=finite(info.get("duration", 0.0))
            )
        self.note(info)
        if "solved" in info:
            self.solved = bool(info["solved"])
        if terminated or truncated:
            self.end()
        elif len(self.turns) == self.limits.turns:
            self.end("turns")

    def note(self, info: Info) -> None:
        """Record the state, the correction and the allowed actions of the next turn from the environment's info."""
        self.state, self.correction = str(info.get("state", "")), str(info.get("correction", ""))
        self.actions = tuple(info.get("actions", ()))

    def read(self, ids: Sequence[int]) -> None:
        """Append the ids of the environment's text; if they leave no room for a turn, the episode ends before them."""
        if len(self.tokens) + len(ids) >= self.longest:
            return self.end("tokens")
        self.tokens += ids
        self.log_probs.append(torch.zeros(len(ids)))
        return None

    def to_episode(self, log_probs: bool, seat: int = 0) -> Episode:
        """Return the finished episode. `log_probs`: whether it includes log-probs; `seat`: see `Episode`."""
        return Episode(
            tuple(self.tokens),
            torch.cat(self.log_probs) if log_probs else None,
            tuple(self.turns),
            "\n".join(turn.text for turn in self.turns),
            self.cut,
            self.solved,
            tuple(self.prompt),
            seat,
        )

    def end(self, cut: Cut = "") -> None:
        self.over, self.cut = True, cut
