"""Small files of answers and problems, which the tests of judging write."""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.judging.compare import Comparison, compare
from tasks.judging.verdict import Judgement


def write_lines(file: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def write_problems(file: Path, count: int) -> Path:
    """Write sums whose answers are their numbers."""
    return write_lines(
        file, [{"prompt": f"What is {number} + 0, in row {number}?", "answer": str(number)} for number in range(count)]
    )


def write_scores(file: Path, scores: Sequence[float]) -> Path:
    """Write one score for each problem."""
    return write_lines(file, [{"id": number, "score": score} for number, score in enumerate(scores)])


def coins(count: int, share: float, seed: int) -> list[float]:
    """Return scores of which a share is 1, the others 0, in random order."""
    scores = [float(number < share * count) for number in range(count)]
    random.Random(seed).shuffle(scores)
    return scores


def judged(champion: Path, candidate: Path, **settings: Any) -> Judgement:
    """Compare two files."""
    return compare(Comparison(champion=str(champion), candidate=str(candidate), **settings), lambda: "")
