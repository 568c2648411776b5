"""Seeds for independent random choices, derived from the one seed of a run."""

from __future__ import annotations

import hashlib

APART = 0x9E3779B9
"""Bits of a seed that are flipped for choices other than sampling; 32 bits, as torch's CPU generator uses no more."""
SECOND_DRAW = 500_009
"""Offset of the seed of a second sampling in a round, far from the seeds of other rounds."""


def seed_of(seed: int, purpose: str, number: int = 0) -> int:
    """Return a seed for the `number`-th choice of one purpose, in [0, 2^32), as torch's CPU generator uses 32 bits.

    Sums and products of small numbers collide: the order of epoch 3 would be drawn by the numbers that sample round 3.
    Hashes do not collide in practice.
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose} {number}".encode()).digest()[:4], "big")


def completion_seed(seed: int, prompt: int, number: int) -> int:
    """Return the seed for completion `number` of prompt `prompt`, in a sampling call with `seed`, in [0, 2^63).

    It is wider than other seeds: of the many completions of a run no two are likely to share it.
    """
    return int.from_bytes(hashlib.sha256(f"{seed} completion {prompt} {number}".encode()).digest()[:8], "big") >> 1


def turn_seed(seed: int, turn: int) -> int:
    """Return the seed of a turn of an episode, in [0, 2^63); for turn 0, `seed` itself.

    Args:
        seed: seed of the completion (`completion_seed`).
        turn: number of the turn, from 0; -1: for random choices of the environment.
    """
    if turn == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed} turn {turn}".encode()).digest()[:8], "big") >> 1


def call_seed(seed: int, call: int) -> int:
    """Return the seed of a call within a turn, in [0, 2^63); for call 0, `seed` itself.

    Args:
        seed: seed of the turn.
        call: number of the call, from 0.
    """
    if call == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed} call {call}".encode()).digest()[:8], "big") >> 1


def seat_seed(seed: int, seat: int) -> int:
    """Return the seed for sampling at a seat of an episode, in [0, 2^63); for seat 0, `seed` itself.

    Args:
        seed: seed of the episode (`completion_seed`).
        seat: number of the seat, from 0.
    """
    if seat == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed} seat {seat}".encode()).digest()[:8], "big") >> 1


def round_seed(seed: int, round_number: int) -> int:
    """Return the seed for sampling the completions of a round, in a run with the seed `seed`."""
    return seed * 1_000_003 + round_number


def choice_seed(seed: int) -> int:
    """Return a seed for random choices that must be independent of the sampling with `seed`."""
    return seed ^ APART


def second_sampling_seed(seed: int) -> int:
    """Return the seed for a second sampling in the same round."""
    return seed + SECOND_DRAW
