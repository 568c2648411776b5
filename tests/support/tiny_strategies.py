"""Policies that are plain functions, for tests of strategies: what they say to a text is known beforehand."""

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from models.agents.strategy import CountedPolicy, Strategic, Strategy
from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer

BYTES = Codec(train_tokenizer(["any"], TokenizerSettings(kind="bytes", vocabulary=259)))
"""A codec in which any text is its bytes."""
GREEDY = TokenSampling(temperature=0.0, log_probs=False)
DRAWN = TokenSampling(log_probs=False)


class Scripted(Engine):
    """A policy over bytes.

    Args:
        say: what it says to a text, given the seed of the call.
        chance: probability that it says a text to another; where `say` is not asked.
    """

    dtype = torch.float32
    vocabulary = 259

    def __init__(
        self,
        say: Callable[[str, int], str] = lambda text, seed: "",
        chance: Callable[[str, str], float] = lambda text, said: 1.0,
    ) -> None:
        self.say, self.chance = say, chance
        self.heard: list[str] = []
        """Every text that it was asked to go on from."""
        self.scored: list[tuple[str, str]] = []

    def each(self, asks: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        made = []
        for ask in asks:
            text = read(ask.prompt)
            self.heard.append(text)
            ids = BYTES.completions([self.say(text, ask.seed)])[0]
            made.append(Generated(tuple(ids[: ask.max_tokens]), None, len(ids) <= ask.max_tokens))
        return made

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        rows = []
        for prompt, ids in zip(prompts, completions, strict=True):
            text, said = read(prompt), read(ids).removesuffix("|")
            self.scored.append((text, said))
            rows.append([math.log(self.chance(text, said))] + [0.0] * (len(ids) - 1))
        return rows

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        raise NotImplementedError

    def close(self) -> None:
        return None


def read(ids: Sequence[int]) -> str:
    """Ids of bytes as text, `|` where a turn ends."""
    return "".join("|" if token in BYTES.ends else str(BYTES.tokenizer.decode([token])) for token in ids)


def ask_of(text: str, seed: int = 0, max_tokens: int = 60, actions: Sequence[str] = ()) -> CompletionRequest:
    return CompletionRequest(tuple(BYTES.prompts([text])[0]), seed, max_tokens, actions=tuple(actions))


def turns_of(
    strategy: Strategy,
    policy: Engine,
    asks: Sequence[CompletionRequest],
    drawing: TokenSampling = GREEDY,
    room: int = 4096,
) -> tuple[list[str], CountedPolicy]:
    """What the strategy makes of a policy's answers, [asks], and what it asked."""
    strategic = Strategic(policy, BYTES, strategy, room)
    return BYTES.text([made.tokens for made in strategic.each(asks, drawing)]), strategic.policy
