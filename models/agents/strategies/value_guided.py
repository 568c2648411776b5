"""Tokens of a frozen policy, weighted by the values of the texts that they lead to (arXiv 2405.06639; paper 166).

    log p(token) = log p_policy + sum over the value models of beta_i * V_i(text, token) + constant

Value Augmented Sampling: value models are fitted to samples of the policy, which itself is not changed (recipe
value_augmented_sampling). Their factors are set when the policy is used, and may differ in sign. The values are read at
the `k` likeliest tokens; the others are treated like a token of mean value, as in the published code.

If V is the value (1 / beta) log E[exp(beta * reward)] of the policy's completions, the completions are distributed
exactly as p_policy exp(beta * reward), the optimum of the reward with a KL penalty of 1 / beta (advantage
sampled_values, setting `risk`). With the expected reward, as in the paper, this holds for the last token, and is an
improvement of the policy before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from models.agents.frozen_models import values_of
from models.agents.strategy import CountedPolicy, SourcePaper, Strategy
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.engines.value_term import ValueTerm
from models.engines.voice import JointDecoding
from models.method.recipe_paths import ContentPaths
from models.method.registry import part


@part("value_guided")
class ValueGuided(Strategy):
    """The policy's tokens, made more likely by the values of what they lead to."""

    most_calls = 1
    source = SourcePaper(
        166,
        "Value Augmented Sampling for Language Model Alignment and Personalization (arXiv 2405.06639)",
        "inference-time-search",
    )
    values: ContentPaths = ()
    """Folders of value models, or of policies with such a model in `values/`."""
    betas: tuple[Annotated[float, Field(ge=-1000, le=1000)], ...] = (3.0,)
    """Factor of each model's values, nats per unit of its reward; 0: the model is not read. The published example
    takes 3."""
    k: Annotated[int, Field(ge=1, le=1_048_576)] = 20
    """Number of likeliest tokens whose values are read. The published code takes 20."""

    def __post_init__(self) -> None:
        if self.values and len(self.values) != len(self.betas):
            raise UserError(
                f"strategy.betas: {len(self.betas)} factors for {len(self.values)} value models; give one for each"
            )

    @property
    def joint(self) -> bool:
        """Only if a factor is not zero."""
        return any(self.betas)

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests].

        Raises:
            UserError: no value model is named, or a folder holds none with the policy's tokens.
        """
        if not self.joint:
            return policy.draft(requests, drawing)
        if not self.values:
            raise UserError("strategy.values: name the folder of a policy that value_augmented_sampling has made")
        terms = tuple(
            ValueTerm(values_of(folder, policy), beta, self.k)
            for folder, beta in zip(self.values, self.betas, strict=True)
            if beta
        )
        return policy.draft(requests, drawing, JointDecoding(terms=terms))
