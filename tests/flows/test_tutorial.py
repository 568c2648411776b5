"""The commands of the tutorial, run in order in a small fresh clone, give the results that it promises."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from project import command, environment
from running import free_port, type_in
from small_clone import WHO, fresh_clone

from tasks.tracking import audit, registry, store
from tests.support.guide import ROOT

TEXT = (ROOT / "docs" / "tutorial.md").read_text()
BEFORE = 3
"""Number of commands that install the project and check the machine. They are not run here."""
NAME = "arithmetic-policy"


def typed() -> list[str]:
    """Return the commands of the tutorial, each with the lines that are typed at the shell's `>`."""
    blocks = re.findall(r"^```console\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    whole = re.findall(r"^\$ (.*\n(?:> .*\n)*)", "".join(blocks), flags=re.MULTILINE)
    return [re.sub(r"^> ", "", command, flags=re.MULTILINE).rstrip("\n") for command in whole]


def schedule_starts(folder: Path, words: list[str]) -> str:
    """Return the output of `rewardflow schedule`, which is ended by Ctrl-C as soon as it serves."""
    ports = ["--mlflow-port", str(free_port()), "--prefect-port", str(free_port())]
    process = subprocess.Popen(
        command(*words, *ports),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = ""
    try:
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
    finally:
        os.killpg(process.pid, signal.SIGINT)
        said += process.communicate(timeout=120)[0]
    return said


@pytest.mark.thorough
@pytest.mark.slow
def test_every_command_of_the_tutorial_ends_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    clone = fresh_clone(tmp_path / "clone")
    commands = typed()
    assert [words.split()[0] for words in commands[:BEFORE]] == ["make", "export", "rewardflow"]
    said: dict[str, str] = {}
    for words in commands[BEFORE:]:
        if words == "rewardflow schedule":
            said[words] = schedule_starts(clone, ["schedule"])
            continue
        ended = type_in([words], clone, **WHO)
        assert ended.returncode == 0, f"{words}\n{ended.stdout}{ended.stderr}"
        said[words] = ended.stdout
        if words == "rewardflow run arithmetic":
            assert "verdict    promoted: better than the base model" in ended.stdout, ended.stdout
            assert f"champion   models:/{NAME}@champion  (version 1)" in ended.stdout

    (second,) = [words for words in said if words.startswith("rewardflow run arithmetic --set")]
    (added,) = [words for words in said if words.startswith("rewardflow data add ")]
    assert second in said[added], "what `data add` prints is what the tutorial types next"
    assert re.search(r"verdict    (kept|refused): ", said[second]), said[second]
    assert "nightly-training" in said["rewardflow schedule"]
    for said_of_it in ("rewardflow show latest", "rewardflow lineage 1", "rewardflow diff 1 2"):
        assert len(said[said_of_it].splitlines()) > 3

    store.configure(clone / ".rewardflow")
    champion = registry.champion(NAME)
    assert champion is not None and champion.version == 1
    by_ann = [(entry.did, entry.version) for entry in audit.entries(NAME) if entry.by.startswith("ann")]
    assert by_ann == [("promoted", 2), ("promoted", 1)] and audit.broken(NAME) == []
