"""The flow of TextWorld runs from its own lock file to a verdict, in a virtual environment of its own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from extra_environment import interpreter_with
from project import make_project
from running import ROOT, shell


def outs(lock: str) -> dict[str, str]:
    """Return the hashes of the outputs of the stage `games`, by path."""
    return {out["path"]: out["md5"] for out in yaml.safe_load(lock)["stages"]["games"]["outs"]}


@pytest.mark.slow
@pytest.mark.thorough
def test_a_flow_in_text_adventures_ends_in_a_verdict_of_the_gate(tmp_path: Path) -> None:
    python = interpreter_with("textworld.lock", tmp_path / "venv")
    clone = make_project(tmp_path / "clone")
    (clone / "data/textworld").mkdir()
    for name in ("dvc.yaml", "params.yaml", ".gitignore"):
        shutil.copy(ROOT / "data/textworld" / name, clone / "data/textworld" / name)
    path = f"{python.parent}:{os.environ['PATH']}"
    around = {**shell(), "REWARDFLOW_HOME": str(tmp_path / "home"), "PATH": path}

    def typed(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(python), "-m", *words]
        return subprocess.run(command, cwd=clone, env=around, capture_output=True, text=True)

    made = typed("dvc", "repro", "--quiet", "data/textworld/dvc.yaml")
    assert made.returncode == 0, made.stdout + made.stderr
    lock, pinned = ((at / "data/textworld/dvc.lock").read_text() for at in (clone, ROOT))
    assert outs(lock) == outs(pinned), "the same seeds compile to the same bytes"
    short = ("--set", "schedule.rounds=4", "--set", "engine.name=transformers")
    ended = typed("flows.command_line", "run", "recipes/agents/textworld.yaml", *short)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "\nverdict " in ended.stdout and "Traceback" not in ended.stdout + ended.stderr
