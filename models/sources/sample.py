"""Sample from the policy: G completions of every prompt of the round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from models.bounds import Positive, Temperature
from models.engine.engine import Sampling
from models.loop.rollout import Origin, Problem, Rollout
from models.loop.slots import Reads, World
from models.parts import part
from models.sources.seeds import round_seed
from models.text.encoding import Codec


@part("rollouts", "sample")
class Sample:
    """On-policy sampling. Stands under `rollouts:`."""

    reads: ClassVar[Reads] = "problems"
    draws: ClassVar[bool] = True

    prompts: Positive = 64
    """Prompts of one round."""
    group_size: Positive = 8
    """Completions of each prompt (G)."""
    max_tokens: Positive = 64
    """Longest completion, in tokens."""
    temperature: Temperature = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0

    @property
    def sampling(self) -> Sampling:
        """How the engine draws."""
        return Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            samples=self.group_size,
        )

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """The samples."""
        return self.group_size

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """None: prompts and completions are what they are, [problems]."""
        return [0] * len(problems)

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Completions of `problems`, [prompts * G]; the same seed and round give the same completions."""
        return draw(world, problems, self.sampling, round_seed(world.seed, round_number))


def draw(
    world: World, problems: Sequence[Problem], sampling: Sampling, seed: int, origin: Origin = "policy"
) -> list[Rollout]:
    """What the engine answers to `problems`, those of one prompt side by side, [prompts * G]."""
    groups = world.sampler().generate([problem.tokens for problem in problems], sampling, seed)
    texts = iter(world.codec.text([generated.tokens for group in groups for generated in group]))
    return [
        Rollout(problem, number, generated.tokens, generated.log_probs, next(texts), generated.finished, origin=origin)
        for number, (problem, group) in enumerate(zip(problems, groups, strict=True))
        for generated in group
    ]
