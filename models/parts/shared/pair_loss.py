"""Common base of losses over pairs: scores of both answers, a loss of these, and added imitation of the better answer.

    loss of a pair = l(s_better, s_worse) + sft * NLL,   NLL = -log pi(better) / tokens of the better answer

Most losses depend on the margin s_better - s_worse alone, which does not determine whether the better answer has become
likelier: both may fall as long as the worse one falls faster. NLL keeps the better answer likely (iterative RPO, arXiv
2404.19733; CPO, arXiv 2401.08417; ORPO, arXiv 2403.07691). It is a mean over each answer's own tokens, so that a long
answer counts no more than a short one, and a pair's loss does not depend on the other pairs of the batch.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.token_batch import TokenBatch
from models.parts.shared.implied_rewards import implied_of_pairs, watch_pairs


def mean_over_tokens(values: Tensor, batch: TokenBatch) -> Tensor:
    """Convert sums over the tokens of both answers to means, [pairs, 2]; gradient flows."""
    assert batch.pairs is not None, "objectives over pairs see pairs"
    return values / batch.lengths[batch.pairs].to(values)


@dataclass(frozen=True, kw_only=True)
class PairLoss(Objective):
    """Base of losses per pair of a better and a worse answer. Set under `objective:`."""

    level = "pair"
    beta: PositiveFloat = 0.1
    """Strength of the pull to the reference, as in DPO; without a reference, the steepness of the loss."""
    sft: NonNegativeFloat = 0.0
    """Weight of the mean negative log-prob of the better answer's tokens, added to the loss of the pair."""

    @property
    def needs_reference(self) -> bool:
        """Whether the scores are log-ratios, as by default."""
        return True

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each pair, [pairs], nats.

        Args:
            log_prob: log pi of the better and the worse completion, [pairs, 2], nats; gradient flows. Of each token,
                [tokens], where the loss `reads_tokens`.
            batch: the reference's log-probs, [tokens], and other inputs of the scores.
        """
        scores = self._scores(log_prob, batch)
        loss, watch = self._loss(scores, batch), watch_pairs(scores)
        if not self.sft:
            return loss, watch
        whole = batch.by_pair(log_prob) if self.reads_tokens else log_prob
        imitation = -mean_over_tokens(whole, batch)[:, 0]
        return loss + self.sft * imitation, {**watch, "sft_loss": imitation.detach()}

    def _scores(self, log_prob: Tensor, batch: TokenBatch) -> Tensor:
        """Compute the policy's scores of both answers, [pairs, 2], nats; gradient flows.

        By default they are DPO's implied rewards, beta log pi/ref.
        """
        return implied_of_pairs(log_prob, batch, self.beta)

    @abstractmethod
    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        """Compute the loss of each pair without the imitation, [pairs], nats."""


def margins(scores: Tensor) -> Tensor:
    """Subtract the worse score from the better, [pairs, 2] to [pairs]; gradient flows."""
    return scores[:, 0] - scores[:, 1]
