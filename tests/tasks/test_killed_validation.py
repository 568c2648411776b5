"""A killed validation resumes after the pieces that it finished, and has the result of an undisturbed one."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from models.answers.answers import extract_answer
from models.base.errors import UserError
from models.datasets.schema import COLUMNS, arrow_schema, write_rows
from models.datasets.validation import ValidationReport, ValidationSettings
from tasks.data import split_files
from tasks.data.validation import validate

pytestmark = pytest.mark.rotating(of=8)

ROOT = Path(__file__).resolve().parents[2]
PIECES = 5 + 2  # 14 rows and 5 rows, in pieces of three
SETTINGS = ValidationSettings(quarantine_share=0.5, max_characters=30)


def rows(count: int, split: str) -> list[dict[str, Any]]:
    """Return rows in which every fifth prompt is too long, and two rows of different pieces have the same id."""
    plain = dict.fromkeys(COLUMNS["problems"], "") | {"answer": "3", "level": 1}
    made = [
        plain | {"id": f"{split}-{number}", "prompt": f"Add {number} and {split}" + " more" * (number % 5 == 4) * 9}
        for number in range(count)
    ]
    made[0]["id"] = made[count - 1]["id"]
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(split_files, "PIECE_ROWS", 3)
    (tmp_path / "data").mkdir()
    for split, count in (("train", 14), ("validation", 5)):
        write_rows(tmp_path / "data" / f"problems_{split}.parquet", rows(count, split), arrow_schema("problems"))
    return tmp_path / "data"


class Counting:
    """A token counter that counts its calls. It is called once for each piece of problems."""

    def __init__(self) -> None:
        self.pieces = 0

    def __call__(self, texts: Sequence[str]) -> list[int]:
        self.pieces += 1
        return [len(text.split()) for text in texts]


def validated(folder: Path, out: Path, settings: ValidationSettings = SETTINGS) -> tuple[ValidationReport, int]:
    count = Counting()
    report = validate(folder, settings, count, extract_answer, out, pieces=out / ".pieces")
    return replace(report, docs="", clean="", quarantine=""), count.pieces


def outputs(out: Path) -> dict[str, bytes]:
    return {str(file.relative_to(out)): file.read_bytes() for file in sorted(out.rglob("*")) if file.is_file()}


def killed(folder: Path, out: Path, after: int) -> None:
    """Run a validation in a process that ends by SIGKILL when `after` pieces are finished."""
    code = """
import os, signal, sys
from pathlib import Path
from models.datasets.validation import ValidationSettings
from models.answers.answers import extract_answer
from tasks.data import split_files, validation
split_files.PIECE_ROWS = 3
done = 0
def advance(rows):
    global done
    done += 1
    if done == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
out = Path(sys.argv[2])
count = lambda texts: [len(text.split()) for text in texts]
settings = ValidationSettings(quarantine_share=0.5, max_characters=30)
validation.validate(Path(sys.argv[1]), settings, count, extract_answer, out, advance=advance, pieces=out / ".pieces")
"""
    ended = subprocess.run([sys.executable, "-c", code, str(folder), str(out), str(after)], cwd=ROOT)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize("after", [2, pytest.param(6, marks=pytest.mark.thorough)])
def test_a_killed_validation_goes_on_behind_its_last_piece(folder: Path, tmp_path: Path, after: int) -> None:
    report, pieces = validated(folder, tmp_path / "whole")
    assert pieces == PIECES and report.quarantined == 4 + 2 and not (tmp_path / "whole" / ".pieces").exists()
    killed(folder, tmp_path / "out", after)
    again, more = validated(folder, tmp_path / "out")
    assert more == PIECES - after and again == report
    assert outputs(tmp_path / "out") == outputs(tmp_path / "whole")


@pytest.mark.thorough
def test_a_piece_whose_verdict_is_broken_is_looked_at_again(folder: Path, tmp_path: Path) -> None:
    report, _ = validated(folder, tmp_path / "whole")
    killed(folder, tmp_path / "out", 4)
    first, *_, last = sorted((tmp_path / "out" / ".pieces").iterdir())
    first.write_bytes(first.read_bytes()[:-20])
    last.write_bytes(b"")
    again, more = validated(folder, tmp_path / "out")
    assert more == PIECES - 2 and again == report
    assert outputs(tmp_path / "out") == outputs(tmp_path / "whole")


@pytest.mark.thorough
def test_nothing_is_kept_of_a_validation_that_said_what_is_wrong(folder: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(UserError, match="quarantine_share"):
            validated(folder, tmp_path / "out", replace_share(SETTINGS, 0.1))
        assert not (tmp_path / "out" / ".pieces").exists()


def replace_share(settings: ValidationSettings, share: float) -> ValidationSettings:
    return settings.model_copy(update={"quarantine_share": share})
