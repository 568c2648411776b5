"""Quality of search results with a completion as query expansion (LESER, paper 191, arXiv 2509.05570).

    value = relevance * (results that serve a want) / (results) + coverage * (wants that a result serves) / (wants)
            `broken` if the query breaks a rule, 0 if nothing is found

A problem's answer is JSON, `{"wants": ["norda umbrella", "norda boots"]}`; a result serves a want if it contains all
words of the want. The engine is BM25 over the recipe's documents, queried with prompt and completion together (query
expansion). The rules limit the length and the words; a repeated word, which would only raise its weight, breaks them. A
completion is correct, also in evaluations and at the gate, if it keeps the rules, all its results are wanted, and every
want has a result. Based on the abstract; weights and rules are the project's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from models.agents.play.documents import OfDocuments, index_of, words_of
from models.answers.hidden import Hidden, hidden_of_each
from models.base.bounds import Number, Positive
from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.recipe_paths import RecipePath
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout

Wanted = tuple[frozenset[str], ...]
"""The words of each want."""
LONGEST = 4096
"""Maximum length of a query, characters."""


class Wants(Hidden):
    """The wants of a problem."""

    wants: Annotated[tuple[Annotated[str, Field(pattern=r"\w")], ...], Field(min_length=1)]
    """Words of each want."""


@part("search_results")
class SearchResults(OfDocuments, Reward):
    """Relevance and coverage of the results, under rules; a completion that was cut breaks them."""

    needs_answers = True
    verifies = True
    documents: RecipePath = ""
    """A JSONL file of documents ({"text": ..., "title": optional}), a text, or a folder of both, to be searched. A
    relative path is relative to the recipe's folder."""
    sha256: str = ""
    """Hash of their content, filled in when the recipe is read. If it is given in a recipe, other content is
    refused."""
    results: Annotated[int, Field(ge=1, le=100)] = 6
    """Number of results that are read."""
    relevance: NonNegativeFloat = 0.5
    """Weight of the share of wanted results."""
    coverage: NonNegativeFloat = 0.5
    """Weight of the share of wants with a result."""
    most_words: Positive = 8
    """Maximum number of words of a completion."""
    forbidden: tuple[str, ...] = ()
    """Words that a completion must not contain, ignoring case."""
    broken: Number = -1.0
    """Reward of a completion that breaks a rule."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        self._know_documents(f"{where}.documents", where)
        object.__setattr__(self, "_forbidden", frozenset(words_of(" ".join(self.forbidden))))

    def try_out(self) -> None:
        """Build the index.

        Raises:
            UserError: no documents are named, or they contain none.
        """
        if not self.given:
            raise UserError(f"rewards.{self.label}.documents: name the documents that are searched")
        index_of(self.given, f"rewards.{self.label}.documents")

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values, [completions]: `broken`, or in [0, relevance + coverage]; NaN if the wants cannot be read."""
        attempts = [Attempt.of(each) for each in rollouts]
        return torch.tensor(
            [
                torch.nan if wants is None else self._worth(self._shares(attempt, wants))
                for attempt, wants in zip(attempts, _wants(attempts), strict=True)
            ]
        )

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether the results of each attempt are all wanted and serve all wants, [attempts]."""
        return [
            wants is not None and self._shares(attempt, wants) == (1.0, 1.0)
            for attempt, wants in zip(attempts, _wants(attempts), strict=True)
        ]

    def accepts(self, problems: Sequence[Problem]) -> list[bool]:
        """Return whether each problem has wants that can be read, [problems]."""
        return [wants is not None for wants in hidden_of_each(problems, Wants, "expansions")]

    def _worth(self, shares: tuple[float, float] | None) -> float:
        return self.broken if shares is None else self.relevance * shares[0] + self.coverage * shares[1]

    def _shares(self, attempt: Attempt, wants: Wanted) -> tuple[float, float] | None:
        """Return the share of wanted results, and of wants with a result; None if a rule is broken."""
        words = words_of(attempt.text) if attempt.finished and len(attempt.text) <= LONGEST else []
        forbidden: frozenset[str] = vars(self)["_forbidden"]
        if not words or len(words) > self.most_words or len(set(words)) < len(words) or not forbidden.isdisjoint(words):
            return None
        index = index_of(self.given, f"rewards.{self.label}.documents")
        results = [
            frozenset(words_of(text)) for text in index.best(f"{attempt.problem.prompt} {attempt.text}", self.results)
        ]
        serving = [[want <= result for want in wants] for result in results]
        relevance = sum(map(any, serving)) / len(results) if results else 0.0
        return relevance, sum(map(any, zip(*serving, strict=True))) / len(wants)


def _wants(attempts: Sequence[Attempt]) -> list[Wanted | None]:
    hidden = hidden_of_each([attempt.problem for attempt in attempts], Wants, "expansions")
    return [None if wants is None else _words(wants) for wants in hidden]


@lru_cache(maxsize=4096)
def _words(wants: Wants) -> Wanted:
    return tuple(frozenset(words_of(want)) for want in wants.wants)
