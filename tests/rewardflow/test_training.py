"""The Python functions on a real project: a smoke run, the registry, generation, and a second run that reuses all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.new_project import create_project
from models.base.package_files import CODE

PROGRAM = """
import rewardflow

outcome = rewardflow.run("first", smoke=True)
assert outcome.version == 1 and outcome.decision == "kept" and not outcome.is_champion, outcome
assert outcome.difference.low <= outcome.difference.mean <= outcome.difference.high
assert outcome.metrics["eval/sampled_accuracy"] >= 0
frame = outcome.to_frame()
assert list(frame["name"]) == [step.name for step in outcome.steps] and not frame["reused"].any()
(version,) = rewardflow.versions()
assert version.number == 1 and version.decision == "kept" and "candidate" in version.aliases
policy = rewardflow.load(1)
texts = policy.generate(["2 + 3 =", "4 - 1 ="], max_tokens=8, temperature=1.0, samples=3)
assert [len(group) for group in texts] == [3, 3]
assert texts == policy.generate(["2 + 3 =", "4 - 1 ="], max_tokens=8, temperature=1.0, samples=3)
assert rewardflow.load(policy.folder).generate(["2 + 3 ="], max_tokens=8) == policy.generate(["2 + 3 ="], max_tokens=8)
assert "champion" in rewardflow.promote(1, why="a test").aliases
again = rewardflow.run(rewardflow.Recipe("first", extends="first"), smoke=True)
assert again.to_frame()["reused"].sum() >= len(frame) - 3
for call in (lambda: rewardflow.rollback(), lambda: rewardflow.load(7), lambda: rewardflow.run("frist")):
    try:
        call()
    except rewardflow.UserError as error:
        assert str(error) and "\\n" not in str(error)
    else:
        raise AssertionError("no error")
print("done")
"""


@pytest.mark.thorough
def test_run_registry_and_generation_from_python(tmp_path: Path) -> None:
    create_project(tmp_path / "demo")
    environment = {key: value for key, value in os.environ.items() if key != "REWARDFLOW_HOME"}
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path / "demo",
        env=environment | {"PYTHONPATH": str(CODE)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert finished.stdout.splitlines()[-1:] == ["done"], finished.stderr[-3000:]
