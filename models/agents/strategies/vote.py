"""Several drafts of a turn, and the one that most of them agree with (self-consistency, arXiv 2203.11171).

    turn = first draft that states what most drafts state

Drafts that state no answer, such as calls of a tool, vote with their whole text. Ties go to the draft that came first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, request_of_call
from models.answers.ballot import winner
from models.base.bounds import Temperature
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part


@part("vote")
class Vote(Strategy):
    """The turn that most of several drafts agree with."""

    source = SourcePaper(
        None, "Self-Consistency Improves Chain of Thought Reasoning in Language Models (arXiv 2203.11171)"
    )
    drafts: Annotated[int, Field(ge=1, le=64)] = 5
    """Drafts per turn."""
    temperature: Temperature = 1.0
    """Temperature of the drafts if the turn would be greedy, because greedy drafts are all the same."""

    @property
    def most_calls(self) -> int:
        """The number of drafts."""
        return self.drafts

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests]."""
        drawn = drawing if drawing.temperature else replace(drawing, temperature=self.temperature)
        made = policy.draft(
            [request_of_call(request, call) for request in requests for call in range(self.drafts)], drawn
        )
        texts = policy.texts(made)
        starts = range(0, len(made), self.drafts)
        return [made[at + winner(texts[at : at + self.drafts])] for at in starts]
