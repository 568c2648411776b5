"""Tests of the systemd unit of the schedule: its content, its check by systemd, and its installation."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import ROOT

from flows.schedule import unit
from models.base.errors import UserError


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def sections(text: str) -> dict[str, list[str]]:
    held: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            held[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            held[list(held)[-1]].append(line)
    return held


@pytest.mark.parametrize("root", [False, True])
def test_a_unit_starts_the_schedule_of_its_checkout_with_its_state_folder(elsewhere: Path, root: bool) -> None:
    made = unit.unit_of(ROOT, elsewhere / "home", root=root)
    held = sections(made.text)
    assert f"WorkingDirectory={ROOT}" in held["Service"]
    assert f"Environment=REWARDFLOW_HOME={elsewhere / 'home'}" in held["Service"]
    assert f"ExecStart={sys.prefix}/bin/rewardflow schedule" in held["Service"]
    assert held["Install"] == [f"WantedBy={'multi-user' if root else 'default'}.target"]
    folder = Path("/etc/systemd/system") if root else elsewhere / "config" / "systemd" / "user"
    assert made.path == folder / "rewardflow.service" and "$" not in made.text
    assert made.next_steps[1] == f"systemctl {'' if root else '--user '}enable --now rewardflow.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze (Debian: systemd) is not here")
@pytest.mark.parametrize("root", [False, True])
def test_systemd_itself_finds_nothing_wrong_with_it(
    elsewhere: Path, root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(elsewhere))
    made = unit.unit_of(ROOT, elsewhere / "home", root=root)
    file = elsewhere / unit.NAME
    file.write_text(made.text)
    command = ["systemd-analyze", "verify", *(["--user"] if not root else []), str(file)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (said.returncode, [line for line in said.stderr.splitlines() if unit.NAME in line]) == (0, [])
    file.write_text(made.text.replace("ExecStart=", "ExecStrat="))
    wrong = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "ExecStrat" in wrong.stderr, "a slip would be noticed"


def test_what_a_unit_cannot_name_is_refused_and_an_unwritable_folder_is_one_line(elsewhere: Path) -> None:
    with pytest.raises(UserError, match="my home: a unit of systemd cannot name it"):
        unit.unit_of(ROOT, elsewhere / "my home")
    with pytest.raises(UserError, match=r"rewardflow.service is not there; run this in a checkout"):
        unit.unit_of(elsewhere, elsewhere / "home")
    made = unit.unit_of(ROOT, elsewhere / "home", root=False)
    (elsewhere / "config").write_text("a file")
    with pytest.raises(UserError, match=r"rewardflow.service cannot be written \(Not a directory\)"):
        unit.install(made)


def test_installing_writes_it_whole_and_again_over_itself(elsewhere: Path) -> None:
    made = unit.unit_of(ROOT, elsewhere / "home", root=False)
    for _ in range(2):
        unit.install(made)
        assert made.path.read_text() == made.text
