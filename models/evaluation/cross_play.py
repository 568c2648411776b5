"""Cross-play matrix of a population: the payoff of each player with each partner (as in ProAgent, arXiv 2308.11339).

It measures zero-shot coordination.

    M[i, j] = payoff of player i with partner j, mean over the problems

If players and partners are the same population, the diagonal is self-play, and the gap is the loss in payoff with other
partners. M is symmetric if payoffs are shared, and M = -M' in a zero-sum game, in both cases up to chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.base.errors import UserError
from models.evaluation.bootstrap import Interval, bootstrap_mean
from models.evaluation.records import Completion, PromptRecord, turns_of


@dataclass(frozen=True)
class CrossPlay:
    """Matrix of payoffs."""

    players: tuple[str, ...]
    partners: tuple[str, ...]
    payoffs: Mapping[tuple[str, str], NDArray[np.float64]]
    """(player, partner) -> payoff of the player, one value per problem, [problems]."""

    def interval(self, player: str, partner: str) -> Interval:
        """Return the interval of a cell, resampled over problems."""
        return bootstrap_mean(self.payoffs[player, partner])

    @property
    def matrix(self) -> NDArray[np.float64]:
        """Mean payoffs, [players, partners]."""
        return np.array([[self.payoffs[i, j].mean() for j in self.partners] for i in self.players])

    @property
    def self_play(self) -> float:
        """Mean payoff of players with themselves as partners; NaN if no player is its own partner."""
        return self._mean([(name, name) for name in self.players if name in self.partners])

    @property
    def cross_play(self) -> float:
        """Mean payoff of players with other partners."""
        return self._mean([(i, j) for i in self.players for j in self.partners if i != j])

    def _mean(self, cells: Sequence[tuple[str, str]]) -> float:
        return float(np.mean([self.payoffs[cell].mean() for cell in cells])) if cells else float("nan")


def cross_play(
    players: Sequence[str], partners: Sequence[str], play: Callable[[str, str], Sequence[float]]
) -> CrossPlay:
    """Play every player with every partner.

    Args:
        players: names, each once.
        partners: names, each once; a player may be among them.
        play: returns the payoff of a player with a partner, one value per problem, [problems], the same problems for
            all.

    Raises:
        UserError: a name occurs twice, or a list is empty.
    """
    for names, what in ((players, "players"), (partners, "partners")):
        if len(set(names)) != len(names) or not names:
            raise UserError(f"cross-play: {what} are to be named once each, and there must be some: {', '.join(names)}")
    payoffs = {(i, j): np.asarray(play(i, j), dtype=np.float64) for i in players for j in partners}
    return CrossPlay(tuple(players), tuple(partners), payoffs)


def payoff(completion: Completion) -> float:
    """Return the reward of an episode, summed over its turns; for a single-turn completion, whether it is right."""
    if not completion.turns:
        return float(completion.correct)
    return float(sum(turn.reward for turn in turns_of(completion)))


def payoffs(records: Sequence[PromptRecord]) -> list[float]:
    """Return the mean payoff over the samples of each problem, [problems]."""
    return [float(np.mean([payoff(sample) for sample in record.samples])) for record in records]
