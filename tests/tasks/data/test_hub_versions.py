"""Versions of hub data: the commit is in the stage, and pins the rows once the stage is committed."""

from pathlib import Path

import pytest
import yaml
from data_hub import COMMIT, EARLIER, sums, sums_files, write_cache
from small_repository import commit, git, ran

from models.datasets.schema import read_rows
from models.datasets.settings import DataSettings
from tasks.data.add_data import add
from tasks.data.versions import prepare

pytest.importorskip("datasets", reason="the extra hub is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.rotating(of=6)]
PART = ":main/train"


def settings(reference: str) -> DataSettings:
    return DataSettings.model_validate(
        {"name": "mine", "path": reference, "format": "auto", "validation_share": 0.2, "gate_share": 0.2}
    )


def silent(line: str) -> None:
    """Ignore a line."""


def test_a_commit_of_the_hub_pins_the_rows_once_the_stage_is_committed(root: Path, cache: Path) -> None:
    write_cache(cache, sums_files())
    pinned = f"hf://team/sums@{COMMIT}{PART}"
    version = prepare(settings(pinned), root, silent)
    rows = [row for split in ("train", "validation", "gate") for row in read_rows(version.folder, "problems", split)]
    assert len(rows) == 60 and version.raw == {pinned: COMMIT}
    assert version.unpinned.endswith("commit data/sources/mine, or `rewardflow data add` pins them")
    stage = yaml.safe_load((root / "data/sources/mine/params.yaml").read_text())
    assert stage["data"]["path"] == [pinned]
    commit(root)
    lines: list[str] = []
    assert prepare(settings(pinned), root, lines.append).unpinned == "" and ran(lines) == []


def test_a_branch_is_resolved_to_a_commit_and_is_reported_as_not_pinned(root: Path, cache: Path) -> None:
    write_cache(cache, sums_files())
    version = prepare(settings(f"hf://team/sums{PART}"), root, silent)
    assert version.raw == {f"hf://team/sums@{COMMIT}{PART}": COMMIT}
    commit(root)
    lines: list[str] = []
    again = prepare(settings(f"hf://team/sums{PART}"), root, lines.append)
    assert ran(lines) == [] and f"hf://team/sums@main{PART} is the commit {COMMIT}" in lines
    assert f"write hf://team/sums@{COMMIT}{PART}" in again.unpinned
    write_cache(cache, {**sums_files(), "main/train-00000-of-00002.parquet": sums(200, 220)}, commit=EARLIER)
    moved = prepare(settings(f"hf://team/sums{PART}"), root, silent)
    assert moved.raw == {f"hf://team/sums@{EARLIER}{PART}": EARLIER} and moved.digest != again.digest


def test_hub_data_can_be_added_as_a_version(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "somebody@localhost")
    write_cache(cache, sums_files())
    version, kept = add(settings(f"hf://team/sums{PART}"), root, silent)
    assert kept.path == (Path("data/raw/mine"),) and version.unpinned == ""
    assert "data/raw/mine.dvc" in git(root, "show", "--stat", "--format=", "HEAD")
