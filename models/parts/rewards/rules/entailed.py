"""Share of a completion's statements that a table entails (LogicNLG, paper 109, arXiv 2004.10404).

    value = (entailed statements + lookup * entailed repetitions of a cell) / statements

The problem's answer is JSON, `{"table": {"columns": ["team", "points"], "rows": [["red", 3], ["blue", 5]]}}`, and the
prompt shows the same table. Statements are parsed and executed on it (`models.answers.tables`), as the parsing-based
metric of the paper does; a sentence that cannot be read is not entailed. A statement counts once. The gate
measures fluency by `fluency_margin`, the surprise of the policy before the training.
"""

from __future__ import annotations

from models.answers.answers import extract_answer
from models.answers.tables import TableTruth, entailed_statements, statements
from models.base.bounds import Share
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.parts.shared.graded import HiddenTruth


@part("entailed")
class Entailed(HiddenTruth[TableTruth]):
    """Share of entailed statements; zero for a completion that was cut or states nothing."""

    _kind = TableTruth
    verifies = True
    grades = True
    lookup: Share = 0.0
    """Value of an entailed statement that only repeats a cell; other statements need an inference and count 1."""

    def stated(self, problem: Problem) -> str | None:
        """Return an entailed statement; None if the table cannot be read or allows none."""
        (truth,) = self._truths([problem])
        first = None if truth is None else next(entailed_statements(truth.table), None)
        return None if first is None else f"#### {first}"

    def _grade(self, attempt: Attempt, truth: TableTruth) -> float:
        stated = extract_answer(attempt.text) or attempt.text
        read = statements(stated, truth.table) if attempt.finished else []
        worth = {
            statement.text: (self.lookup if statement.kind == "lookup" else 1.0) * statement.entailed
            for statement in read
        }
        return sum(worth.values()) / len(read) if read else 0.0
