"""An engine whose answers are a plain function of the prompt and the seed, so that tests of episodes know them."""

import math
from collections.abc import Callable, Sequence

import torch

from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling
from models.text.encoding import Codec


class Saying(Engine):
    """Answers with the result of a function of the prompt, with probability 1.

    Args:
        codec: converts between text and tokens.
        say: returns the answer to the words of a prompt, given the seed of the request.
        chance: returns the probability of an answer's words after a prompt's words; `score` uses it.
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
        """The tokens of each prompt and of its answer, [requests]."""

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        made = []
        for ask in requests:
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
