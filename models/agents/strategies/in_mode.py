"""Answers in another mode of a policy whose modes are selected by a token (rollouts conditioned, paper 245).

A policy that was trained with modes is exported in its first mode, whose token follows every prompt. This strategy
replaces that token, so that each mode can be measured with the same problems and draws:

    rewardflow evaluate 3 --strategy in_mode --set 'strategy.exported="[safe]"' --set 'strategy.token="[open]"'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part


@part("in_mode")
class InMode(Strategy):
    """The policy's own turn after the token of another mode."""

    source = SourcePaper(
        245, "Efficient Switchable Safety Control in LLMs via Magic-Token-Guided Co-Training", "safety"
    )
    most_calls = 1
    exported: str = ""
    """Token of the mode that the policy was exported in, which follows its prompts."""
    token: str = ""
    """Token of the mode that is measured."""

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request in the mode, [requests].

        Raises:
            UserError: a token is not named, or a prompt does not end with the token of the exported mode.
        """
        for name in ("exported", "token"):
            if not getattr(self, name):
                raise UserError(f"strategy.{name}: empty; name the token of a mode, as in rollouts.modes of the recipe")
        exported, token = (ids[:-1] for ids in policy.ids([self.exported, self.token]))
        if any(tuple(request.prompt[-len(exported) :]) != exported for request in requests):
            raise UserError(
                f"strategy in_mode: the policy's prompts do not end with {self.exported!r}; measure a policy that was "
                "trained with rollouts.modes, and set strategy.exported to the token of its first mode"
            )
        moded = [replace(request, prompt=(*request.prompt[: -len(exported)], *token)) for request in requests]
        return policy.draft(moded, drawing)
