"""A large model that was not tuned, moved by what tuning changed in a small one (arXiv 2310.12962; paper 172).

    log p(token) = log p_large + b * (log p_small tuned - log p_small base) + constant

Emulated fine-tuning: the log-ratio of the two small models is the implied reward of their fine-tuning, and the sum is
the policy that the large model would become if it were fine-tuned with this reward, up to the normalisation of each
token. With b = 0 the large model answers alone, bit for bit. The policy that is evaluated is the large model; the small
ones need the same tokenizer. All three read the same tokens in step, on one device, in the transformers engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from models.agents.frozen_models import voice_of
from models.agents.strategy import CountedPolicy, SourcePaper, Strategy
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.engines.voice import JointDecoding
from models.method.recipe_paths import ContentPath
from models.method.registry import part


@part("combined")
class Combined(Strategy):
    """The policy times the ratio of a tuned small model to its base, token by token."""

    most_calls = 1
    source = SourcePaper(
        172,
        "An Emulator for Fine-Tuning Large Language Models using Small Language Models (arXiv 2310.12962)",
        "inference-time-search",
    )
    tuned: ContentPath = ""
    """Folder of the small model that was tuned."""
    base: ContentPath = ""
    """Folder of the small model that it was tuned from."""
    b: Annotated[float, Field(ge=-16, le=16)] = 1.0
    """Strength of the small models' difference; 0: the policy alone, 1: as in the paper, below 0: the opposite."""

    @property
    def joint(self) -> bool:
        """Only with a strength other than zero."""
        return self.b != 0.0

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests].

        Raises:
            UserError: a small model is not named, does not exist, or has other tokens than the policy.
        """
        if not self.joint:
            return policy.draft(requests, drawing)
        voices = (voice_of(self.tuned, "tuned", policy, self.b), voice_of(self.base, "base", policy, -self.b))
        return policy.draft(requests, drawing, JointDecoding(voices))
