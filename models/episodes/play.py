"""Play episodes in waves: every episode that goes on takes one turn, then every environment answers.

    turn      engine     one completion each, at most so long, until the token that ends a turn
    step      environment     text, reward, over or not
    bridge    ids of that text, behind the sampled ids, which are never encoded again

What a wave asks for hangs on run, round, problem and turn alone, so a run that was killed plays its round again and
draws the same episodes. An environment that hangs or fails ends its own episode, and no other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from models.engine.engine import Ask, Engine, Generated, Sampling, asks_of
from models.episodes.environment import Environment, Info, Opened
from models.errors import UserError, shortened
from models.loop.rollout import Cut, Problem, Turn
from models.loop.time_limit import within
from models.seeds import turn_seed
from models.text.bridge import Bridge, Role, bridge_of
from models.text.encoding import Codec

_LOG = logging.getLogger("rewardflow.episodes")

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


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """Whom the policy plays with, and how long."""

    environment: Environment
    limits: EpisodeLimits
    role: Role
    """Who the environment is in a chat template."""


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

    @property
    def reward(self) -> float:
        """What the environment gave, all turns together."""
        return sum(turn.reward for turn in self.turns)


@dataclass
class _Playing:
    """An episode that goes on."""

    prompt: Sequence[int]
    opened: Opened
    seed: int
    tokens: list[int] = field(default_factory=list)
    log_probs: list[Tensor] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    state: str = ""
    over: bool = False
    cut: Cut = ""
    solved: bool | None = None

    def end(self, cut: Cut = "") -> None:
        self.over, self.cut = True, cut


def play(
    engine: Engine, codec: Codec, settings: EpisodeSettings, problems: Sequence[Problem], sampling: Sampling, seed: int
) -> list[list[Episode]]:
    """`sampling.samples` episodes of each problem, [problems][G]; the same seed gives the same ones.

    Args:
        engine: draws the policy's turns.
        codec: the policy's tokenizer.
        settings: environment and limits.
        problems: with encoded prompts, which the episodes begin with.
        sampling: how turns are drawn; `max_tokens` is the longest episode, the environment's words included.
        seed: of the completions, as `Engine.generate` takes it: an episode of one turn is that completion, bit for bit.

    Raises:
        UserError: a problem is none of this environment's, or the chat template cannot be continued.
    """
    bridge = bridge_of(codec, settings.role) if settings.limits.turns > 1 else None
    asks = asks_of([problem.tokens for problem in problems], sampling, seed)
    playing = [
        _Playing(ask.prompt, settings.environment.open(problems[place // sampling.samples]), ask.seed)
        for place, ask in enumerate(asks)
    ]
    try:
        _begin(playing, codec, settings, sampling.max_tokens)
        for turn in range(settings.limits.turns):
            going = [episode for episode in playing if not episode.over]
            if not going:
                break
            _wave(engine, codec, bridge, settings.limits, going, sampling, turn)
    finally:
        for episode in playing:
            episode.opened.close()
    made = [_episode(episode, sampling.log_probs) for episode in playing]
    return [made[at : at + sampling.samples] for at in range(0, len(made), sampling.samples)]


def _begin(playing: Sequence[_Playing], codec: Codec, settings: EpisodeSettings, longest: int) -> None:
    """Reset all environments; what they say first stands behind the prompt, as on lines of its own."""
    for episode in playing:
        seed = turn_seed(episode.seed, -1)
        try:
            text, info = within(settings.limits.seconds, lambda: episode.opened.reset(seed))  # noqa: B023 - called here
        except (UserError, MemoryError):
            raise
        except Exception as error:  # whatever an environment raises
            raise UserError(
                f"environment {settings.environment.name}: an episode could not begin "
                f"({type(error).__name__}: {shortened(str(error), 200)})"
            ) from error
        episode.state = str(info.get("state", ""))
        if text:
            (ids,) = codec.inside([f"\n{text}\n"])
            if len(ids) >= longest:
                raise UserError(
                    f"rollouts.max_tokens is {longest}, but environment {settings.environment.name} begins with "
                    f"{len(ids)} tokens; raise it"
                )
            episode.tokens += ids
            episode.log_probs.append(torch.zeros(len(ids)))


def _wave(
    engine: Engine,
    codec: Codec,
    bridge: Bridge | None,
    limits: EpisodeLimits,
    going: Sequence[_Playing],
    sampling: Sampling,
    turn: int,
) -> None:
    """One turn of each episode, and the environments' answers."""
    longest = limits.turn_tokens or sampling.max_tokens
    asks = [
        Ask(
            (*episode.prompt, *episode.tokens) if episode.tokens else episode.prompt,
            turn_seed(episode.seed, turn),
            min(longest, sampling.max_tokens - len(episode.tokens)),
        )
        for episode in going
    ]
    made = engine.each(asks, sampling)
    texts = codec.text([generated.tokens for generated in made])
    last = turn + 1 == limits.turns
    for episode, generated, text in zip(going, made, texts, strict=True):
        _take(episode, generated, text, limits, last)
    hearing = [episode for episode in going if not episode.over]
    if bridge is None or not hearing:
        return
    for episode, ids in zip(hearing, bridge.ids([episode.turns[-1].heard for episode in hearing]), strict=True):
        if len(episode.tokens) + len(ids) >= sampling.max_tokens:
            episode.end("tokens")
            continue
        episode.tokens += ids
        episode.log_probs.append(torch.zeros(len(ids)))


def _take(episode: _Playing, generated: Generated, text: str, limits: EpisodeLimits, last: bool) -> None:
    """Take a turn that was drawn, and let the environment answer it."""
    start = len(episode.tokens)
    episode.tokens += generated.tokens
    if generated.log_probs is not None:
        episode.log_probs.append(generated.log_probs)
    turn = Turn(start, len(episode.tokens), state=episode.state, said=text)
    episode.turns.append(turn)
    if not generated.finished:  # half a turn: nobody answers it
        return episode.end("tokens")
    began = time.perf_counter()
    try:
        heard, reward, terminated, truncated, info = within(limits.seconds, lambda: episode.opened.step(text))
    except TimeoutError:
        return episode.end("time")
    except (UserError, MemoryError):
        raise
    except Exception as error:  # whatever an environment raises
        _LOG.warning("an environment failed, and with it one episode (%s: %s)", type(error).__name__, error)
        return episode.end("error")
    seconds = time.perf_counter() - began
    episode.turns[-1] = turn._replace(reward=float(reward), seconds=seconds, heard=heard)
    _note(episode, info)
    if terminated or truncated:
        episode.end()
    elif last:
        episode.end("turns")
    return None


def _note(episode: _Playing, info: Info) -> None:
    episode.state = str(info.get("state", ""))
    if "solved" in info:
        episode.solved = bool(info["solved"])


def _episode(episode: _Playing, log_probs: bool) -> Episode:
    return Episode(
        tuple(episode.tokens),
        torch.cat(episode.log_probs) if log_probs else None,
        tuple(episode.turns),
        "\n".join(turn.said for turn in episode.turns),
        episode.cut,
        episode.solved,
    )
