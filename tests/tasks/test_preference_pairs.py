"""Preferences as a reward model of gaps reads them: behind their own completions and behind another answer."""

from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import CODEC

from models.datasets.schema import arrow_schema, file_name, write_rows
from models.errors import UserError
from models.reward_model.gap import GapPair, GapSettings
from tasks.preference_pairs import read_pairs

COMMON: dict[str, Any] = {"prompt": "1 + 2", "level": 1}


def prepared(folder: Path, completions: list[str]) -> Path:
    preference = COMMON | {"id": "q", "prompt_id": "p", "chosen": "3", "rejected": "4", "flaw": "slip"}
    write_rows(folder / file_name("preferences", "train"), [preference], arrow_schema("preferences"))
    shown = [
        COMMON | {"id": f"d{number}", "prompt_id": "p", "completion": text, "answer": "3", "flaw": "none"}
        for number, text in enumerate(completions)
    ]
    write_rows(folder / file_name("demonstrations", "train"), shown, arrow_schema("demonstrations"))
    return folder


def contexts(data: Path, others: bool) -> list[str]:
    pairs, flaws = read_pairs(
        data, CODEC, "train", 64, gap=GapSettings(context="{prompt} {told} ; {prompt}", others=others)
    )
    assert flaws == ["slip"] * len(pairs)
    kinds = [pair.reference for pair in pairs if isinstance(pair, GapPair)]
    assert kinds == ["rejected", "chosen", "other"][: 2 + others]
    assert {CODEC.text([pair.chosen])[0] for pair in pairs} == {"3"}
    return CODEC.text([pair.prompt for pair in pairs])


@pytest.mark.parametrize(
    ("completions", "third"),
    [(["3", "7", "8"], "7"), (["8", "7", "3"], "7"), (["3", "4"], "4"), (["4"], "4"), (["3", "4", "3", "9"], "9")],
)
def test_a_third_reference_is_the_first_demonstration_that_is_neither_of_the_two(
    tmp_path: Path, completions: list[str], third: str
) -> None:
    assert contexts(prepared(tmp_path, completions), others=True) == [
        f"1 + 2 {told} ; 1 + 2" for told in ("4", "3", third)
    ]


def test_without_others_no_demonstration_is_read(tmp_path: Path) -> None:
    data = prepared(tmp_path, ["7"])
    (data / file_name("demonstrations", "train")).unlink()
    assert contexts(data, others=False) == ["1 + 2 4 ; 1 + 2", "1 + 2 3 ; 1 + 2"]
    with pytest.raises(UserError, match="demonstrations"):
        contexts(data, others=True)
