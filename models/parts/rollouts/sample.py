"""Sample from the policy: G completions of every prompt of the round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, NonNegativeInt

from models.base.bounds import Positive, Temperature
from models.base.seeds import round_seed
from models.engines.engine import Sampling
from models.method.problem import Origin, Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutSource
from models.method.rollout_source import Rollouts


@part("sample")
class Sample(Rollouts):
    """On-policy sampling. Set under `rollouts:`."""

    prompts: Positive = 64
    """Prompts per round."""
    group_size: Positive = 8
    """Completions per prompt (G)."""
    max_tokens: Positive = 64
    """Longest completion, in tokens."""
    temperature: Temperature = 1.0
    """Divisor of the logits; the learner's log-probs use the same temperature."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Probability mass that tokens are drawn from, the likeliest tokens first."""
    top_k: NonNegativeInt = 0
    """Number of likeliest tokens that are drawn from; 0: all."""

    @property
    def sampling(self) -> Sampling:
        """Sampling parameters of the engine."""
        return Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            samples=self.group_size,
        )

    @property
    def in_flight(self) -> bool:
        """Whether completions can be trained on as they end; false for subclasses, which add to the samples."""
        return type(self) is Sample

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return completions of `problems`, [prompts * G]; the same seed and round give the same completions."""
        return draw(resources, problems, self.sampling, round_seed(resources.seed, round_number))


def draw(
    resources: RunResources, problems: Sequence[Problem], sampling: Sampling, seed: int, origin: Origin = "policy"
) -> list[Rollout]:
    """Sample the engine's completions of `problems`, those of one prompt next to each other, [prompts * G]."""
    groups = resources.sampler().generate([problem.tokens for problem in problems], sampling, seed)
    texts = iter(resources.codec.text([generated.tokens for group in groups for generated in group]))
    return [
        Rollout(
            problem,
            number,
            generated.tokens,
            generated.log_probs,
            next(texts),
            generated.finished,
            source=RolloutSource(origin=origin),
        )
        for number, (problem, group) in enumerate(zip(problems, groups, strict=True))
        for generated in group
    ]
