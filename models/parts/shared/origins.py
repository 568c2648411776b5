"""Authors of the completions of a batch, for objectives that learn from samples and from answers of the data at once.

sampled     an engine or the learner's own models drew it
of the data demonstration, chosen, rejected; to imitate are the first two
"""

from __future__ import annotations

from torch import Tensor

from models.method.token_batch import TokenBatch


def of_the_data(batch: TokenBatch) -> Tensor:
    """Return which completions are answers of the data, the worse ones of pairs included, [completions], bool."""
    return batch.from_origins("demonstration", "chosen", "rejected")


def off_policy(batch: TokenBatch) -> Tensor:
    """Return which completions were not drawn from the policy given their prompt alone, [completions], bool.

    These are the answers of the data and of a teacher, and completions that the policy wrote for another goal or with
    more information than the prompt.
    """
    return of_the_data(batch) | batch.from_origins("explained", "refined", "relabelled", "teacher")


def to_imitate(batch: TokenBatch) -> Tensor:
    """Return which completions the data mark as good: demonstrations and better answers of pairs, [completions], bool.

    The worse answer of a preference is neither one to imitate nor a sample of the policy.
    """
    return batch.from_origins("demonstration", "chosen")
