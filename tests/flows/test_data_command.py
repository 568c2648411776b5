"""Tests of `rewardflow data add`, which commits a user's file and prints the command that trains on it."""

import json
import re
from pathlib import Path

import pytest
from project import Project, rewardflow

pytestmark = [pytest.mark.slow, pytest.mark.rotating(of=8)]
SOMEBODY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Somebody"), ("EMAIL", "somebody@localhost"))
}


def test_the_command_pins_the_rows_and_prints_the_command_that_trains_on_them(project: Project, tmp_path: Path) -> None:
    rows = tmp_path / "mine.jsonl"
    rows.write_text("\n".join(json.dumps({"question": f"What is {n} + 1?", "answer": f"#### {n}"}) for n in range(60)))
    ended = rewardflow(project.folder, "data", "add", str(rows), "--recipe", "gsm8k", "--name", "mine", **SOMEBODY)
    assert ended.returncode == 0, ended.stderr
    said, command = ended.stdout.strip().splitlines()[-2:]
    assert re.fullmatch(r"mine: \d+ rows, version [0-9a-f]{8}, commit [0-9a-f]{8}, pushed", said)
    assert command == "rewardflow run gsm8k --set data.path=data/raw/mine --set data.name=mine"


def test_what_is_wrong_is_one_line(project: Project, tmp_path: Path) -> None:
    ended = rewardflow(project.folder, "data", "add", str(tmp_path / "gone.jsonl"), "--recipe", "gsm8k")
    assert ended.returncode == 1
    assert ended.stderr.strip() == f"error: data.path: {tmp_path / 'gone.jsonl'}: no such file"


def test_an_inspection_needs_no_recipe(project: Project, tmp_path: Path) -> None:
    rows = tmp_path / "mine.csv"
    rows.write_text('q,solution,source\n"What is 2 + 1?",3,book\n')
    columns = ("--column", "prompt=q", "--column", "answer=solution")
    ended = rewardflow(project.folder, "data", "inspect", str(rows), *columns)
    assert ended.returncode == 0, ended.stderr
    assert "shape: problems" in ended.stdout and "not read: source" in ended.stdout
    ended = rewardflow(project.folder, "data", "inspect", str(rows), "--column", "prompt")
    assert ended.returncode == 1 and "--column: 'prompt' is not FIELD=COLUMN" in ended.stderr
