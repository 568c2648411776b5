"""Screens on which a drawn cursor has to be moved to a widget, as in `screens`; many demonstrations correct its place.

    <image:9f86...> press red       24 9 | <image:1b3c...> | 21 6 | <image:c4d2...> | press

A place moves the cursor, and the word `press` presses there. With the flaw `astray`, the cursor is first moved next to
the widget, and the next place corrects it.
"""

from __future__ import annotations

from models.agents.play.screen import PRESS, Point, Screen
from models.task_sets.screens import ScreensSettings


class CursorScreensSettings(ScreensSettings):
    """The section `cursor_screens` of params.yaml."""

    def _turns(self, screen: Screen, places: list[Point]) -> tuple[str, ...]:
        """Return the turns of policy and environment: each place, and `press` where the cursor is on its widget."""
        turns: list[str] = []
        for place in places:
            screen.cursor = place
            turns += [f"{place[0]} {place[1]}", screen.reference()]
            if screen.press(place):
                turns += [PRESS, screen.reference()]
        return tuple(turns[:-1])


SETTINGS = CursorScreensSettings
