"""A reward model that reads texts by themselves: no prompt stands before them (paper 146).

Its folder holds `bare_texts.json`. Where a prompt would stand is one end token, as if another text had just ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from models.atomic_write import write_file

FILE = "bare_texts.json"


def write_bare(folder: Path) -> None:
    """Write into a reward model's folder that it reads no prompts."""
    write_file(folder / FILE, '{"prompts": false}\n')


def is_bare(folder: Path) -> bool:
    """Whether the reward model in `folder` reads no prompts."""
    return (folder / FILE).is_file()


def bare_prompts(count: int, end: int) -> Sequence[Sequence[int]]:
    """What stands before each of so many texts, [count] lists; `end`: the end token."""
    return [(end,)] * count
