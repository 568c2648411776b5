"""A walk over a text grid: one move per turn, walls, a goal.

    A.#.        r | b1 | d | b2 | d | b3 | ...          the environment answers with the cell, as in chess
    ..#.
    ...G

The last word of a turn is the move (u, d, l, r, or the whole words), so thoughts may precede it. The cell is the turn's
state, by which `anchored` compares turns. Reaching the goal earns 1; a turn may earn more by these rules:

    progress     the decrease of the distance to the goal, over the distance at the start
    best_move    the move begins a shortest way (rule-verified actions, Think in Games, paper 251)

The answer may hold more than the cell: affordances and a memory of actions that worked, as in "Knowledge-enhanced
Agents for Interactive Text Games" (paper 36). With `shows: picture`, it is a picture: that of the prompt, with the
walker in its new cell; with `shows: views`, one such picture for every move that is possible from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat

from models.agents.play.functions import Composed
from models.agents.play.grid import Cell, Grid, cell_name, notes, read_move, way_to_goal, with_walker
from models.answers.hidden import Hidden, hidden
from models.base.errors import UserError
from models.base.images import content_of, drawn_reference
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem, first_picture
from models.method.registry import part


class Map(Hidden):
    """Hidden answer of a problem: the grid."""

    grid: tuple[str, ...]
    """Rows of the grid, walls included, whether or not the prompt shows them."""


@part("grid_walk")
class GridWalk(Environment):
    """Moves over a grid with walls, until the goal is reached."""

    renamed: ClassVar[Mapping[str, str]] = {"tells": "shows"}
    needs_answers = True
    progress: NonNegativeFloat = 0.0
    """Reward of the whole way, paid move by move; a move away costs as much as it had earned."""
    best_move: NonNegativeFloat = 0.0
    """Reward of a move that begins a shortest way."""
    step_cost: NonNegativeFloat = 0.0
    """Cost of a move."""
    shows: Literal["cell", "notes", "picture", "views"] = "cell"
    """Answer to a move. cell: the cell; notes: the cell with the moves that are possible from there (affordances) and,
    after a sign, those that have led there (memory of what worked), such as `b2 dr <rd`; picture: the prompt's first
    picture, with the walker in its new cell; views: the possible moves, each with a picture of the walker after it,
    which the policy reads before its first move too."""
    thoughts: tuple[Annotated[str, Field(pattern="^[a-z]+$")], ...] = ()
    """Names of the functions that are requested before each move, one turn each; such a turn does not move."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem, whose answer is `{"grid": ["A.#", "..G"]}`."""
        known = hidden(problem, Map, self.name)
        try:
            grid = Grid(known.grid)
        except ValueError as error:
            raise UserError(f"problem {problem.id}: {error}") from None
        if grid.start not in grid.distance:
            raise UserError(f"problem {problem.id}: no way leads from the start of the grid to its goal")
        content = None
        if self.shows in ("picture", "views"):
            content = content_of(first_picture(problem, f"{self.name} with shows: {self.shows}"))
        walking = _Walking(self, grid, content)
        return Composed(walking, self.thoughts) if self.thoughts else walking


class _Walking:
    def __init__(self, settings: GridWalk, grid: Grid, content: bytes | None) -> None:
        self._settings, self._grid, self._cell = settings, grid, grid.start
        self._content = content
        self._effective_moves = ""

    def reset(self, seed: int) -> tuple[str, Info]:
        return self._describe_cell() if self._settings.shows == "views" else "", self._info()

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        settings, grid, before = self._settings, self._grid, self._cell
        move = read_move(turn)
        if move is None:
            text = "error: u, d, l or r" if self._content is None else self._describe_cell()
            return text, -settings.step_cost, False, False, self._info()
        best = move in grid.best_moves(before)
        self._cell = grid.after(before, move)
        self._effective_moves += move if self._cell != before else ""
        nearer = (grid.distance[before] - grid.distance[self._cell]) / grid.distance[grid.start]
        reward = settings.progress * nearer + settings.best_move * best - settings.step_cost
        if self._cell == grid.goal:
            return "", reward + 1.0, True, False, self._info()
        return self._describe_cell(), reward, False, False, self._info()

    def _info(self) -> Info:
        """Return the state; with thoughts, also the true one, which is the way to the goal that ignores walls."""
        info: Info = {"state": cell_name(self._cell), "solved": self._cell == self._grid.goal}
        if self._settings.thoughts:
            info["correction"] = way_to_goal(self._grid, self._cell)
        return info

    def _describe_cell(self) -> str:
        if self._settings.shows == "picture":
            return self._picture(self._cell)
        if self._settings.shows == "views":
            moves = self._grid.open_moves(self._cell)
            return " ".join(f"{move} {self._picture(self._grid.after(self._cell, move))}" for move in moves)
        if self._settings.shows == "cell":
            return cell_name(self._cell)
        return notes(self._grid, self._cell, self._effective_moves)

    def _picture(self, cell: Cell) -> str:
        assert self._content is not None, "checked when the episode is opened"
        return drawn_reference(with_walker(self._content, self._grid.size, self._grid.start, cell))

    def close(self) -> None:
        return None
