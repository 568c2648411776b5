"""Games of several seats as pure rules, small enough to enumerate every way they can be played."""

from __future__ import annotations

from models.agents.play.games.game import Game
from models.agents.play.games.kuhn_poker import KuhnPoker
from models.agents.play.games.mole import Mole
from models.agents.play.games.tic_tac_toe import TicTacToe

GAMES: dict[str, Game] = {game.name: game for game in (KuhnPoker(), TicTacToe(), Mole())}
"""All games by name."""
