"""Tests of environments whose packages are extras: their own tests run with the real packages of their locks."""

import subprocess
from pathlib import Path

import pytest
from extra_environment import interpreter_with
from running import ROOT, shell


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", ["reasoning_gym", "textarena", "textworld"])
def test_the_environments_own_tests_pass_with_the_packages_of_its_lock(name: str, tmp_path: Path) -> None:
    python = interpreter_with(f"{name.replace('_', '-')}.lock", tmp_path / "venv")
    tests = f"tests/models/agents/environments/test_{name}.py"
    command = [str(python), "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", tests]
    ended = subprocess.run(command, cwd=ROOT, env=shell(), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 skipped" in ended.stdout, "only the test of what is said where the package is missing"
