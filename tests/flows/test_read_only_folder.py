"""A state folder that cannot be written: commands that only read work, all others fail with one line and start nothing.

The folder is mounted read-only, because file permissions do not restrict root.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import ROOT

from flows import command_line
from tasks.tracking import runs, store


@pytest.fixture
def read_only(
    tmp_path: Path, new_store: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, str]]:
    """Mount a state folder read-only. Yield the mount and the id of the only run in it."""
    home, seen = new_store(tmp_path / "home"), tmp_path / "seen"
    run = runs.open_flow_run("tiny", "train tiny")
    runs.close_run(run)
    store.client().create_registered_model("tiny-policy")
    store.client().create_model_version("tiny-policy", "file:///nowhere")
    seen.mkdir()
    for command in (["--bind", home, seen], ["-o", "remount,bind,ro", seen]):
        mounted = subprocess.run(["mount", *map(str, command)], capture_output=True)
        if mounted.returncode:
            subprocess.run(["umount", seen], capture_output=True)
            pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    monkeypatch.setattr("os.environ", {**os.environ, "REWARDFLOW_HOME": str(seen)})
    yield seen, run
    subprocess.run(["umount", "--lazy", seen], check=True)  # connections to its database are still open


def tell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["rewardflow", *arguments])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


@pytest.mark.rotating(of=6)
def test_what_only_looks_works_and_everything_else_is_one_line(
    read_only: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, run = read_only
    for arguments, says in (
        (["runs"], run[:8]),
        (["show", "latest"], run),
        (["models"], "tiny-policy"),
        (["lineage", "1"], "tiny-policy"),
        (["gc"], "nothing was deleted"),
    ):
        code, out, err = tell(monkeypatch, capsys, *arguments)
        assert (code, err) == (0, "") and says in out
    before = sorted(home.rglob("*"))
    for arguments in (
        ["run", "arithmetic"],
        ["compare", "grpo", "rloo", "--smoke"],
        ["promote", "1"],
        ["rollback"],
        ["gc", "--yes"],
        ["ui"],
        ["schedule"],
    ):
        code, out, err = tell(monkeypatch, capsys, *arguments)
        assert (code, out) == (1, "")
        assert err.startswith(f"error: {home}: the state folder cannot be written (Read-only file system)")
        assert len(err.splitlines()) == 1
    assert sorted(home.rglob("*")) == before


@pytest.mark.rotating(of=6)
def test_a_state_folder_that_cannot_even_be_named_is_one_line(tmp_path: Path) -> None:
    home = tmp_path / ("x" * 300)
    ended = subprocess.run(
        [sys.executable, "-m", "flows.command_line", "run", "arithmetic"],
        cwd=ROOT,
        env={**os.environ, "REWARDFLOW_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    (line,) = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (1, "")
    assert line.startswith("error: ") and "the state folder cannot be written (File name too long)" in line
