"""DPO with a label between 0 and 1: how sure it is that the better completion of a pair is better.

    loss = -[q log sigmoid(margin) + (1 - q) log sigmoid(-margin)],   margin as in DPO (arXiv 2305.18290)

The cross-entropy of the policy's implied preference against q; q = 1 is DPO, q = 1/2 draws the margin to zero, and a
pair is content where its margin is log(q / (1 - q)). Papers differ in where q comes from:

strength   q = sigmoid(d)                  d: difference of the two values of `by`, a log-odds (paper 346, OSP); with
                                           win rates as the values it is the regression of DNO (paper 307)
certainty  q = 1 - H(sigmoid(d)) / 2       H: entropy in bits, [0, 1] (paper 287, UPO: unsure pairs give no signal)
given      q = mean of the two values      `by` holds the label itself, in [0, 1] (paper 345, CREAM: agreement of two
                                           rankings), so that loss = C * DPO(pair) + (1 - C) * DPO(pair turned round)

The losses are derived from the papers' abstracts and summaries. UPO estimates uncertainty by dropout in an estimator
model: here it is the entropy of the Bradley-Terry chance that the recipe's rewards give. All pairs of a group at once
are the objective `osp`.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.base.errors import UserError
from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.implied_rewards import implied_of_pairs, watch_pairs
from models.parts.shared.soft_label import soft_loss, uncertainty


@part("soft_dpo")
class SoftDpo(Objective):
    """DPO's cross-entropy per pair against a soft label; needs a reference."""

    level = "pair"
    needs_reference = True
    beta: PositiveFloat = 0.1
    """Strength of the pull to the reference, as in DPO."""
    label: Literal["strength", "certainty", "given"] = "strength"
    """Source of the label q."""
    by: str = "total"
    """Reward component that the label is read from; `total` is the weighted sum."""
    temperature: PositiveFloat = 1.0
    """Divisor of differences before they count as log-odds; unused if the label is given."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each pair, [pairs], nats.

        Args:
            log_prob: log pi of the better and the worse completion, [pairs, 2], nats; gradient flows.
            batch: the reference's log-probs, [tokens], and the rewards, [completions].

        Raises:
            UserError: no reward has the name `by`, or a given label is not in [0, 1].
        """
        implied = implied_of_pairs(log_prob, batch, self.beta)
        label = self._labels(batch)
        loss = soft_loss(implied[:, 0] - implied[:, 1], label)
        return loss, {**watch_pairs(implied), "label": label.detach()}

    def _labels(self, batch: TokenBatch) -> Tensor:
        """Return the probability that the better completion is better, [pairs], in [0, 1]."""
        assert batch.pairs is not None, "objectives over pairs see pairs"
        values = batch.worth(self.by)[batch.pairs]
        if self.label == "given":
            label = values.mean(-1)
            if bool(((label < 0) | (label > 1)).any()):
                raise UserError(f"objective.label: {self.by} is to be a label, but it is not in [0, 1] everywhere")
            return label
        log_odds = (values[:, 0] - values[:, 1]) / self.temperature
        return torch.sigmoid(log_odds) if self.label == "strength" else 1.0 - uncertainty(log_odds) / 2.0
