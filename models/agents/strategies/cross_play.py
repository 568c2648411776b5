"""Play with partners that the policy was not trained with, after a prediction of the partner's action.

After ProAgent (arXiv 2308.11339):

    "What will the other do next?" | belief | "Then what do you do? Say only that." | turn

The belief is not part of the episode. If the belief or the answer did not end, or has no room, the turn is the policy's
own. With each of `partners` the policy is measured with this strategy and alone: rows of the cross-play matrix
(`models.evaluation.cross_play`). The paper plays Overcooked with GPT-3.5 and corrects beliefs by the partner's actual
action; here that action is in the history of the next belief.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, request_of_call
from models.base.bounds import Count
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part


@part("cross_play")
class CrossPlayed(Strategy):
    """A turn after a prediction of the partner's action, with partners that the policy was not trained with."""

    source = SourcePaper(
        361, "ProAgent: Building Proactive Cooperative AI with Large Language Models (arXiv 2308.11339)"
    )
    partners: Annotated[tuple[str, ...], Field(max_length=32)] = ()
    """Versions, NAME/VERSION, or model folders of the partners."""
    foresee: str = "What will the other do next?"
    """First question to the policy; empty: none, and its turns are its own."""
    act: str = "Then what do you do? Say only that."
    """Second question to the policy."""
    extra_tokens: Count = 256
    """Tokens in addition to prompt and episode that the engine needs room for: both questions and the belief."""

    @property
    def most_calls(self) -> int:
        """Belief, turn, and the policy's own turn if they fail."""
        return 3 if self.foresee else 1

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests]."""
        turn_of: dict[int, Generated] = {}
        if self.foresee:
            belief_prompts = [policy.extended(request.prompt, (), self.foresee) for request in requests]
            beliefs = policy.answer(
                [request_of_call(request, 1, ids) for request, ids in zip(requests, belief_prompts, strict=True)],
                drawing,
            )
            act_prompts = [
                (place, policy.extended(ids, belief.tokens, self.act))
                for place, (ids, belief) in enumerate(zip(belief_prompts, beliefs, strict=True))
                if belief is not None and belief.finished
            ]
            turns = policy.answer([request_of_call(requests[place], 2, ids) for place, ids in act_prompts], drawing)
            turn_of = {
                place: turn
                for (place, _), turn in zip(act_prompts, turns, strict=True)
                if turn is not None and turn.finished
            }
        missing_places = [place for place in range(len(requests)) if place not in turn_of]
        drafts = policy.draft([requests[place] for place in missing_places], drawing) if missing_places else []
        turn_of |= dict(zip(missing_places, drafts, strict=True))
        return [turn_of[place] for place in range(len(requests))]
