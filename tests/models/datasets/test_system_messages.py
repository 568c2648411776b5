"""System messages of a data set: they have a column of their own, and in a chat the role `system`."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.answers.answers import extract_answer
from models.datasets.prepare import prepare
from models.datasets.row_table import open_rows
from models.datasets.schema import COLUMNS, SYSTEM, Kind, read_rows, read_table
from models.datasets.settings import DataSettings
from models.method.problem import Problem, texts_of
from models.reward_models.read_pairs import read_pairs
from models.text.encoding import Codec
from models.text.prompt_form import PromptForm
from models.text.token_cache import CachedCodec
from models.training.read_demonstrations import demonstrations
from tasks.data.validation import validate
from tests.support.special_tokens import CHAT, llama_like

ASKED = [{"role": "system", "content": "1 2"}, {"role": "user", "content": "4 + 5 ="}]
BARE = [{"role": "user", "content": "7 + 7 ="}]
ANSWER = [{"role": "assistant", "content": "9"}]
CHATTED = "<bos> system 1 2 <turn> user 4 + 5 = <turn> assistant"


def prepared(folder: Path, rows: list[dict[str, Any]], format: str = "demonstrations") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings: Any = {"name": "mine", "path": (folder / "rows.jsonl",), "format": format}
    prepare(DataSettings(**settings, validation_share=0.0, gate_share=0.0), folder / "out")
    return folder / "out"


def codec(chat: bool = True, **form: str) -> Codec:
    tokenizer = llama_like(CHAT)
    tokenizer.add_tokens(["system"])
    return Codec(tokenizer, chat=chat, form=PromptForm(**form))


def ids(text: str) -> list[int]:
    tokenizer: Any = codec().tokenizer
    return [int(tokenizer.convert_tokens_to_ids(word)) for word in text.split()]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [*ASKED, *ANSWER]},
        {"messages": json.dumps([*ASKED, *ANSWER])},
        {"prompt": ASKED, "completion": ANSWER},
        {"prompt": "4 + 5 =", "completion": "9", "system": "1 2"},
        {"prompt": "4 + 5 =", "completion": "9", "messages": [*ASKED, *ANSWER]},
        {"prompt": "1 2\n\n4 + 5 =", "completion": "9", "system": "1 2"},
    ],
)
def test_a_system_message_has_a_column_and_a_role_of_its_own(row: dict[str, Any], tmp_path: Path) -> None:
    data = prepared(tmp_path, [row])
    for kind in ("problems", "demonstrations"):
        (read,) = read_rows(data, kind, "train")  # type: ignore[arg-type]
        assert (read["prompt"], read[SYSTEM]) == ("1 2\n\n4 + 5 =", "1 2")
    assert list(demonstrations(data, codec(), "train", 64).prompts) == [ids(CHATTED)]
    assert list(demonstrations(data, codec(system="8"), "train", 64).prompts) == [ids(CHATTED)]
    wrapped = demonstrations(data, codec(template="3 {prompt} 6"), "train", 64).prompts
    assert list(wrapped) == [ids(CHATTED.replace("4 + 5 =", "3 4 + 5 = 6"))]
    plain = demonstrations(data, codec(chat=False, template="3 {prompt} 6"), "train", 64).prompts
    assert list(plain) == [ids("<bos> 1 2 3 4 + 5 = 6")]


def test_rows_without_one_stand_beside_those_with_one(tmp_path: Path) -> None:
    data = prepared(tmp_path, [{"messages": [*asked, *ANSWER]} for asked in (ASKED, BARE)])
    assert sorted(row[SYSTEM] for row in read_rows(data, "problems", "train")) == ["", "1 2"]
    chat = "<bos> system 8 <turn> user 7 + 7 = <turn> assistant"
    read = [list(prompt) for prompt in demonstrations(data, codec(system="8"), "train", 64).prompts]
    assert sorted(read) == sorted([ids(CHATTED), ids(chat)])


def test_control_data_without_system_messages_have_the_columns_that_they_had(tmp_path: Path) -> None:
    data = prepared(tmp_path, [{"messages": [*BARE, *ANSWER]}])
    kinds: tuple[Kind, ...] = ("problems", "demonstrations")
    assert all(tuple(read_table(data, kind, "train").column_names) == COLUMNS[kind] for kind in kinds)
    assert open_rows(data, "problems", "train").systems() is None


@pytest.mark.rotating(of=6)
def test_preferences_and_clean_rows_keep_it(tmp_path: Path) -> None:
    pair = {"chosen": [*ASKED, *ANSWER], "rejected": [*ASKED, {"role": "assistant", "content": "8"}]}
    data = prepared(tmp_path, [pair], "preferences")
    settings: Any = {"quarantine_share": 1.0}
    from models.datasets.validation import ValidationSettings

    validate(data, ValidationSettings(**settings), lambda texts: [1] * len(texts), extract_answer, tmp_path / "checked")
    clean = tmp_path / "checked" / "clean"
    assert read_rows(clean, "preferences", "train") == read_rows(data, "preferences", "train")
    (fitted,), _ = read_pairs(clean, codec(), "train", 64)
    assert list(fitted.prompt) == ids(CHATTED)


def test_texts_kept_without_the_role_are_not_read_for_those_with_it(tmp_path: Path) -> None:
    kept = CachedCodec(codec().tokenizer, chat=True, folder=tmp_path)
    problem = Problem("p", "1 2\n\n4 + 5 =", "9", system="1 2")
    without = kept.prompts([problem.prompt])
    assert kept.prompts(*texts_of([problem])) == [ids(CHATTED)] != without
    assert kept.prompts([problem.prompt], [""]) == without
    assert kept.prompts([f"3 {problem.prompt} 6"], [problem.system]) == [ids(CHATTED.replace("4 + 5 =", "3 4 + 5 = 6"))]
