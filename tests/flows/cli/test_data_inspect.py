"""`rewardflow data inspect`: the settings that it prints read the files in the way that it shows, hub data included."""

import json
import shlex
from pathlib import Path

import pytest
from huggingface_hub import constants

from flows.cli.data.inspect import inspect
from models.base.errors import UserError
from models.datasets.inspection import inspect as inspected
from models.datasets.settings import DataSettings

COMMIT = "a" * 40
ROWS = [{"problem": f"{n} + 1 ?", "solution": f"It is {n + 1}.", "answer": n + 1} for n in range(3)]


def printed_settings(text: str) -> dict[str, str]:
    """Return the keys of the recipe that an inspection prints."""
    line = next(line for line in text.splitlines() if line.startswith("in a recipe: "))
    return dict(word.split("=", 1) for word in shlex.split(line.removeprefix("in a recipe: ")) if word != "--set")


def test_the_printed_settings_read_the_same_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    inspect([tmp_path / "rows.jsonl"])
    text = capsys.readouterr().out
    assert "made: 3 problems, 3 demonstrations" in text
    named = printed_settings(text)
    assert named == {"data.format": "demonstrations", "data.columns": "{prompt: problem, completion: solution}"}
    columns = {"prompt": "problem", "completion": "solution"}
    seen = inspected(
        DataSettings(name="mine", path=(tmp_path / "rows.jsonl",), format="demonstrations", columns=columns)
    )
    assert seen.text() in text.replace("\n" + next(line for line in text.splitlines() if "in a recipe" in line), "")


def test_a_format_that_is_given_is_not_recognised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "problems.jsonl").write_text('{"prompt": "p"}')
    inspect([tmp_path / "problems.jsonl"])
    assert "shape: kinds" in capsys.readouterr().out
    inspect([tmp_path / "problems.jsonl"], form="problems")
    assert "shape: problems" in (text := capsys.readouterr().out) and "in a recipe" not in text


def test_hub_data_are_shown_with_the_commit_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("datasets", reason="the extra hub is not installed")
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="hf://team/sums@main: the data set is not in the cache"):
        inspect([Path("hf://team/sums")])
    folder = tmp_path / "cache/datasets--team--sums"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text(COMMIT)
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    (folder / "snapshots" / COMMIT / "train.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    inspect([Path("hf://team/sums")])
    text = capsys.readouterr().out
    assert printed_settings(text)["data.path"] == f"[hf://team/sums@{COMMIT}]" and "rows: 3" in text
