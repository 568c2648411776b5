"""Digests and sketches of gate splits, by which looks at equal or overlapping splits are counted together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from models.answers.answers import answer_key
from models.datasets.normalise import normalise
from models.datasets.schema import read_rows

KEPT = 64
"""Maximum number of problems in a sketch."""
DIGITS = 8
"""Hexadecimal digits of a problem's hash in a sketch."""


def problems_of(data: Path) -> list[str]:
    """Return the gate's problems in a folder of clean data, each as one text, sorted.

    The texts are equal for problems that only another export wrote differently: case and spaces of the prompt, the
    format of a number.
    """
    rows = read_rows(data, "problems", "gate")
    return sorted(json.dumps([normalise(str(row["prompt"])), answer_key(str(row["answer"]))]) for row in rows)


def digest_of(problems: Iterable[str]) -> str:
    """Return the digest of the problems, independent of their order."""
    return hashlib.sha256("\n".join(sorted(problems)).encode()).hexdigest()[:16]


def sketch_of(problems: Iterable[str]) -> str:
    """Return the `KEPT` smallest hashes of the problems (a bottom-k sketch, Broder 1997): small enough for a tag."""
    hashes = sorted({hashlib.sha256(problem.encode()).hexdigest()[:DIGITS] for problem in problems})
    return "".join(hashes[:KEPT])


def estimated_overlap(first: str, other: str) -> float:
    """Estimate the share of the smaller split's problems that the other also has, from their sketches, in [0, 1].

    Below the smaller of the two largest hashes both sketches are whole samples of their splits.
    """
    left, right = _hashes(first), _hashes(other)
    if not left or not right:
        return 0.0
    # fewer than KEPT hashes are all there are, and no hash is missing above the last of them
    bounds = [max(hashes) for hashes in (left, right) if len(hashes) == KEPT]
    if bounds:
        left, right = ({value for value in hashes if value <= min(bounds)} for hashes in (left, right))
    smaller = min(len(left), len(right))
    return len(left & right) / smaller if smaller else 0.0


def _hashes(sketch: str) -> set[str]:
    return {sketch[at : at + DIGITS] for at in range(0, len(sketch), DIGITS)}
