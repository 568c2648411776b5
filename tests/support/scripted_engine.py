"""An engine that says what it is told to: one thing to plain prompts of the tiny loops, another behind a context."""

from collections.abc import Sequence

import torch

from models.engines.engine import Generated, Sampling
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_worlds import CODEC

PLAIN = {problem.tokens for problem in PROBLEMS}


class Scripted:
    """Answers a plain prompt by each of `answers` in turn, any other by what stands for a refinement."""

    dtype = torch.float32

    def __init__(self, *answers: str) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []

    def generate(self, prompts: Sequence[tuple[int, ...]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        self.asked.append(CODEC.text(prompts))
        made = []
        for prompt in prompts:
            said = self.answers if tuple(prompt) in PLAIN else ("3 + 4 #### 7",)
            ids = CODEC.completions([said[index % len(said)] for index in range(sampling.samples)])
            made.append([Generated(tuple(row), torch.full((len(row),), -1.0), True) for row in ids])
        return made
