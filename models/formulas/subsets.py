"""Subsets of k completions of a prompt, for advantages that pay for the best of them."""

from __future__ import annotations

from models.errors import UserError


def require_subsets(size: int, k: int, problem: str) -> None:
    """Make sure that k completions can be drawn of a group.

    Args:
        size: completions of the group.
        k: completions of a subset.
        problem: id of its prompt, for the error's line.

    Raises:
        UserError: the group is smaller.
    """
    if size < k:
        raise UserError(f"advantage.k is {k}, but problem {problem} has {size} completions; lower it")
