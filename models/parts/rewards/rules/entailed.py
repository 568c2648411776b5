"""Share of a completion's statements that a table entails (LogicNLG, paper 109, arXiv 2004.10404).

    value = (entailed statements + lookup * entailed repetitions of a cell) / statements

The problem's answer is JSON, `{"table": {"columns": ["team", "points"], "rows": [["red", 3], ["blue", 5]]}}`, and the
prompt shows the same table. Statements are parsed and executed on it (`models.answers.tables`), as the parsing-based
metric of the paper does; a sentence that cannot be read is not entailed. A statement counts once. The gate
measures fluency by `fluency_margin`, the surprise of the policy before the training.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.answers.answers import extract_answer
from models.answers.hidden import hidden_of_each
from models.answers.tables import TableTruth, entailed_statements, statements
from models.base.bounds import Share
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("entailed")
class Entailed(Reward):
    """Share of entailed statements; zero for a completion that was cut or states nothing."""

    needs_answers = True
    verifies = True
    grades = True
    lookup: Share = 0.0
    """Value of an entailed statement that only repeats a cell; other statements need an inference and count 1."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1], [completions]; NaN if the problem's table cannot be read."""
        return torch.tensor(self._values([Attempt.of(each) for each in rollouts], unread=torch.nan))

    def stated(self, problem: Problem) -> str | None:
        """Return an entailed statement; None if the table cannot be read or allows none."""
        (truth,) = hidden_of_each([problem], TableTruth, "entailed")
        first = None if truth is None else next(entailed_statements(truth.table), None)
        return None if first is None else f"#### {first}"

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended and all of its statements are entailed by an inference, [attempts]."""
        return [value == 1.0 for value in self.grade(attempts)]

    def grade(self, attempts: Sequence[Attempt]) -> list[float]:
        """Return the share of entailed statements of each attempt, [attempts]; zero if the table cannot be read."""
        return self._values(attempts, unread=0.0)

    def accepts(self, problems: Sequence[Problem]) -> list[bool]:
        """Return whether each problem has a table that can be read, [problems]."""
        return [truth is not None for truth in hidden_of_each(problems, TableTruth, "entailed")]

    def _values(self, attempts: Sequence[Attempt], unread: float) -> list[float]:
        truths = hidden_of_each([attempt.problem for attempt in attempts], TableTruth, "entailed")
        return [
            unread if truth is None else self._value(attempt, truth)
            for attempt, truth in zip(attempts, truths, strict=True)
        ]

    def _value(self, attempt: Attempt, truth: TableTruth) -> float:
        stated = extract_answer(attempt.text) or attempt.text
        read = statements(stated, truth.table) if attempt.finished else []
        worth = {
            statement.text: (self.lookup if statement.kind == "lookup" else 1.0) * statement.entailed
            for statement in read
        }
        return sum(worth.values()) / len(read) if read else 0.0
