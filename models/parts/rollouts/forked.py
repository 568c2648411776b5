"""Branches at a random turn: one episode of each prompt is played, and G others leave it at one of its turns.

    prompt | turn 1 | answer | turn h    answer | ...        R
                             | turn h'   answer | ...        R'

A branch is trained on at turn h alone: the turns before it are shared, the turns after it serve to evaluate it, and R -
R' is the difference of the rewards that follow. The rollouts of REFUEL (paper 183, arXiv 2410.04612).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from models.agents.play.fork import Fork, branch
from models.agents.play.play import play
from models.base.seeds import round_seed, seed_of
from models.engines.engine import requests_of
from models.method.episode import Episode, EpisodeLimits
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.episodes import Episodes, as_rollout


@part("forked")
class Forked(Episodes):
    """Episodes that share their beginning with one another. Set under `rollouts:`."""

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return branches of one episode about each of `problems`, next to each other, [prompts * G]."""
        seed = round_seed(resources.seed, round_number)
        settings = replace(self.episodes, environment=self.environment.in_round(round_number))
        alone = replace(self.sampling, samples=1)
        requests = requests_of([problem.tokens for problem in problems], alone, seed)
        shared = play(resources.sampler(), resources.codec, settings, problems, alone, seed)
        chance = torch.Generator().manual_seed(seed_of(seed, "forks"))
        forks = [
            Fork(problem, episode, request.seed, int(torch.randint(len(episode.turns), (), generator=chance)))
            for problem, (episode,), request in zip(problems, shared, requests, strict=True)
        ]
        branches = branch(
            resources.sampler(), resources.codec, settings, forks, self.sampling, seed_of(seed, "branches")
        )
        return [
            at_turn(problem, number, episode, settings.limits, fork.turn)
            for number, (problem, fork, group) in enumerate(zip(problems, forks, branches, strict=True))
            for episode in group
        ]


def at_turn(problem: Problem, group: int, episode: Episode, limits: EpisodeLimits, turn: int) -> Rollout:
    """Convert a branch to a rollout of the loop, trained on at its `turn` alone.

    Args:
        problem: subject of the episode.
        group: number of its prompt in the round.
        episode: as it was played.
        limits: define the treatment of an episode that was cut.
        turn: number of the turn, from 0.
    """
    made = as_rollout(problem, group, episode, limits)
    here = made.episode.turns[turn]
    trained = [False] * len(made.completion)
    if made.trained_tokens:
        trained[here.start : here.stop] = [True] * (here.stop - here.start)
    return replace(made, trained=tuple(trained))
