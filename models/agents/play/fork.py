"""Branches of an episode: several continuations that share its first turns.

    prompt | turn 1 | answer | turn 2 ... of one that was played
                            | turn 2' ...        a branch at turn 2

An environment has no snapshot: it is opened again, reset with the same seed, and given the same turns. An environment
that then answers differently cannot be branched and is refused. Randomness in the environment is the same in all
branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.agents.play.answers import in_time
from models.agents.play.play import to_their_ends
from models.agents.play.playing import Playing
from models.base.errors import UserError
from models.base.seeds import turn_seed
from models.engines.engine import Engine, Sampling, requests_of
from models.method.environment import EpisodeSettings
from models.method.episode import Episode
from models.method.problem import Problem
from models.text.encoding import Codec


@dataclass(frozen=True, eq=False)
class Fork:
    """The point at which branches leave an episode."""

    problem: Problem
    episode: Episode
    seed: int
    """Seed of the episode's completion."""
    turn: int
    """Index of the first turn that the branches do not share, from 0."""


def branch(
    engine: Engine, codec: Codec, settings: EpisodeSettings, forks: Sequence[Fork], sampling: Sampling, seed: int
) -> list[list[Episode]]:
    """Play `sampling.samples` branches of each fork, [forks][G], each including the shared turns.

    Args:
        engine: generates the policy's turns.
        codec: the policy's tokenizer.
        settings: environment and limits.
        forks: points to continue from.
        sampling: sampling settings of the turns.
        seed: seed of the branches.

    Raises:
        UserError: the environment does not answer the same turns in the same way, or has several seats.
    """
    if settings.environment.several:
        raise UserError(
            f"environment {settings.environment.name} has several seats: the turns of the others would have to be "
            "played again"
        )
    requests = requests_of([fork.problem.tokens for fork in forks], sampling, seed)
    playing: list[Playing] = []
    try:
        for place, request in enumerate(requests):
            fork = forks[place // sampling.samples]
            opened = settings.environment.open(fork.problem)
            playing.append(Playing(request.prompt, opened, request.seed, sampling.max_tokens, settings.limits))
            _replay(playing[-1], fork, settings)
        to_their_ends(engine, codec, settings, playing, sampling)
    finally:
        for episode in playing:
            episode.opened.close()
    made = [episode.to_episode(sampling.log_probs) for episode in playing]
    return [made[at : at + sampling.samples] for at in range(0, len(made), sampling.samples)]


def _replay(playing: Playing, fork: Fork, settings: EpisodeSettings) -> None:
    """Bring a newly opened environment to the point of the fork, and the episode with it."""
    episode, seconds = fork.episode, settings.limits.seconds
    in_time(seconds, lambda: playing.opened.reset(turn_seed(fork.seed, -1)), playing.opened)
    for turn in episode.turns[: fork.turn]:
        answer = in_time(seconds, lambda: playing.opened.step(turn.text), playing.opened)  # noqa: B023
        if answer is None or answer[0] != turn.response or answer[2] or answer[3]:
            raise UserError(
                f"environment {settings.environment.name}: given the same turns from the same seed it answered "
                "otherwise than before, so episodes cannot branch in it"
            )
    start = episode.turns[fork.turn].start
    playing.tokens = list(episode.tokens[:start])
    playing.log_probs = [] if episode.log_probs is None else [episode.log_probs[:start]]
    playing.turns = list(episode.turns[: fork.turn])
    playing.state = episode.turns[fork.turn].state
