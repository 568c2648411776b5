"""Chat messages in data files: every form gives the same texts, and text that would be lost is refused."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.base.errors import UserError
from models.datasets.prepare import notes_of, prepare
from models.datasets.settings import DataSettings
from tests.support.plain_records import read_records

USER, ASSISTANT = {"role": "user", "content": "Say 'x' \"y\"\n2 + 3 ?"}, {"role": "assistant", "content": "It's 5."}
WORSE, SYSTEM = {"role": "assistant", "content": "6"}, {"role": "system", "content": "Be brief."}
QUESTION, ANSWER = str(USER["content"]), str(ASSISTANT["content"])
SHAREGPT = [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": ANSWER}]

FORMS: dict[str, Callable[[Any], Any]] = {
    "a list": lambda value: value,
    "JSON": json.dumps,
    "JSON with spaces around": lambda value: f" \n{json.dumps(value, indent=1)} ",
    "JSON twice": lambda value: json.dumps(json.dumps(value)),
    "Python": repr,
}


def row_of(folder: Path, format: str, values: dict[str, Any], suffix: str = "jsonl", **mapping: str) -> Any:
    file = folder / f"rows.{suffix}"
    if suffix == "csv":
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(values))
            writer.writeheader()
            writer.writerow(values)
    elif suffix == "parquet":
        pq.write_table(pa.Table.from_pylist([values]), file)
    else:
        file.write_text(json.dumps(values))
    return read_records(format, [file], mapping)[0][-1].row


def refused(folder: Path, format: str, values: dict[str, Any], **mapping: str) -> str:
    with pytest.raises(UserError) as error:
        row_of(folder, format, values, **mapping)
    message = str(error.value)
    assert "\n" not in message and f"{folder / 'rows.jsonl'}, line 1: " in message
    return message


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("format", "values", "expected"),
    [
        ("demonstrations", {"messages": [USER, ASSISTANT]}, {"prompt": QUESTION, "completion": ANSWER}),
        ("demonstrations", {"conversations": SHAREGPT}, {"prompt": QUESTION, "completion": ANSWER}),
        ("demonstrations", {"prompt": [USER], "completion": [ASSISTANT]}, {"prompt": QUESTION, "completion": ANSWER}),
        ("demonstrations", {"prompt": USER, "completion": ASSISTANT}, {"prompt": QUESTION, "completion": ANSWER}),
        (
            "preferences",
            {"chosen": [SYSTEM, USER, ASSISTANT], "rejected": [SYSTEM, USER, WORSE]},
            {"prompt": f"Be brief.\n\n{QUESTION}", "chosen": ANSWER, "rejected": "6", "system": "Be brief."},
        ),
    ],
)
def test_every_form_of_messages_is_read_as_the_same_texts(
    tmp_path: Path, form: str, format: str, values: dict[str, Any], expected: dict[str, str]
) -> None:
    written = {column: FORMS[form](value) for column, value in values.items()}
    suffixes = ["jsonl", "parquet"] + (["csv"] if form != "a list" else [])
    for suffix in suffixes:
        assert row_of(tmp_path, format, written, suffix) == expected


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2, 3] What is the sum?",
        "[x] is a box",
        '["a", "b"]',
        "[]",
        "{}",
        '[{"city": "Oslo"}, {"city": "Rome"}]',
        '{"role": "admin", "content": "a record, and no message"}',
        '[{"role": "user", "content": "Hi"}]\nHow many messages are these?',
        "[{'role': 'user', 'content': 'Hi'}] How many messages are these?",
        '{"content": "breaks off',
        '"quoted"',
        "array([1, 2])",
        "{'a': 1}",
    ],
)
def test_a_text_that_only_begins_like_messages_stays_a_text(tmp_path: Path, text: str) -> None:
    """Control: the text is read unchanged."""
    assert row_of(tmp_path, "demonstrations", {"prompt": text, "completion": text}) == {
        "prompt": text,
        "completion": text,
    }


@pytest.mark.parametrize(
    ("column", "text", "says"),
    [
        ("prompt", '[{"role": "user", "content": "Give', "begins like messages and cannot be read"),
        ("prompt", '[{"role": "user", "role": "x", "content": "a"}]', "the key 'role' stands twice"),
        (
            "completion",
            "[{'content': 'a', 'role': 'assistant'}\n {'content': 'b', 'role': 'user'}]",
            "write the messages",
        ),
        ("prompt", "array([{'content': 'a', 'role': 'user'}], dtype=object)", "begins like messages"),
        ("prompt", '[{"role": "user", "content": f"{x}"}]', "begins like messages"),
        ("prompt", "[{'role': 'user', 'content': " + "(" * 5000, "begins like messages"),
        ("prompt", '[{"type": "text", "text": "Hi"}]', "holds the parts of a message"),
        ("answer", json.dumps([ASSISTANT]), "holds messages, which the field 'answer' cannot be"),
        ("messages", "2 + 3 ?", "column 'messages' holds no messages"),
    ],
)
def test_a_text_that_is_broken_messages_is_refused_by_row(tmp_path: Path, column: str, text: str, says: str) -> None:
    values = {"prompt": "x", "completion": "y", column: text} if column != "messages" else {"messages": text}
    assert says in refused(tmp_path, "demonstrations", values)


@pytest.mark.parametrize(
    ("format", "values", "prompt"),
    [
        (
            "preferences",
            {"prompt": QUESTION, "chosen": [SYSTEM, USER, ASSISTANT], "rejected": [SYSTEM, USER, WORSE]},
            "",
        ),
        ("preferences", {"prompt": QUESTION, "chosen": [SYSTEM, USER, ASSISTANT], "rejected": [WORSE]}, ""),
        ("preferences", {"prompt": [USER], "chosen": "5", "rejected": "6", "messages": [SYSTEM, USER, ASSISTANT]}, ""),
        ("demonstrations", {"prompt": QUESTION, "messages": [SYSTEM, USER, ASSISTANT]}, ""),
        ("demonstrations", {"prompt": QUESTION, "completion": "5", "messages": json.dumps([SYSTEM, USER])}, ""),
        ("problems", {"prompt": QUESTION, "answer": "5", "system": "Be brief."}, ""),
        ("problems", {"prompt": [SYSTEM, USER], "answer": "5", "system": "Be brief."}, ""),
        ("problems", {"messages": [USER], "answer": "5", "system": ""}, QUESTION),
    ],
)
def test_a_system_message_in_any_column_belongs_to_the_prompt(
    tmp_path: Path, format: str, values: dict[str, Any], prompt: str
) -> None:
    assert row_of(tmp_path, format, values)["prompt"] == (prompt or f"Be brief.\n\n{QUESTION}")


OTHER = {"role": "user", "content": "3 + 3 ?"}


@pytest.mark.parametrize(
    ("format", "values", "says"),
    [
        (
            "preferences",
            {"prompt": QUESTION, "chosen": [USER, ASSISTANT], "rejected": [OTHER, WORSE]},
            "column 'rejected' answers another question than column 'prompt' asks",
        ),
        (
            "preferences",
            {"prompt": "1 + 1 ?", "chosen": [USER, ASSISTANT], "rejected": [USER, WORSE]},
            "column 'chosen' answers another question",
        ),
        (
            "demonstrations",
            {"prompt": [USER], "completion": json.dumps([OTHER, ASSISTANT])},
            "column 'completion' answers another question",
        ),
        (
            "demonstrations",
            {"prompt": "x", "completion": "y", "messages": [USER, ASSISTANT]},
            "column 'messages' answers another question",
        ),
        (
            "problems",
            {"prompt": [SYSTEM, USER], "system": "Be long."},
            "the columns system, prompt have different system messages",
        ),
    ],
)
def test_columns_that_ask_different_questions_are_refused(
    tmp_path: Path, format: str, values: dict[str, Any], says: str
) -> None:
    assert says in refused(tmp_path, format, values)


def test_a_pair_whose_dialogues_end_in_different_questions_has_no_prompt(tmp_path: Path) -> None:
    begin = "\n\nHuman: Hi\n\nAssistant: Hello"
    pair = {side: f"{begin} {side}\n\nHuman: {side}?\n\nAssistant: yes" for side in ("chosen", "rejected")}
    sound = {side: f"{begin}\n\nHuman: And?\n\nAssistant: {side}" for side in ("chosen", "rejected")}
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, [sound, pair])))
    read = read_records("hh", [tmp_path / "rows.jsonl"], {})[0]
    assert [bool(record.row["prompt"]) for record in read if record.kind == "preferences"] == [True, False]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"messages": [USER, {**ASSISTANT, "reasoning_content": "so"}]}, ("reasoning_content", "column 'messages'")),
        ({"messages": [{**USER, "thinking": "hm"}, ASSISTANT]}, ("thinking",)),
        ({"messages": [USER, {**ASSISTANT, "tool_calls": [{"name": "add"}]}]}, ("tool_calls",)),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [{"name": "add"}]}]}, ("tool_calls",)),
        ({"messages": [USER, {**ASSISTANT, "function_call": {"name": "add"}}]}, ("function_call",)),
        ({"messages": json.dumps([USER, {**ASSISTANT, "reasoning": "so"}])}, ("reasoning",)),
        ({"prompt": "x", "completion": "y", "tools": [{"name": "add"}]}, ("tools",)),
        ({"prompt": "x", "completion": "y", "tools": '[{"name": "add"}]'}, ("tools",)),
        ({"prompt": "x", "completion": "y", "reasoning_content": "so"}, ("reasoning_content",)),
        ({"prompt": "x", "completion": "y", "system_prompt": "so"}, ("system_prompt", "{system: system_prompt}")),
        ({"messages": [USER, {**ASSISTANT, "content": [{"type": "reasoning", "text": "so"}]}]}, ("a part that is no",)),
    ],
)
def test_text_that_would_be_lost_is_refused_by_the_name_of_its_field(
    tmp_path: Path, values: dict[str, Any], names: tuple[str, ...]
) -> None:
    message = refused(tmp_path, "demonstrations", values)
    assert all(name in message for name in names)


@pytest.mark.parametrize("nothing", [None, "", [], {}, "[]", "null"])
def test_a_field_of_text_without_any_text_is_no_hindrance(tmp_path: Path, nothing: Any) -> None:
    """Control: empty fields do not change how a row is read."""
    message = {**ASSISTANT, "tool_calls": nothing, "reasoning_content": nothing}
    row = row_of(tmp_path, "demonstrations", {"messages": [USER, message], "tools": nothing})
    assert row == {"prompt": QUESTION, "completion": ANSWER}


def test_a_mapped_system_column_is_read_and_ignored_text_is_left_out(tmp_path: Path) -> None:
    values = {"q": "2 + 3 ?", "a": "5", "system_prompt": "Be brief."}
    row = row_of(tmp_path, "problems", values, prompt="q", answer="a", system="system_prompt")
    assert row == {"prompt": "Be brief.\n\n2 + 3 ?", "answer": "5", "system": "Be brief."}
    rows = [
        {
            "messages": [{**USER, "content": f"{n} ?", "weight": 1}, {**ASSISTANT, "thinking": "so"}],
            "tools": ["add"],
            "n": n,
        }
        for n in range(40)
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = DataSettings(
        name="mine", format="demonstrations", path=(tmp_path / "mine.jsonl",), ignore=("tools", "thinking")
    )
    manifest = prepare(settings, tmp_path / "out")
    assert manifest["unread"] == ["messages[].weight", "n"]
    assert "columns that nothing reads: messages[].weight, n" in notes_of(manifest)


def test_messages_that_are_ignored_are_not_compared_with_the_prompt(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n} ?", "completion": "y", "messages": [USER, ASSISTANT, USER, ASSISTANT]} for n in range(60)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = DataSettings(name="mine", format="demonstrations", path=(tmp_path / "mine.jsonl",), ignore=("messages",))
    assert "unread" not in prepare(settings, tmp_path / "out")
    with pytest.raises(UserError, match="line 1: column 'messages' asks in the roles user, assistant, user"):
        prepare(settings.model_copy(update={"ignore": ()}), tmp_path / "out")


def test_a_split_column_that_nothing_reads_is_named_with_what_reads_it(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n}", "answer": "1", "split": "test"} for n in range(60)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    manifest = prepare(DataSettings(name="mine", format="problems", path=(tmp_path / "mine.jsonl",)), tmp_path / "out")
    assert manifest["unread"] == ["split"] and "data.columns={split: split}" in notes_of(manifest)[-1]
