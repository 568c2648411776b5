"""An engine with fixed answers: a list for the plain prompts of the tiny loops, one answer for any other prompt."""

from collections.abc import Sequence

import torch

from models.engines.engine import Generated, Sampling
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_resources import CODEC

PLAIN = {problem.tokens for problem in PROBLEMS}


class Scripted:
    """Answers a plain prompt by each of `answers` in turn, and any other prompt by a fixed refinement."""

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
