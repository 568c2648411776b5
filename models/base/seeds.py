"""Seeds of independent random choices, derived from the one seed of a run."""

from __future__ import annotations

import hashlib

APART = 0x9E3779B9
"""Flipped bits that separate choices from draws; within 32, as a CPU's generator uses no more of a seed."""
SECOND_DRAW = 500_009
"""Offset of a second sampling: far from the seed of any other round."""


def seed_of(seed: int, purpose: str, number: int = 0) -> int:
    """Return a seed for the `number`-th choice of one purpose, in [0, 2^32): a CPU's generator uses only 32 bits.

    Sums and products of small numbers collide: the order of epoch 3 would be drawn by the numbers that sample round 3.
    Hashes do not collide in practice.
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose} {number}".encode()).digest()[:4], "big")


def completion_seed(seed: int, prompt: int, number: int) -> int:
    """Return the seed of the `number`-th completion of the `prompt`-th prompt of a call with `seed`, in [0, 2^63).

    It is wider than other seeds: of the many completions of a run no two are likely to share it.
    """
    return int.from_bytes(hashlib.sha256(f"{seed} completion {prompt} {number}".encode()).digest()[:8], "big") >> 1


def turn_seed(seed: int, turn: int) -> int:
    """Return the seed of an episode's turn, in [0, 2^63): for its first turn, the seed of the episode's completion.

    Args:
        seed: seed of the completion (`completion_seed`).
        turn: number of the turn, from 0; -1: for random choices of the environment.
    """
    if turn == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed} turn {turn}".encode()).digest()[:8], "big") >> 1


def call_seed(seed: int, call: int) -> int:
    """Return the seed of one of the calls of a turn, in [0, 2^63): for the first call, the turn's own seed.

    Args:
        seed: seed of the turn.
        call: number of the call, from 0.
    """
    if call == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed} call {call}".encode()).digest()[:8], "big") >> 1


def seat_seed(seed: int, seat: int) -> int:
    """Return the seed of the sampling at a seat of an episode, in [0, 2^63): for the first seat, the episode's own
    seed.

    Args:
        seed: seed of the episode (`completion_seed`).
        seat: number of the seat, from 0.
    """
    if seat == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed} seat {seat}".encode()).digest()[:8], "big") >> 1


def round_seed(seed: int, round_number: int) -> int:
    """Return the seed that a round's completions are sampled by, in a run of seed `seed`."""
    return seed * 1_000_003 + round_number


def for_choices(seed: int) -> int:
    """Return the seed of random choices other than a sampling by `seed`."""
    return seed ^ APART


def for_second_draw(seed: int) -> int:
    """Return the seed of another sampling in the same round."""
    return seed + SECOND_DRAW
