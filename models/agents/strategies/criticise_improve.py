"""The policy criticises its turn, and then improves it (RCI, arXiv 2303.17491).

    draft | "Review your previous answer and find problems with your answer." | critique
          | "Based on the problems you found, improve your answer." | the next draft

The last draft is the turn; critiques are not part of the episode. An improvement that did not end, or that has no room,
leaves the draft unchanged. The paper applies this to an agent's plan and to each of its actions on a screen (task,
state and agent grounding), with a model of 175B; here it applies to each turn, in any environment of the recipe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, request_of_call
from models.base.bounds import Count
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part

CRITIQUE = "Review your previous answer and find problems with your answer."
IMPROVE = "Based on the problems you found, improve your answer."


@part("criticise_improve")
class CriticiseImprove(Strategy):
    """A draft, its critique and a better draft, for several rounds."""

    source = SourcePaper(48, "Language Models can Solve Computer Tasks (RCI, arXiv 2303.17491)")
    rounds: Annotated[int, Field(ge=1, le=16)] = 1
    """Rounds of critique and improvement."""
    critique: str = CRITIQUE
    """Request after a draft."""
    improve: str = IMPROVE
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
            criticised = {
                place: policy.extended(histories[place], draft.tokens, self.critique)
                for place, draft in enumerate(drafts)
                if draft.finished
            }
            new_drafts = improved_drafts(policy, requests, criticised, self.improve, drawing, 1 + 2 * number)
            for place, (history, draft) in new_drafts.items():
                histories[place], drafts[place] = history, draft
        return drafts


def improved_drafts(
    policy: CountedPolicy,
    requests: Sequence[CompletionRequest],
    criticised: Mapping[int, tuple[int, ...]],
    improve: str,
    drawing: TokenSampling,
    call: int,
) -> dict[int, tuple[tuple[int, ...], Generated]]:
    """Let the policy criticise drafts and improve them.

    Args:
        policy: generates critiques and drafts.
        requests: requests of the turns, [requests].
        criticised: index of a request -> ids of its history, its draft and the question after the draft.
        improve: question after a critique.
        drawing: how tokens are drawn.
        call: number of the critique among the calls of a turn; the improvement has the next.

    Returns:
        Index of a request -> ids up to the new draft, and the new draft. A critique or draft that did not end, or has
        no room, is left out.
    """
    critiques = policy.answer(
        [request_of_call(requests[place], call, ids) for place, ids in criticised.items()], drawing
    )
    histories = {
        place: policy.extended(ids, critique.tokens, improve)
        for (place, ids), critique in zip(criticised.items(), critiques, strict=True)
        if critique is not None and critique.finished
    }
    drafts = policy.answer(
        [request_of_call(requests[place], call + 1, ids) for place, ids in histories.items()], drawing
    )
    return {
        place: (ids, draft)
        for (place, ids), draft in zip(histories.items(), drafts, strict=True)
        if draft is not None and draft.finished
    }
