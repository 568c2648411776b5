"""No strategy: a turn is the policy's own output."""

from __future__ import annotations

from collections.abc import Sequence

from models.agents.strategy import CountedPolicy, Strategy
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part


@part("plain")
class Plain(Strategy):
    """The policy's own turn, bit for bit."""

    most_calls = 1

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests]."""
        return policy.draft(requests, drawing)
