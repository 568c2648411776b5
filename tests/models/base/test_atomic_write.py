"""Atomic writes: a file has the old or the new content, and no partial file is left."""

import errno
import os
import threading
from pathlib import Path

import pytest

from models.base.atomic_write import leftovers, replace_file, replace_folder, sweep, sync_folder, write_file
from models.base.errors import UserError

ROOT = Path(__file__).resolve().parents[3]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write a file with content into an empty folder and return it."""
    file = tmp_path / "kept.json"
    file.write_text("the old content")
    return file


@pytest.mark.parametrize("content", ["Größe\r\n\n", b"\x00\xff\r\n", "", "a" * 2**20])
def test_the_content_is_there_to_the_last_byte_and_alone(file: Path, content: str | bytes) -> None:
    write_file(file, content)
    assert file.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert names(file.parent) == ["kept.json"]


def test_its_folder_is_made_where_it_is_missing(tmp_path: Path) -> None:
    write_file(tmp_path / "new/folder/file", "content")
    assert (tmp_path / "new/folder/file").read_text() == "content"


def test_an_exception_in_mid_write_leaves_the_old_file_and_no_other(file: Path) -> None:
    def write_half() -> None:
        with replace_file(file) as partial_file:
            partial_file.write_text("the new con")
            assert partial_file.parent == file.parent  # a rename works only within one file system
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert file.read_text() == "the old content"
    assert names(file.parent) == ["kept.json"]


def test_text_that_cannot_be_encoded_leaves_the_old_file(file: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_file(file, "half \udc80")
    assert file.read_text() == "the old content"
    assert names(file.parent) == ["kept.json"]


def test_until_the_end_a_reader_sees_the_old_file(file: Path) -> None:
    with replace_file(file) as partial_file:
        partial_file.write_text("the new content")
        assert file.read_text() == "the old content"
    assert file.read_text() == "the new content"


def test_a_block_that_writes_nothing_does_not_pass_for_a_write(file: Path) -> None:
    with pytest.raises(FileNotFoundError), replace_file(file):
        pass
    assert file.read_text() == "the old content"


def test_a_disk_that_is_full_only_when_synced_is_one_line_and_leaves_the_old_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"kept\.json: no space left to write it .* nothing half-written"):
        write_file(file, "the new content")
    assert file.read_text() == "the old content"
    assert names(file.parent) == ["kept.json"]


def test_the_content_is_on_the_disk_before_it_gets_the_name_and_the_name_before_the_end(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(handle: int) -> None:
        place = Path(os.readlink(f"/proc/self/fd/{handle}"))
        done.append(("sync", place.read_text() if place.is_file() else place.name))
        fsync(handle)

    def watched_replace(source: Path, target: Path) -> None:
        done.append(("rename", target.name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr("models.base.atomic_write.os.replace", watched_replace)
    write_file(file, "the new content")
    assert done == [("sync", "the new content"), ("rename", "kept.json"), ("sync", file.parent.name)]


def test_threads_that_write_one_file_leave_one_of_their_contents_whole(file: Path) -> None:
    contents = [str(number) * 2**18 for number in range(4)]
    failed: list[BaseException] = []

    def write(content: str) -> None:
        try:
            for _ in range(10):
                write_file(file, content)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert file.read_text() in contents
    assert names(file.parent) == ["kept.json"]


def test_a_folder_is_synced_with_all_that_lies_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/file").write_text("content")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    sync_folder(tmp_path)
    assert synced == [str(tmp_path / "deep"), str(tmp_path / "deep/file"), str(tmp_path)]


def test_no_other_room_syncs_a_file_by_hand() -> None:
    code = [file for folder in ("models", "tasks", "flows", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    by_hand = {str(file.relative_to(ROOT)) for file in code if "fsync(" in file.read_text()}
    assert by_hand == {"models/base/atomic_write.py"}


# ---------------------------------------- leftovers of killed writes

DEAD = 4194305
"""A thread id above the largest of Linux, so that no thread has it."""


def test_what_a_killed_write_left_is_swept_and_what_is_being_written_stays(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / f"deep/.log.jsonl.{DEAD}.part").write_text("half")
    (tmp_path / f".policy.{DEAD}.part").mkdir()
    (tmp_path / f".policy.{DEAD}.part/.config.json.{DEAD}.part").write_text("half")
    (tmp_path / "kept.part").write_text("a user's")
    (tmp_path / ".mine.part").write_text("a user's")
    with replace_file(tmp_path / "new") as partial_file:
        partial_file.write_text("half")
        assert len(leftovers(tmp_path)) == 3
        sweep(tmp_path)
        assert names(tmp_path) == sorted([".mine.part", "deep", "kept.part", partial_file.name])
    assert names(tmp_path) == [".mine.part", "deep", "kept.part", "new"] and names(tmp_path / "deep") == []


def test_a_folder_that_is_written_again_sweeps_what_its_killed_writer_left_and_nothing_of_another(
    tmp_path: Path,
) -> None:
    for name in ("policy", "other"):
        (tmp_path / f".{name}.{DEAD}.part").mkdir()
    with replace_folder(tmp_path / "policy") as partial_file:
        assert names(partial_file) == []
    assert names(tmp_path) == [f".other.{DEAD}.part", "policy"]
