"""The seeds of a round: one for what is sampled, others for whatever chance decides beside it.

Two generators of one seed give the same numbers, so what is decided beside the sampling (where a prefix is cut, which
answer stands beside, who writes a token) must not begin with its seed: a first token would hang together with it.
"""

from __future__ import annotations

APART = 0x9E3779B9
"""Flipped bits that part choices from draws; within 32, as a CPU's generator sees no more of a seed."""
SECOND_DRAW = 500_009
"""What a second sampling adds: far from the seed of any other round."""


def round_seed(seed: int, round_number: int) -> int:
    """The seed that a round's completions are sampled by, in a run of seed `seed`."""
    return seed * 1_000_003 + round_number


def for_choices(seed: int) -> int:
    """The seed of what is decided beside a sampling by `seed`."""
    return seed ^ APART


def for_second_draw(seed: int) -> int:
    """The seed of another sampling in the same round."""
    return seed + SECOND_DRAW
