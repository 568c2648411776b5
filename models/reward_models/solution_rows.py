"""Files of labelled solutions: one line of JSON each, with readable prompt, text and labels."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from models.base.atomic_write import write_file
from models.method.problem import Problem
from models.reward_models.solutions import Solution


def write_solutions(file: Path, solutions: Sequence[Solution]) -> None:
    """Write the solutions in their order; an unknown label is null."""
    write_file(file, "".join(json.dumps(_row(each), ensure_ascii=False) + "\n" for each in solutions))


def read_solutions(file: Path) -> list[Solution]:
    """Read the solutions of a file, [solutions]."""
    return [_solution(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def _row(solution: Solution) -> dict[str, object]:
    problem = solution.problem
    return {
        "id": problem.id,
        "prompt": problem.prompt,
        "answer": problem.answer,
        "text": solution.text,
        "right": solution.right,
        "finished": solution.finished,
        "labels": [None if math.isnan(label) else label for label in solution.labels],
        "ends": solution.ends,
        "prompt_ids": problem.tokens,
        "completion_ids": solution.completion,
    }


def _solution(row: dict[str, object]) -> Solution:
    def ids(name: str) -> tuple[int, ...]:
        values = row[name]
        assert isinstance(values, list), "written by write_solutions"
        return tuple(values)

    labels = row["labels"]
    assert isinstance(labels, list), "written by write_solutions"
    return Solution(
        Problem(str(row["id"]), str(row["prompt"]), str(row["answer"]), tokens=ids("prompt_ids")),
        ids("completion_ids"),
        ids("ends"),
        str(row["text"]),
        bool(row["finished"]),
        bool(row["right"]),
        tuple(math.nan if label is None else float(label) for label in labels),
    )
