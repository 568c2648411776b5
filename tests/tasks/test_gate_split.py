"""Identity of a gate split: another export of the same problems is the same split and gets no new budget of looks."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from models.datasets.schema import arrow_schema, file_name, write_rows
from tasks.gate.gate_split import digest_of, estimated_overlap, problems_of, sketch_of


def split_of(folder: Path, rows: Iterable[tuple[str, str]]) -> list[str]:
    made = [
        {"id": f"gate-{number}", "prompt": prompt, "answer": answer, "level": 1, "tests": "", "entry_point": ""}
        for number, (prompt, answer) in enumerate(rows)
    ]
    folder.mkdir()
    write_rows(folder / file_name("problems", "gate"), made, arrow_schema("problems"))
    return problems_of(folder)


@pytest.mark.parametrize("prompt", ["What is {} + 1?\n", "what IS {} + 1?", "What  is\u00a0{} + 1?"])
@pytest.mark.parametrize("answer", ["{}", " {}.0", "${}"])
def test_another_way_to_write_the_same_problems_is_the_same_split(tmp_path: Path, prompt: str, answer: str) -> None:
    before = split_of(tmp_path / "before", ((f"What is {n} + 1?", str(n + 1)) for n in range(300)))
    after = split_of(tmp_path / "after", ((prompt.format(n), answer.format(n + 1)) for n in reversed(range(300))))
    assert digest_of(before) == digest_of(after) and sketch_of(before) == sketch_of(after)
    assert estimated_overlap(sketch_of(before), sketch_of(after)) == 1.0


def test_other_answers_are_other_problems(tmp_path: Path) -> None:
    before = split_of(tmp_path / "before", ((f"What is {n} + 1?", str(n + 1)) for n in range(300)))
    after = split_of(tmp_path / "after", ((f"What is {n} + 1?", str(n + 2)) for n in range(300)))
    assert estimated_overlap(sketch_of(before), sketch_of(after)) == 0.0
    assert json.loads(before[0])[0].startswith("what is")
