"""`inspect`: it shows what a preparation would read, and names the files, columns and rows that it would not read."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.base.errors import UserError
from models.datasets.inspection import inspect, recognised_format
from models.datasets.settings import DataSettings

USER, ASSISTANT = {"role": "user", "content": "2 + 3 ?"}, {"role": "assistant", "content": "5"}
HELLO = "\n\nHuman: Hi\n\nAssistant:"


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize(
    ("row", "columns", "shape"),
    [
        ({"question": "2 + 3 ?", "answer": "It is\n#### 5"}, {}, "gsm8k"),
        ({"chosen": f"{HELLO} a", "rejected": f"{HELLO} b"}, {}, "hh"),
        ({"prompt": "p", "canonical_solution": "c", "test": "t", "entry_point": "e"}, {}, "humaneval"),
        ({"chosen": [USER, ASSISTANT], "rejected": [USER, ASSISTANT]}, {}, "preferences"),
        ({"prompt": "p", "chosen": "a", "rejected": "b"}, {}, "preferences"),
        ({"messages": json.dumps([USER, ASSISTANT])}, {}, "demonstrations"),
        ({"prompt": "p", "completion": "c"}, {}, "demonstrations"),
        ({"messages": [USER, ASSISTANT], "answer": "5"}, {}, "problems"),
        ({"prompt": "p", "answer": "5"}, {}, "problems"),
        ({"q": "p", "a": "5"}, {"prompt": "q", "answer": "a"}, "problems"),
    ],
)
def test_a_shape_is_recognised_and_read(
    tmp_path: Path, row: dict[str, Any], columns: dict[str, str], shape: str
) -> None:
    file = written(tmp_path / "rows.jsonl", row)
    assert recognised_format([file], columns) == shape
    settings = DataSettings.model_validate({"name": "mine", "path": file, "format": shape, "columns": columns})
    assert not inspect(settings).refused and inspect(settings).first


def test_an_unknown_shape_is_one_line_with_the_columns(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no known shape \(columns: caption, picture\); name it with --format"):
        recognised_format([written(tmp_path / "a.jsonl", {"caption": "x", "picture": "y"})], {})


def test_an_inspection_shows_splits_rows_unread_columns_and_what_is_passed_over(tmp_path: Path) -> None:
    turns = [USER, {**ASSISTANT, "weight": 1}]
    written(tmp_path / "hub/train.jsonl", *({"messages": turns, "source": "x"} for _ in range(3)))
    written(tmp_path / "hub/dev.jsonl", {"messages": turns})
    written(tmp_path / "hub/test.jsonl", {"messages": turns}, {"messages": [USER, USER, ASSISTANT]})
    (tmp_path / "hub/more.jsonl.gz").touch()
    (tmp_path / "hub/README.md").touch()
    assert recognised_format([tmp_path / "hub"], {}) == "demonstrations"
    made = inspect(DataSettings.model_validate({"name": "mine", "path": tmp_path / "hub", "format": "demonstrations"}))
    assert [(file.path.name, file.rows, file.split) for file in made.files] == [
        ("train.jsonl", 3, "train"),
        ("dev.jsonl", 1, "validation"),
        ("test.jsonl", 2, "gate"),
    ]
    assert made.unread == {"source", "messages[].weight"}
    assert made.first["demonstrations"] == {"prompt": "2 + 3 ?", "completion": "5"}
    assert [path.name for path in made.passed_over] == ["README.md", "more.jsonl.gz"]
    assert made.refused == 1 and "test.jsonl, line 2: column 'messages' asks in the roles" in made.reason
    for part in ("rows: 6", "not read: messages[].weight, source", "more.jsonl.gz", "refused: 1 rows"):
        assert part in made.text()
