"""Malformed data files: each is refused with one line that names the file and the place of the error."""

import datetime
import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.base.errors import UserError
from models.datasets import raw, shards
from models.datasets.data_files import files_of
from tests.support.plain_records import read_records


def parquet(*columns: tuple[str, object]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table([pa.array([value]) for _, value in columns], names=[name for name, _ in columns]), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def row(**values: object) -> str:
    return json.dumps({"prompt": "2 + 3", "answer": "5", **values})


NIGHT = datetime.datetime(2026, 11, 1)
BAD = {
    # duplicate names: one of the two values would be lost
    "a key twice": (
        "a.jsonl",
        row() + '\n{"prompt": "x", "answer": "1", "answer": "2"}',
        "line 2: not valid JSON .*'answer' stands twice",
    ),
    "a key twice in a list": (
        "a.json",
        '[{"prompt": "x",\n "prompt": "y"}]',
        "line 1: not valid JSON .*'prompt' stands twice",
    ),
    "a column twice": ("a.csv", "prompt,answer,answer\nx,1,2\n", "line 1: 2 columns are called 'answer'"),
    "a column twice but for spaces": (
        "a.csv",
        "prompt,answer, answer\nx,1,2\n",
        "line 1: 2 columns are called 'answer'",
    ),
    "a key twice but for spaces": (
        "a.jsonl",
        '{"prompt": "x", " prompt": "y"}',
        "line 1: 2 columns are called 'prompt'",
    ),
    "a Parquet column twice": (
        "a.parquet",
        parquet(("prompt", "x"), ("answer", "1"), ("answer", "2")),
        "2 columns are called 'answer'",
    ),
    # values that are neither text nor a finite number
    "Infinity": ("a.jsonl", row() + "\n" + row(answer=float("inf")), "line 2: column 'answer' holds inf, not a finite"),
    "1e400": ("a.jsonl", '{"prompt": "x", "answer": 1e400}', "line 1: column 'answer' holds inf, not a finite number"),
    "minus Infinity": (
        "a.parquet",
        parquet(("prompt", "x"), ("answer", float("-inf"))),
        "row 1: column 'answer' holds -inf",
    ),
    "true": ("a.jsonl", row(answer=True), "line 1: column 'answer' holds true, not text"),
    "a Parquet boolean": (
        "a.parquet",
        parquet(("prompt", "x"), ("answer", False)),
        "row 1: column 'answer' holds false, not text",
    ),
    "a timestamp": (
        "a.parquet",
        parquet(("prompt", "x"), ("answer", NIGHT)),
        "row 1: column 'answer' holds a datetime, not text",
    ),
    "a date": (
        "a.parquet",
        parquet(("prompt", "x"), ("answer", NIGHT.date())),
        "row 1: column 'answer' holds a date, not text",
    ),
    "a list": ("a.jsonl", row(answer=["5"]), "line 1: column 'answer' holds a list, not text"),
    "a NUL in JSON": (
        "a.jsonl",
        '{"prompt": "x\\u0000", "answer": "1"}',
        "line 1: column 'prompt' holds a NUL character",
    ),
    "a NUL in CSV": ("a.csv", b"prompt,answer\nx,1\ny\0,2\n", "line 3: a NUL character"),
    "5,000 digits": (
        "a.jsonl",
        row() + '\n{"prompt": "x", "answer": %s}' % ("7" * 5000),
        "line 2: not valid JSON .a whole number of 5000 digits",
    ),
    "100,000 levels": ("a.jsonl", row() + "\n" + "[" * 100_000, "line 2: not valid JSON .nested too deeply"),
    "a level of 10**30": ("a.jsonl", row(level=10**30), "line 1: level 10+ is not within 0 and 1000000"),
    "a level of 400 digits": (
        "a.csv",
        f"prompt,level\nx,{'9' * 400}\n",
        "line 2: level 9+\\.\\.\\.9+ is not within 0 and 1000000",
    ),
    "a level below 0": ("a.jsonl", row(level=-1), "line 1: level '-1' is not a whole number"),
    "a level that is true": ("a.jsonl", row(level=True), "line 1: column 'level' holds true"),
    # files whose content does not match their suffix, or is not UTF-8
    "a list in .jsonl": (
        "a.jsonl",
        f"[{row()}]",
        "line 1: a JSON list, but .jsonl is one object a line; name the file .json",
    ),
    "lines in .json": (
        "a.json",
        f"{row()}\n{row()}",
        "line 2: not valid JSON .Extra data; one object a line is .jsonl",
    ),
    "UTF-16": ("a.csv", "prompt,answer\nx,1\n".encode("utf-16"), "not UTF-8 but UTF-16; save it as UTF-8"),
    "UTF-16 without a mark": (
        "a.csv",
        "prompt,answer\nx,1\n".encode("utf-16-le"),
        "line 1: a NUL character; is the file UTF-16",
    ),
    "Latin-1": (
        "a.csv",
        "prompt,answer\nx,1\ncafé,2\n".encode("latin-1"),
        r"line 3: not UTF-8 text \(byte 0xe9 at position 4\)",
    ),
    "Latin-1 far down": (
        "a.jsonl",
        (row() + "\n").encode() * 5000 + b'{"prompt": "caf\xe9"}',
        "line 5001: not UTF-8 text",
    ),
    # headers
    "a header of 3,000 characters": (
        "a.csv",
        f"{'x' * 3000},answer\ny,1\n",
        r"no column 'prompt' .* the file has answer, x+\.\.\.x+$",
    ),
    "a header of 3,000 columns": (
        "a.csv",
        ",".join(f"c{i}" for i in range(3000)) + "\n" + ",".join("1" * 3000),
        "and 2988 more",
    ),
    "an answer in capitals": (
        "a.csv",
        "prompt,Answer\nx,1\n",
        "no column 'answer' but 'Answer'; data.columns={answer: Answer} reads it",
    ),
    # messages
    "several turns": (
        "a.jsonl",
        row(prompt=[{"role": r, "content": "x"} for r in ("user", "assistant", "user")]),
        "line 1: column 'prompt' asks in the roles user, assistant, user; a prompt is one",
    ),
    "a message without text": (
        "a.jsonl",
        row(prompt=[{"role": "user", "content": [{"type": "image"}]}]),
        "line 1: column 'prompt' holds a message with a part that is not text",
    ),
    "messages as an answer": (
        "a.jsonl",
        row(answer=[{"role": "user", "content": "5"}]),
        "line 1: column 'answer' holds messages, which the field 'answer' cannot be",
    ),
}


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("rows", [1, 100], ids=["row by row", "at once"])
@pytest.mark.parametrize(("name", "content", "says"), BAD.values(), ids=BAD)
def test_a_bad_file_is_one_line_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str | bytes, says: str, rows: int
) -> None:
    monkeypatch.setattr(raw, "BATCH_ROWS", rows if len(content) < 10_000 else 100 * rows)
    monkeypatch.setattr(shards, "ALONE", 10)
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=says) as refused:
        read_records("problems", [file], {})
    line = str(refused.value)
    assert line.startswith(str(file)) and "\n" not in line and len(line) <= 600


PATHS = {
    "packed": ("rows.jsonl.gz", "packed; unpack it first"),
    "a hub id": ("openai/gsm8k", "no such file; a data set of the hub is downloaded first: `hf download"),
    "a name of 5,000 characters": ("x" * 5000, "File name too long"),
    "a NUL in the name": ("a\0b.jsonl", "no such file"),
}


@pytest.mark.parametrize(("path", "says"), PATHS.values(), ids=PATHS)
def test_a_path_that_is_no_data_file_says_what_it_is(
    tmp_path: Path, path: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl.gz").touch()
    with pytest.raises(UserError, match=says) as refused:
        files_of([Path(path)])
    assert str(refused.value).startswith("data.path: ") and len(str(refused.value)) < 400


# ---------------------------------------- unusual files that are read


def problems(tmp_path: Path, name: str, content: str, format: str = "problems") -> list[dict[str, str | int]]:
    (tmp_path / name).write_text(content)
    return [record.row for record in read_records(format, [tmp_path / name], {})[0]]


def test_spaces_in_a_csv_header_drop_no_column(tmp_path: Path) -> None:
    assert problems(tmp_path, "a.csv", "prompt, answer\n2 + 3,5\n") == [{"prompt": "2 + 3", "answer": "5"}]


def test_a_suffix_in_capitals_is_the_same_kind_of_file(tmp_path: Path) -> None:
    assert problems(tmp_path, "a.JSONL", row()) == [{"prompt": "2 + 3", "answer": "5"}]
    assert files_of([tmp_path]) == [tmp_path / "a.JSONL"]


USER, ASSISTANT = {"role": "user", "content": "2 + 3 ?"}, {"role": "assistant", "content": "It is 5."}
WORSE = {"role": "assistant", "content": "It is 6."}
SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("format", "values", "expected"),
    [
        ("problems", {"prompt": [USER], "answer": "5"}, {"prompt": "2 + 3 ?", "answer": "5"}),
        ("problems", {"messages": [USER, ASSISTANT], "answer": 5}, {"prompt": "2 + 3 ?", "answer": "5"}),
        ("problems", {"prompt": [SYSTEM, USER]}, {"prompt": "Be brief.\n\n2 + 3 ?", "system": "Be brief."}),
        ("demonstrations", {"messages": [USER, ASSISTANT]}, {"prompt": "2 + 3 ?", "completion": "It is 5."}),
        (
            "demonstrations",
            {"prompt": [USER], "completion": [ASSISTANT]},
            {"prompt": "2 + 3 ?", "completion": "It is 5."},
        ),
        (
            "preferences",
            {"chosen": [USER, ASSISTANT], "rejected": [USER, WORSE]},
            {"prompt": "2 + 3 ?", "chosen": "It is 5.", "rejected": "It is 6."},
        ),
        (
            "preferences",
            {"prompt": [USER], "chosen": [ASSISTANT], "rejected": [WORSE]},
            {"prompt": "2 + 3 ?", "chosen": "It is 5.", "rejected": "It is 6."},
        ),
    ],
)
def test_messages_of_trl_are_read_as_their_texts(
    tmp_path: Path, format: str, values: dict[str, object], expected: dict[str, object]
) -> None:
    assert problems(tmp_path, "a.jsonl", json.dumps(values), format)[-1] == expected
    pq.write_table(pa.Table.from_pylist([values]), tmp_path / "a.parquet")
    assert read_records(format, [tmp_path / "a.parquet"], {})[0][-1].row == expected


def test_pairs_whose_messages_begin_with_different_prompts_are_refused(tmp_path: Path) -> None:
    other = {"role": "user", "content": "3 + 3 ?"}
    with pytest.raises(UserError, match=r"line 1: the messages of chosen and rejected do not begin with the same"):
        problems(
            tmp_path, "a.jsonl", json.dumps({"chosen": [USER, ASSISTANT], "rejected": [other, WORSE]}), "preferences"
        )


# ---------------------------------------- random content


def nasty(random: Random, depth: int = 0) -> object:
    """Return a random value that a JSON file may contain."""
    leaves = ["", "x", "\ud800", "\0", 0, -1, 1.5, 10**30, float("inf"), float("nan"), None, True, "#### 4", 1e300]
    kind = random.randrange(4) if depth < 3 else 0
    if kind == 1:
        return [nasty(random, depth + 1) for _ in range(random.randrange(3))]
    if kind == 2:
        keys = ["role", "content", "prompt", "x", " "]
        return {random.choice(keys): nasty(random, depth + 1) for _ in range(random.randrange(4))}
    return random.choice(leaves)


COLUMNS = [
    "prompt",
    "answer",
    "completion",
    "chosen",
    "rejected",
    "messages",
    "question",
    "level",
    "split",
    "",
    " prompt",
]


@pytest.mark.parametrize("format", ["gsm8k", "hh", "humaneval", "problems", "demonstrations", "preferences"])
def test_whatever_json_holds_is_rows_or_one_line(tmp_path: Path, format: str) -> None:
    random = Random(format)
    outcomes = set()
    for number in range(150):
        rows = [{random.choice(COLUMNS): nasty(random) for _ in range(6)} for _ in range(random.randrange(1, 3))]
        if number % 3 == 0:
            rows = [{"prompt": "x", "completion": "y", "chosen": "b", "rejected": "c", **row} for row in rows]
        text = "\n".join(json.dumps(row) for row in rows)
        if number % 2:
            spoilt = list(text)
            spoilt[random.randrange(len(spoilt))] = random.choice('{}[]",:\\\n0\u2028')
            text = "".join(spoilt)
        outcomes.add(outcome(tmp_path / "a.jsonl", text.encode(), format))
    assert outcomes == {True, False} or format in ("gsm8k", "hh", "humaneval")


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json", "parquet"])
def test_whatever_bytes_a_file_holds_are_rows_or_one_line(tmp_path: Path, suffix: str) -> None:
    random = Random(suffix)
    sound = {
        "csv": b'prompt,answer\n"a ""b""",1\nc,2\n',
        "jsonl": b'{"prompt": "a", "answer": 1}\n{"prompt": "b"}\n',
        "json": b'[{"prompt": "a", "answer": 1}]',
        "parquet": parquet(("prompt", "a"), ("answer", "1")),
    }[suffix]
    for _ in range(300):
        spoilt = bytearray(sound)
        for _ in range(random.randrange(1, 4)):
            place = random.randrange(len(spoilt))
            spoilt[place : place + random.randrange(2)] = random.choice(
                [b"\0", b"\xff", b'"', b"\r", b"\n", b",", b"\\", b"{"]
            )
        outcome(tmp_path / f"a.{suffix}", bytes(spoilt), "problems")


def outcome(file: Path, content: bytes, format: str) -> bool:
    """Return True if the file is read, and False if it is refused with one line that names it."""
    file.write_bytes(content)
    try:
        records, _ = read_records(format, [file], {})
    except UserError as error:
        assert "\n" not in str(error) and str(file) in str(error), (str(error), content)
        return False
    assert all(isinstance(value, (str, int)) for record in records for value in record.row.values())
    return True
