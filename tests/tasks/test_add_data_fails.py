"""Failed additions of data: rows, raw files, pins, index and commit remain unchanged, wherever the addition fails."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_repository import git, mine, write_raw

from models.base.errors import UserError
from tasks.data.add_data import add
from tasks.data.versions import current

pytestmark = pytest.mark.rotating(of=8)

SILENT = lambda line: None  # noqa: E731


@pytest.fixture(autouse=True)
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "somebody@localhost")


def state(root: Path) -> dict[str, object]:
    """Return all files and folders below data/, the commit, and the status that git reports."""
    files = {path.relative_to(root): path.read_bytes() for path in (root / "data").rglob("*") if path.is_file()}
    folders = {path.relative_to(root) for path in (root / "data").rglob("*") if path.is_dir()}
    return {
        "files": files,
        "folders": folders,
        "HEAD": git(root, "rev-parse", "HEAD"),
        "status": git(root, "status", "--porcelain"),
    }


def refuse_commits(root: Path) -> None:
    hook = root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not on a Sunday >&2\nexit 1\n")
    hook.chmod(0o755)


def test_two_files_of_one_name_leave_no_copies_behind(root: Path, raw: Path, tmp_path: Path) -> None:
    before = state(root)
    with pytest.raises(UserError, match=r"two files are called rows\.jsonl"):
        add(mine([str(raw), str(write_raw(tmp_path / "other/rows.jsonl", 3))]), root, SILENT)
    assert state(root)["files"] == before["files"]


@pytest.mark.slow
def test_a_commit_that_git_refuses_leaves_nothing_of_a_first_addition(root: Path, raw: Path) -> None:
    before = state(root)
    refuse_commits(root)
    with pytest.raises(UserError, match="git commit: not on a Sunday"):
        add(mine(raw), root, SILENT)
    after = state(root)
    assert after["files"] == before["files"] and (after["HEAD"], after["status"]) == (before["HEAD"], before["status"])
    assert not list((root / "data").rglob("*mine*"))


@pytest.mark.slow
def test_a_commit_that_git_refuses_leaves_the_version_before_rows_included(root: Path, raw: Path) -> None:
    version, _ = add(mine(raw), root, SILENT)
    before = state(root)
    refuse_commits(root)
    with pytest.raises(UserError, match="git commit: not on a Sunday"):
        add(mine(write_raw(raw, 70)), root, SILENT)
    assert state(root) == before
    assert current("mine", root) == version


@pytest.fixture
def small_disk(root: Path) -> Iterator[Path]:
    """Mount a file system of 256 KiB at data/raw of the repository, and yield this folder."""
    folder = root / "data/raw"
    folder.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("room", [0, 4], ids=["for no byte", "for the raw files alone"])
def test_a_full_disk_leaves_pin_and_raw_files_and_names_the_folder(small_disk: Path, room: int, raw: Path) -> None:
    root = small_disk.parents[1]
    (small_disk / "mine").mkdir()
    (small_disk / "mine/rows.jsonl").write_text("the rows before")
    (small_disk / "mine.dvc").write_text("the pin before")
    (small_disk / "filler").write_bytes(b"0" * 150_000)
    with (small_disk / "filler").open("ab", buffering=0) as filler:
        try:
            while filler.write(b"0" * 4096):
                pass
        except OSError:
            filler.truncate(filler.tell() - room * 1024)
    before = state(root)
    with pytest.raises(UserError, match="no space left to write it") as caught:
        add(mine(raw), root, SILENT)
    assert str(small_disk / "mine") in str(caught.value)
    assert state(root) == before
