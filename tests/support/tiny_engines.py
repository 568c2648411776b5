"""An engine that is a plain function of what it reads, for tests of episodes: its words are known beforehand."""

import math
from collections.abc import Callable, Sequence

import torch

from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling
from models.text.encoding import Codec


class Saying(Engine):
    """Says what a function makes of a text, each time for certain.

    Args:
        codec: its tokens.
        say: what it says to the words that it reads, given the seed of the ask.
        chance: probability that it says some words to others, where that is scored.
    """

    dtype = torch.float32

    def __init__(
        self,
        codec: Codec,
        say: Callable[[list[str], int], str],
        chance: Callable[[list[str], list[str]], float] = lambda read, said: 1.0,
    ) -> None:
        self.codec, self.say, self.chance = codec, say, chance
        self.vocabulary = len(codec.tokenizer)
        self.asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        """What it read and what it said, [asks]."""

    def each(self, asks: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        made = []
        for ask in asks:
            ids = tuple(self.codec.completions([self.say(self._words(ask.prompt), ask.seed)])[0])
            self.asked.append((tuple(ask.prompt), ids))
            made.append(Generated(ids, torch.zeros(len(ids)), True))
        return made

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        rows = zip(prompts, completions, strict=True)
        return [
            [math.log(self.chance(self._words(read), self._words(ids)))] + [0.0] * (len(ids) - 1) for read, ids in rows
        ]

    def load(self, weights: object, version: int = 0) -> None:
        raise NotImplementedError

    def close(self) -> None:
        return None

    def _words(self, ids: Sequence[int]) -> list[str]:
        return self.codec.text([ids])[0].split()
