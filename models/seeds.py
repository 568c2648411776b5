"""Seeds of random choices that have nothing to do with one another, made from the one seed of a run."""

from __future__ import annotations

import hashlib


def seed_of(seed: int, purpose: str, number: int = 0) -> int:
    """A seed for the `number`-th choice of one purpose, in [0, 2^32): a CPU's generator sees no more of a seed.

    Sums and products of small numbers meet: the order of epoch 3 would be drawn by the numbers that sample round 3.
    Hashes do not.
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose} {number}".encode()).digest()[:4], "big")


def completion_seed(seed: int, prompt: int, number: int) -> int:
    """The seed of the `number`-th completion of the `prompt`-th prompt of a call with `seed`, in [0, 2^63).

    Wider than a generator's seed elsewhere: of the many completions of a run no two are likely to share it.
    """
    return int.from_bytes(hashlib.sha256(f"{seed} completion {prompt} {number}".encode()).digest()[:8], "big") >> 1
