"""A simulated search engine whose answers are noise more and more often (ZeroSearch, paper 67, arXiv 2505.04588).

    p_i = start + (base^(i / rounds) - 1) / (base - 1) * (end - start)

is the share of noise in round i; after the last round, and in evaluations, it is `end`. With base 1 it rises linearly.
A policy that has learned to search with good answers learns to recognise bad ones. A noisy answer has the same form and
topic, and its value is that of another document. The published engine is a fine-tuned model that writes useful or noisy
documents according to its prompt; this one quotes true ones.
"""

from __future__ import annotations

import copy
import hashlib
from typing import Annotated

from pydantic import Field

from models.agents.tools.search import DocumentSearch
from models.base.bounds import Share
from models.method.registry import part
from models.method.tool import Offer


@part("simulated_search")
class SimulatedSearch(DocumentSearch):
    """A search for words, with noisy answers by a schedule."""

    start: Share = 0.0
    """Share of noise in the first round."""
    end: Share = 0.5
    """Share of noise from the last round on."""
    base: Annotated[float, Field(ge=1, le=1000)] = 4.0
    """Steepness of the rise; 1: linear."""
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] = 40
    """Rounds in which it rises."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(1.0, 0)

    def _noise(self) -> float:
        """Return the share of noise at this point of the schedule."""
        done: float = vars(self)["_done"]
        risen = done if self.base == 1 else (self.base**done - 1) / (self.base - 1)
        return self.start + risen * (self.end - self.start)

    def offers(self) -> dict[str, Offer]:
        """Return the search engine under the name of the tool that it simulates."""
        return {DocumentSearch.name: Offer(self.usage, self.call)}

    def in_round(self, number: int) -> SimulatedSearch:
        """Return the search engine with the share of noise of that round."""
        return self._with(min(1.0, number / self.rounds), vars(self)["_seed"])

    def in_episode(self, seed: int) -> SimulatedSearch:
        """Return the search engine with a seed of its own; within an episode, equal queries get equal answers."""
        return self._with(vars(self)["_done"], seed)

    def call(self, argument: str) -> str:
        """Return the best documents, or noise instead."""
        lines = super().call(argument)
        if _point(vars(self)["_seed"], argument) >= self._noise():
            return lines
        return "\n".join(self._noisy(line, argument) for line in lines.splitlines())

    def _noisy(self, line: str, query: str) -> str:
        """Return the line with the value of another document after its colon."""
        head, colon, value = line.partition(": ")
        others = [text.partition(": ")[2] for text in self._index().like(line)]
        others = [text for text in others if text != value]
        if not colon or not others:
            return ""
        return f"{head}: {others[int(_point(vars(self)['_seed'], f'{query} {line}') * len(others))]}"

    def _with(self, done: float, seed: int) -> SimulatedSearch:
        """Return a copy; its documents are not read again."""
        search = copy.copy(self)
        search._set(done, seed)
        return search

    def _set(self, done: float, seed: int) -> None:
        object.__setattr__(self, "_done", done)
        object.__setattr__(self, "_seed", seed)


def _point(seed: int, text: str) -> float:
    """Return a pseudo-random point in [0, 1) that depends on both arguments."""
    return int.from_bytes(hashlib.sha256(f"{seed} noise {text}".encode()).digest()[:6], "big") / 2**48
