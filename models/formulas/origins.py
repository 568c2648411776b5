"""Who wrote the completions of a batch, for objectives that learn from samples and from answers of the data at once.

sampled     an engine or the learner's own models drew it
of the data demonstration, chosen, rejected; to imitate are the first two
"""

from __future__ import annotations

from torch import Tensor

from models.loop.rollout import TokenBatch


def of_the_data(batch: TokenBatch) -> Tensor:
    """Which completions the data hold, worse answers too, [completions], bool. The others are samples."""
    return batch.from_origins("demonstration", "chosen", "rejected")


def off_policy(batch: TokenBatch) -> Tensor:
    """Which completions nobody drew from the policy behind the prompt that they stand under, [completions], bool: those
    of the data, and what the policy wrote knowing more than the prompt."""
    return of_the_data(batch) | batch.from_origins("explained", "refined", "relabelled", "teacher")


def to_imitate(batch: TokenBatch) -> Tensor:
    """Which completions the data hold for good: demonstrations and better answers of preferences, [completions], bool.

    The worse answer of a preference is neither one to imitate nor a sample of the policy.
    """
    return batch.from_origins("demonstration", "chosen")
