"""Policies that are plain functions, so that tests of strategies know their answers."""

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from models.agents.strategy import CountedPolicy, Strategic, Strategy
from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer

BYTES = Codec(train_tokenizer(["any"], TokenizerSettings(kind="bytes", vocabulary=259)))
"""A codec whose tokens are the bytes of a text."""
GREEDY = TokenSampling(temperature=0.0, log_probs=False)
DRAWN = TokenSampling(log_probs=False)


class Scripted(Engine):
    """A policy over bytes.

    Args:
        say: returns the answer to a text, given the seed of the request.
        chance: returns the probability of an answer after a text; `score` uses it, independently of `say`.
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
        """The text of every request to `complete`."""
        self.scored: list[tuple[str, str]] = []

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        made = []
        for ask in requests:
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
    """Decode ids of bytes; a token that ends a turn becomes `|`."""
    return "".join("|" if token in BYTES.ends else str(BYTES.tokenizer.decode([token])) for token in ids)


def ask_of(text: str, seed: int = 0, max_tokens: int = 60, actions: Sequence[str] = ()) -> CompletionRequest:
    return CompletionRequest(tuple(BYTES.prompts([text])[0]), seed, max_tokens, actions=tuple(actions))


def turns_of(
    strategy: Strategy,
    policy: Engine,
    requests: Sequence[CompletionRequest],
    drawing: TokenSampling = GREEDY,
    room: int = 4096,
) -> tuple[list[str], CountedPolicy]:
    """Return the strategy's answers, [requests], and the policy that it called, which counts the calls."""
    strategic = Strategic(policy, BYTES, strategy, room)
    return BYTES.text([made.tokens for made in strategic.complete(requests, drawing)]), strategic.policy
