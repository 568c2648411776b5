"""Who plays how well beside whom: the cross-play matrix of a population (as in ProAgent, arXiv 2308.11339, and the
zero-shot coordination that it is measured by).

    M[i, j] = what player i wins beside partner j, mean over the problems

Of a population against itself the diagonal is self-play; how much less is won beside others is the gap. Where what is
won is shared M is symmetric, where one wins what the other loses M = -M', in both cases up to chance.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.errors import UserError
from models.evaluation.bootstrap import Interval, bootstrap_mean
from models.evaluation.records import Completion, PromptRecord


@dataclass(frozen=True)
class CrossPlay:
    """A matrix of payoffs."""

    players: tuple[str, ...]
    partners: tuple[str, ...]
    payoffs: Mapping[tuple[str, str], NDArray[np.float64]]
    """What a player won beside a partner, a value a problem, [problems]."""

    def interval(self, player: str, partner: str) -> Interval:
        """A cell, resampled over problems."""
        return bootstrap_mean(self.payoffs[player, partner])

    @property
    def matrix(self) -> NDArray[np.float64]:
        """Means, [players, partners]."""
        return np.array([[self.payoffs[i, j].mean() for j in self.partners] for i in self.players])

    @property
    def self_play(self) -> float:
        """Mean of what players win beside themselves; NaN where none is its own partner."""
        return self._mean([(name, name) for name in self.players if name in self.partners])

    @property
    def cross_play(self) -> float:
        """Mean of what players win beside others."""
        return self._mean([(i, j) for i in self.players for j in self.partners if i != j])

    def _mean(self, cells: Sequence[tuple[str, str]]) -> float:
        return float(np.mean([self.payoffs[cell].mean() for cell in cells])) if cells else float("nan")


def cross_play(
    players: Sequence[str], partners: Sequence[str], play: Callable[[str, str], Sequence[float]]
) -> CrossPlay:
    """Every player beside every partner.

    Args:
        players: names, each once.
        partners: likewise; a player may be among them.
        play: what a player wins beside a partner, a value a problem, [problems], the same problems for all.

    Raises:
        UserError: a name stands twice, or there is nobody.
    """
    for names, what in ((players, "players"), (partners, "partners")):
        if len(set(names)) != len(names) or not names:
            raise UserError(f"cross-play: {what} are to be named once each, and there must be some: {', '.join(names)}")
    payoffs = {(i, j): np.asarray(play(i, j), dtype=np.float64) for i in players for j in partners}
    return CrossPlay(tuple(players), tuple(partners), payoffs)


def payoff(completion: Completion) -> float:
    """What the environment gave for an episode, all turns together; of a single turn, whether it is right."""
    if not completion.turns:
        return float(completion.correct)
    return float(sum(turn["reward"] for turn in json.loads(completion.turns)))


def payoffs(records: Sequence[PromptRecord]) -> list[float]:
    """Mean over each problem's samples, [problems]."""
    return [float(np.mean([payoff(sample) for sample in record.samples])) for record in records]
