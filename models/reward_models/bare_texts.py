"""A reward model that reads texts without a prompt (paper 146).

Its folder contains `bare_texts.json`. The prompt is replaced by one end token, as if another text had just ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from models.base.atomic_write import write_file

FILE = "bare_texts.json"


def write_bare(folder: Path) -> None:
    """Mark the reward model in a folder as one that reads no prompts."""
    write_file(folder / FILE, '{"prompts": false}\n')


def is_bare(folder: Path) -> bool:
    """Return whether the reward model in `folder` reads no prompts."""
    return (folder / FILE).is_file()


def bare_prompts(count: int, end: int) -> Sequence[Sequence[int]]:
    """Return the prompts of `count` texts, [count] lists: the end token `end` alone."""
    return [(end,)] * count
