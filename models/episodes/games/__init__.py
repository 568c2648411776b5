"""Games of several seats as pure rules, small enough to enumerate every way they can be played."""

from __future__ import annotations

from models.episodes.games.game import Game
from models.episodes.games.kuhn_poker import KuhnPoker
from models.episodes.games.mole import Mole
from models.episodes.games.tic_tac_toe import TicTacToe

GAMES: dict[str, Game] = {game.name: game for game in (KuhnPoker(), TicTacToe(), Mole())}
"""All games by name."""
