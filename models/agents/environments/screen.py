"""A screen with widgets to press: the policy names a place, and reads how the screen looks then.

    <image:9f86...> press red then circle      21 6 | <image:07aa...> | 8 24          pointer: direct
    <image:9f86...> press red                  24 9 | <image:1b3c...> | 21 6 | <image:c4d2...> | press      cursor

With a drawn cursor, a turn moves the cursor to a place, and the word `press` presses there. The cursor is drawn from
the first move on. The policy sees where its cursor is and can correct it, as in "Learning GUI Grounding with Spatial
Reasoning from Visual Feedback" (GUI-Cursor, paper 190). Without it, each place is pressed at once.

The episode is solved when all widgets of the task were pressed; the last one earns 1, and a move may earn the share of
the distance that it gains. A press of anything else leaves the screen unchanged; one more of them than `misses` ends
the episode.

The screen is the first picture of the prompt, and later pictures are made from it. For a real program, write an
environment that answers with its screenshots.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat

from models.agents.play.screen import PRESS, Box, Point, Screen, read_point
from models.answers.hidden import Hidden, hidden
from models.base.images import content_of
from models.base.pictures import size_of
from models.method.environment import Environment, EnvironmentAnswer, EnvironmentEpisode, Info
from models.method.problem import Problem, first_picture
from models.method.registry import part


class Widgets(Hidden):
    """Hidden answer of a problem: what has to be pressed."""

    targets: Annotated[tuple[Box, ...], Field(min_length=1)]
    """Boxes of the widgets to press, in pixels: left, top, right, bottom."""
    in_order: bool = True
    """Whether they have to be pressed in this order."""


@part("screen")
class ScreenEnvironment(Environment):
    """Widgets on a picture of a screen, to be pressed at the places that the policy names."""

    needs_answers = True
    pointer: Literal["direct", "cursor"] = "direct"
    """direct: each place is pressed at once; cursor: a place moves the drawn cursor, and `press` presses there."""
    gain: NonNegativeFloat = 0.0
    """Reward of the whole distance to the widget, paid move by move; a move away costs as much as it had earned. With
    `pointer: cursor` only."""
    step_cost: NonNegativeFloat = 0.0
    """Cost of a turn."""
    misses: Annotated[int, Field(ge=0)] = 0
    """Number of presses of anything else that an episode may have."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem, whose answer is `{"targets": [[18, 2, 27, 11]]}`."""
        known = hidden(problem, Widgets, self.name)
        name = first_picture(problem, f"the environment {self.name}")
        content = content_of(name)
        return _Pointing(self, Screen(content, known.targets, known.in_order), size_of(content, name))


class _Pointing:
    def __init__(self, settings: ScreenEnvironment, screen: Screen, size: tuple[int, int]) -> None:
        self._settings, self._screen = settings, screen
        self._start = size[0] // 2, size[1] // 2
        self._whole = max(screen.distance(self._place), 1.0)
        self._missed = 0

    @property
    def _place(self) -> Point:
        """Place of the cursor: the middle of the screen until it is moved."""
        return self._screen.cursor or self._start

    def reset(self, seed: int) -> tuple[str, Info]:
        return "", self._info()

    def step(self, turn: str) -> EnvironmentAnswer:
        reward, place = -self._settings.step_cost, read_point(turn)
        if self._settings.pointer == "direct":
            if place is not None:
                self._press(place)
        elif place is not None:
            reward += self._settings.gain * self._move(place)
        elif turn.split()[-1:] == [PRESS]:
            self._press(self._place)
        if self._screen.done:
            return "", reward + 1.0, True, False, self._info()
        if self._missed > self._settings.misses:
            return "", reward, True, False, self._info()
        return self._screen.reference(), reward, False, False, self._info()

    def _press(self, place: Point) -> None:
        if self._screen.press(place):
            self._whole = max(self._screen.distance(self._place), 1.0)
        else:
            self._missed += 1

    def _move(self, place: Point) -> float:
        """Move the cursor. Return the gained share of the distance to the widget that is due."""
        before = self._screen.distance(self._place)
        self._screen.cursor = place
        return (before - self._screen.distance(place)) / self._whole

    def _info(self) -> Info:
        return {"state": self._screen.state, "solved": self._screen.done}

    def close(self) -> None:
        return None
