"""Tests of which every run takes some, and others with every commit."""

import subprocess
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest


class Item(Protocol):
    """What is read and marked of a test: pytest's own are such."""

    nodeid: str

    def get_closest_marker(self, name: str) -> pytest.Mark | None: ...

    def add_marker(self, marker: pytest.MarkDecorator) -> None: ...


@cache
def turn(folder: Path) -> int:
    """Commits of the checkout in `folder`; zero where git knows none."""
    try:
        counted = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:  # no git at all
        return 0
    return int(counted.stdout) if counted.returncode == 0 else 0


def first(test: str) -> int:
    """The turn of a test's first case, before it is divided by how many turns there are."""
    return zlib.crc32(test.encode())


def rotate(items: Sequence[Item], turn: int) -> None:
    """Mark as thorough what `rotating(of=N)` leaves for other turns: of the cases of a test, or of a file's tests
    without cases, all but every N-th. Tests that share something dear are `together` under a name: a turn has all or
    none of them, and `of` such names take turns in the order of the alphabet. Tests begin at different turns, so that
    no turn has the first case of all of them."""
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
