"""The policy criticises its turn, and then improves it (RCI, arXiv 2303.17491).

    draft | "Review your previous answer and find problems with your answer." | critique
          | "Based on the problems you found, improve your answer." | the next draft

The last draft is the turn; critiques are not part of the episode. An improvement that did not end, or that has no room,
leaves the draft unchanged. The paper applies this to an agent's plan and to each of its actions on a screen (task,
state and agent grounding), with a model of 175B; here it applies to each turn, in any environment of the recipe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, request_of_call
from models.base.bounds import Count
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part


@part("criticise_improve")
class CriticiseImprove(Strategy):
    """A draft, its critique and a better draft, for several rounds."""

    source = SourcePaper(48, "Language Models can Solve Computer Tasks (RCI, arXiv 2303.17491)")
    rounds: Annotated[int, Field(ge=1, le=16)] = 1
    """Rounds of critique and improvement."""
    critique: str = "Review your previous answer and find problems with your answer."
    """Request after a draft."""
    improve: str = "Based on the problems you found, improve your answer."
    """Request after a critique."""
    extra_tokens: Count = 512
    """Tokens in addition to prompt and episode that the engine needs room for: questions, critiques and drafts."""

    @property
    def most_calls(self) -> int:
        """The draft, and two calls per round."""
        return 1 + 2 * self.rounds

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests]."""
        drafts = policy.draft(requests, drawing)
        histories = [tuple(request.prompt) for request in requests]
        for number in range(self.rounds):
            calls = (1 + 2 * number, 2 + 2 * number)
            places = [place for place, draft in enumerate(drafts) if draft.finished]
            critique_prompts = [
                policy.extended(histories[place], drafts[place].tokens, self.critique) for place in places
            ]
            critiques = policy.answer(
                [
                    request_of_call(requests[place], calls[0], ids)
                    for place, ids in zip(places, critique_prompts, strict=True)
                ],
                drawing,
            )
            improve_prompts = [
                (place, policy.extended(ids, critique.tokens, self.improve))
                for place, ids, critique in zip(places, critique_prompts, critiques, strict=True)
                if critique is not None and critique.finished
            ]
            new_drafts = policy.answer(
                [request_of_call(requests[place], calls[1], ids) for place, ids in improve_prompts], drawing
            )
            for (place, ids), draft in zip(improve_prompts, new_drafts, strict=True):
                if draft is not None and draft.finished:
                    histories[place], drafts[place] = ids, draft
        return drafts
