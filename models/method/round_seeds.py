"""The seeds of a round: one for sampling, others for all other random choices.

Two generators of one seed give the same numbers. So random choices other than the sampling (where a prefix is cut,
which other answer is shown, which model writes a token) must not begin with its seed: a first token would be correlated
with them.
"""

from __future__ import annotations

APART = 0x9E3779B9
"""Flipped bits that separate choices from draws; within 32, as a CPU's generator uses no more of a seed."""
SECOND_DRAW = 500_009
"""Offset of a second sampling: far from the seed of any other round."""


def round_seed(seed: int, round_number: int) -> int:
    """Return the seed that a round's completions are sampled by, in a run of seed `seed`."""
    return seed * 1_000_003 + round_number


def for_choices(seed: int) -> int:
    """Return the seed of random choices other than a sampling by `seed`."""
    return seed ^ APART


def for_second_draw(seed: int) -> int:
    """Return the seed of another sampling in the same round."""
    return seed + SECOND_DRAW
