"""Quality of an SQL query, compared with the problem's own (Reasoning-SQL, paper 16, arXiv 2503.23157).

    execution   1 if both give the same rows, in the same order if the problem's query orders them; if it gives
                none, 1 for none with as many columns by a query that reads every column which the problem's reads
    syntax      1 if it runs
    schema      names of tables and columns in both queries, divided by those in either
    ngrams      n-grams of tokens in both queries, divided by those in either

A recipe lists the part once for each component; their weights are those of the sum. The problem's answer is its query
and the problem's tests are the statements that create its database. Queries only run in the sandbox, and can only read
(`models.sandbox.inside.queries`). Equal rows of one database do not prove that two queries are equivalent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from models.answers.likeness import jaccard, runs_of
from models.answers.sql import orders, tokens_of, written_query
from models.base.bounds import Positive
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.sandbox.database import LONGEST, DatabaseAnswers, QueryResult, ask
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import shared_sandbox

_Judged = tuple[QueryResult, QueryResult, frozenset[str]]
"""Results of a query and of the problem's query, and the names that the database has."""


@part("sql")
class Sql(Reward):
    """One quality of an SQL query: execution, syntax, names or n-grams; zero for a completion that was cut."""

    needs_answers = True
    needs_tests = True
    asks: Literal["execution", "syntax", "schema", "ngrams"] = "execution"
    """Component that is measured."""
    run: Positive = 2
    """Number of tokens of an n-gram, for `ngrams`."""
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    """Resources of the queries, shared by all queries to one database."""

    @property
    def verifies(self) -> bool:
        """Whether equal rows decide in evaluations and at the gate too."""
        return self.asks == "execution"

    def try_out(self) -> None:
        """Raise a UserError if this machine cannot sandbox a query."""
        _ = shared_sandbox(self.sandbox).layers

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1], [completions]."""
        attempts = [Attempt.of(each) for each in rollouts]
        if self.asks == "ngrams":
            return torch.tensor([self._shared_runs(attempt) for attempt in attempts])
        return torch.tensor(
            [
                0.0 if judged is None else self._value(attempt, judged)
                for attempt, judged in zip(attempts, self._judged(attempts), strict=True)
            ]
        )

    def stated(self, problem: Problem) -> str:
        """Return the problem's query in a block of code."""
        return f"```sql\n{problem.answer}\n```"

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended and gives the rows of the problem's query, [attempts]."""
        return [
            judged is not None and same_rows(attempt.problem.answer, judged)
            for attempt, judged in zip(attempts, self._judged(attempts), strict=True)
        ]

    def _value(self, attempt: Attempt, judged: _Judged) -> float:
        result, _, names = judged
        match self.asks:
            case "execution":
                return float(same_rows(attempt.problem.answer, judged))
            case "syntax":
                return float(result.ran)
        present, expected = (names.intersection(tokens_of(text)) for text in (_query(attempt), attempt.problem.answer))
        return jaccard(present, expected) if expected else 0.0

    def _shared_runs(self, attempt: Attempt) -> float:
        query = _query(attempt)
        if not query or not attempt.problem.answer.strip():
            return 0.0
        return jaccard(*(runs_of(tokens_of(text), self.run) for text in (query, attempt.problem.answer)))

    def _judged(self, attempts: Sequence[Attempt]) -> list[_Judged | None]:
        """Return the results of each attempt, [attempts]; None without a query or a database.

        Equal queries are run once.
        """
        queries = [_query(attempt) for attempt in attempts]
        runnable = [
            bool(query and attempt.problem.tests.strip()) for query, attempt in zip(queries, attempts, strict=True)
        ]
        requests: dict[str, dict[str, None]] = {}
        for query, attempt, is_runnable in zip(queries, attempts, runnable, strict=True):
            if is_runnable:
                requests.setdefault(attempt.problem.tests, {}).update({attempt.problem.answer: None, query: None})
        answers = _ask(self.sandbox, tuple((database, tuple(queries)) for database, queries in requests.items()))
        results = {
            database: dict(zip(queries, answers[database].results, strict=True))
            for database, queries in requests.items()
        }
        return [
            (results[problem.tests][query], results[problem.tests][problem.answer], answers[problem.tests].names)
            if is_runnable
            else None
            for query, is_runnable, problem in zip(
                queries, runnable, (attempt.problem for attempt in attempts), strict=True
            )
        ]


@lru_cache(maxsize=2)
def _ask(sandbox: SandboxSettings, requests: tuple[tuple[str, tuple[str, ...]], ...]) -> dict[str, DatabaseAnswers]:
    """Return the results of `ask`, cached: several parts of a recipe ask the same queries of a round."""
    return ask(shared_sandbox(sandbox), dict(requests))


def same_rows(reference: str, judged: _Judged) -> bool:
    """Return whether a query gives the rows of the problem's query, `reference`."""
    result, expected, _ = judged
    if not (result.ran and expected.ran):
        return False
    if not expected.rows and (result.columns != expected.columns or not result.reads >= expected.reads):
        return False
    if orders(tokens_of(reference)):
        return result.ordered == expected.ordered
    return result.unordered == expected.unordered


def _query(attempt: Attempt) -> str:
    """Return the query to run; empty if the completion was cut, or states none, or states one that is too long."""
    query = written_query(attempt.text) if attempt.finished else ""
    return query if len(query) <= LONGEST else ""
