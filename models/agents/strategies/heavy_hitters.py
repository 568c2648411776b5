"""The policy with a budget of keys and values: heavy hitters and the newest tokens (H2O, arXiv 2306.14048; paper 365).

    rewardflow evaluate champion --strategy heavy_hitters --set strategy.heavy=8 --set strategy.recent=8

The budget is that of `models.engines.evicting`, in the transformers engine. The gain of the strategy is the accuracy
that the budget costs. `strategy/log_prob_gap` is how much likelier a token of the answers is with the budget than
without, in nats: the mean of log p_budget - log p, which estimates KL(p_budget || p) for each token if answers are
drawn at temperature 1. A budget of the whole text changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy
from models.base.bounds import Count, Positive
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.engines.evicting import CacheBudget
from models.engines.voice import JointDecoding
from models.method.registry import part


@part("heavy_hitters")
class HeavyHitters(Strategy):
    """The policy's own turns, drawn with a limited number of keys and values."""

    most_calls = 2
    joint = True
    source = SourcePaper(
        365,
        "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models (arXiv 2306.14048)",
        "infrastructure",
    )
    heavy: Count = 8
    """Tokens with the largest attention so far that are kept in each layer and key head; 0: only the newest."""
    recent: Positive = 8
    """Newest tokens that are kept."""

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests]; log-probs of the turns are compared with the policy's own.

        Raises:
            UserError: the engine is not that of transformers, or the model has a sliding window or a soft cap.
        """
        budget = JointDecoding(budget=CacheBudget(self.heavy, self.recent))
        drawn = policy.draft(requests, replace(drawing, log_probs=True), budget)
        own = policy.score([request.prompt for request in requests], [each.tokens for each in drawn])
        if drawing.temperature in (0.0, 1.0) and (drawing.top_p, drawing.top_k) == (1.0, 0):
            policy.spent.log_ratios += [
                float(each.log_probs.double().sum()) - whole
                for each, whole in zip(drawn, own, strict=True)
                if each.log_probs is not None
            ]
        return [replace(each, log_probs=None) for each in drawn]
