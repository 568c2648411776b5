"""The one exception for errors that a user can fix: its text is a single clear line, shown without a traceback."""

from __future__ import annotations

LONGEST_LINE = 600
"""Maximum length of a finding, characters; longer ones are shortened, so that a terminal shows the end of the line."""


class UserError(Exception):
    """Error that a user can fix. The message names the file, row, field or key, and how to fix it.

    It is always one line: line ends and control characters become spaces, and a finding longer than LONGEST_LINE loses
    its middle. Each of several findings is limited to that length by itself: none hides another.
    """

    def __init__(self, *findings: str) -> None:
        lines = ("".join(c if c.isprintable() else " " for c in finding) for finding in findings)
        super().__init__(*(shortened(line, LONGEST_LINE) for line in lines))

    def __str__(self) -> str:
        return "; and ".join(self.args)


def shortened(text: object, longest: int = 60) -> str:
    """Shorten a text for a message: if it is longer than `longest` characters, its middle becomes `...`."""
    whole = str(text)
    if len(whole) <= longest:
        return whole
    head = longest * 2 // 3
    return f"{whole[:head]}...{whole[-(longest - head - 3) :]}"


def last_line(text: str) -> str:
    """Return the last line of an output that is not blank, shortened for a message; empty if there is none."""
    lines = text.strip().splitlines()
    return shortened(lines[-1], 200) if lines else ""


def listed(names: list[str], most: int = 12) -> str:
    """Join at most `most` names, each shortened, for a message: `a, b, c and 7 more`; `none` for an empty list."""
    shown = ", ".join(shortened(name, 40) for name in names[:most]) or "none"
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
