"""Instructions with pairs of constraints that never occur together in `constrained_texts`, to measure the transfer.

The whole set is held out: it has problems of the gate only. The topics are those of `constrained_texts`.
"""

from __future__ import annotations

from typing import ClassVar

from models.task_sets.constrained_texts import ConstrainedTextsSettings


class UnseenPairsSettings(ConstrainedTextsSettings):
    """The section `unseen_pairs` of params.yaml."""

    pairs_unseen: ClassVar[bool] = True


SETTINGS = UnseenPairsSettings
