"""What a search engine finds by the query that a completion makes of the prompt (LESER, paper 191, arXiv 2509.05570).

    value = relevance * (results that serve a want) / (results) + coverage * (wants that a result serves) / (wants)
            `broken` where the query breaks a rule of the shop, 0 where nothing is found

A problem's answer is JSON, `{"wants": ["norda umbrella", "norda boots"]}`; a result serves a want that all of whose
words stand in it. The engine is BM25 over documents of one's own, asked for prompt and completion together: an
expansion. Rules are lengths and words; a word that stands twice only adds weight to it, and counts as breaking them.
Right, in evaluations and at the gate too, is a query under the rules whose results are all wanted and leave no want
out. The abstract was read; weights and rules are the project's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from models.bounds import Number, Positive
from models.episodes.documents import OfDocuments, index_of, words_of
from models.episodes.hidden import Hidden, hidden_of_each
from models.errors import UserError
from models.loop.attempt import Attempt
from models.loop.rollout import Problem, Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.recipe_paths import RecipePath

Wanted = tuple[frozenset[str], ...]
"""The words of each want."""
LONGEST = 4096
"""Characters beyond which a completion is no query."""


class Wants(Hidden):
    """What a query stands for."""

    wants: Annotated[tuple[Annotated[str, Field(pattern=r"\w")], ...], Field(min_length=1)]
    """Words of each."""


@part("search_results")
class SearchResults(OfDocuments, Reward):
    """Relevance and coverage of what is found, under rules; a completion that was cut breaks them."""

    needs_answers = True
    verifies = True
    documents: RecipePath = ""
    """A JSONL file of documents ({"text": ..., "title": optional}), a text, or a folder of both: what is searched. A
    relative path is meant from the recipe's folder."""
    sha256: str = ""
    """Hash of their content, filled in when the recipe is read. Written into a recipe, it refuses another content."""
    results: Annotated[int, Field(ge=1, le=100)] = 6
    """Results that are looked at."""
    relevance: NonNegativeFloat = 0.5
    """What it is worth that every result is wanted."""
    coverage: NonNegativeFloat = 0.5
    """What it is worth that every want has a result."""
    most_words: Positive = 8
    """Words of a completion, at most."""
    forbidden: tuple[str, ...] = ()
    """Words that no completion may hold, without regard to case."""
    broken: Number = -1.0
    """What a completion that breaks a rule is worth."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        self._know_documents(f"{where}.documents", where)
        object.__setattr__(self, "_forbidden", frozenset(words_of(" ".join(self.forbidden))))

    def try_out(self) -> None:
        """Build the index.

        Raises:
            UserError: no documents are named, or they are none.
        """
        if not self.given:
            raise UserError(f"rewards.{self.label}.documents: name the documents that are searched")
        index_of(self.given, f"rewards.{self.label}.documents")

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values, [completions]: `broken`, or in [0, relevance + coverage]; NaN where the wants cannot be read."""
        attempts = [Attempt.of(each) for each in rollouts]
        return torch.tensor(
            [
                torch.nan if wants is None else self._worth(self._shares(attempt, wants))
                for attempt, wants in zip(attempts, _wants(attempts), strict=True)
            ]
        )

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Which attempts find nothing but what is wanted, and all of it, [attempts]."""
        return [
            wants is not None and self._shares(attempt, wants) == (1.0, 1.0)
            for attempt, wants in zip(attempts, _wants(attempts), strict=True)
        ]

    def accepts(self, problems: Sequence[Problem]) -> list[bool]:
        """Return which problems have wants that can be read, [problems]."""
        return [wants is not None for wants in hidden_of_each(problems, Wants, "expansions")]

    def _worth(self, shares: tuple[float, float] | None) -> float:
        return self.broken if shares is None else self.relevance * shares[0] + self.coverage * shares[1]

    def _shares(self, attempt: Attempt, wants: Wanted) -> tuple[float, float] | None:
        """Share of the results that are wanted, and of the wants that have one; None where a rule is broken."""
        said = words_of(attempt.text) if attempt.finished and len(attempt.text) <= LONGEST else []
        forbidden: frozenset[str] = vars(self)["_forbidden"]
        if not said or len(said) > self.most_words or len(set(said)) < len(said) or not forbidden.isdisjoint(said):
            return None
        index = index_of(self.given, f"rewards.{self.label}.documents")
        results = [
            frozenset(words_of(text)) for text in index.best(f"{attempt.problem.prompt} {attempt.text}", self.results)
        ]
        serving = [[want <= result for want in wants] for result in results]
        relevance = sum(map(any, serving)) / len(results) if results else 0.0
        return relevance, sum(map(any, zip(*serving, strict=True))) / len(wants)


def _wants(attempts: Sequence[Attempt]) -> list[Wanted | None]:
    every = hidden_of_each([attempt.problem for attempt in attempts], Wants, "expansions")
    return [None if known is None else _words(known) for known in every]


@lru_cache(maxsize=4096)
def _words(wants: Wants) -> Wanted:
    return tuple(frozenset(words_of(want)) for want in wants.wants)
