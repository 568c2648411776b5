"""The split of a prompt, if the data do not give it: a hash of the prompt and the seed decides."""

from __future__ import annotations

import hashlib

from models.datasets.schema import Split
from models.datasets.settings import DataSettings

HASH_RANGES: dict[Split, tuple[float, float]] = {"gate": (0.0, 0.25), "validation": (0.25, 0.4), "train": (0.4, 1.0)}
"""Range of the hash of a prompt, in [0, 1), by split; for generated task sets."""


def split_of(prompt: str, settings: DataSettings) -> Split:
    """Return the split of a prompt, a function of seed, shares and the gate's rotation.

    Args:
        prompt: text of the prompt, after `normalise`.
        settings: settings of the data.
    """
    if settings.test_path or _place(f"{settings.seed}", prompt) >= settings.held_out_share:
        return "train"
    return divide_held_out(prompt, settings)


def divide_held_out(prompt: str, settings: DataSettings) -> Split:
    """Return the split of a held-out prompt, after `normalise`. A rotation moves the gate by its own width: to prompts
    that it did not have before, and, if it is more than half of the held-out prompts, to some of its old ones."""
    start = settings.gate_rotation * settings.gate_part
    place = (_place(f"{settings.seed}/gate", prompt) - start) % 1.0
    return "gate" if place < settings.gate_part else "validation"


def _place(salt: str, prompt: str) -> float:
    """Return a number in [0, 1), uniform over normalised prompts."""
    digest = hashlib.sha256(f"{salt}\n{prompt}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def split_by_hash(prompt: str) -> Split:
    """Return the split of a generated problem; it depends on its prompt alone."""
    digest = hashlib.sha256(prompt.encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    return next(split for split, (low, high) in HASH_RANGES.items() if low <= place < high)
