"""Rotation of tests: a run takes some of the marked tests, and the selection changes with every commit."""

import subprocess
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest


class Item(Protocol):
    """The attributes of a test that `rotate` uses. pytest's items have them."""

    nodeid: str

    def get_closest_marker(self, name: str) -> pytest.Mark | None: ...

    def add_marker(self, marker: pytest.MarkDecorator) -> None: ...


@cache
def turn(folder: Path) -> int:
    """Return the number of commits of the checkout in `folder`, or 0 if git reports none."""
    try:
        counted = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:  # git is not installed
        return 0
    return int(counted.stdout) if counted.returncode == 0 else 0


def first(test: str) -> int:
    """Return the turn of a test's first case, before it is reduced modulo the number of turns."""
    return zlib.crc32(test.encode())


def rotate(items: Sequence[Item], turn: int) -> None:
    """Mark as thorough the tests that this turn leaves out.

    The mark `rotating(of=N)` belongs to a series: the cases of one test, or the tests without cases of one file. A turn
    runs every N-th member of a series. The series begin at different turns, so that no turn has the first case of all
    of them.

    Tests that share an expensive resource have the mark `rotating(of=N, together=NAME)`. A turn runs all tests of a
    name or none of them, and the N names take turns in alphabetical order.
    """
    seen: Counter[str] = Counter()
    marks = [item.get_closest_marker("rotating") for item in items]
    names = sorted({mark.kwargs["together"] for mark in marks if mark and "together" in mark.kwargs})
    for item, rotating in zip(items, marks, strict=True):
        if rotating and "together" in rotating.kwargs:
            if (names.index(rotating.kwargs["together"]) - turn) % rotating.kwargs["of"]:
                item.add_marker(pytest.mark.thorough)
        elif rotating:
            test, cases, _ = item.nodeid.partition("[")
            test = test if cases else test.partition("::")[0]
            if (first(test) + seen[test] - turn) % rotating.kwargs["of"]:
                item.add_marker(pytest.mark.thorough)
            seen[test] += 1
