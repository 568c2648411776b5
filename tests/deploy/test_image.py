"""Tests of the Dockerfile: the image contains one commit, installed by `make install`.

The image is not built. The tests read its steps, and run those that need no container daemon.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from faults import own_version
from manifests import ROOT, Object, pods, read_objects

STEPS = [
    " ".join(step.split())
    for step in re.sub(
        r"\\\n", " ", re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    ).splitlines()
    if step.strip()
]
"""The Dockerfile's instructions in order, each on one line."""


def after(instruction: str) -> list[str]:
    """Return the arguments of an instruction, one entry per occurrence."""
    return [step.removeprefix(f"{instruction} ") for step in STEPS if step.startswith(f"{instruction} ")]


def test_it_is_built_on_the_python_that_the_project_is_installed_with() -> None:
    (base,) = after("FROM")
    (wanted,) = set(re.findall(r"^: \"\$\{PYTHON:=(python[\d.]+)\}", (ROOT / ".ci/install").read_text(), flags=re.M))
    assert base.split("-")[0] == wanted.replace("python", "python:")
    assert f"PYTHON={wanted}" in " ".join(after("RUN"))


@pytest.mark.parametrize(("cuda", "lock"), [("0", "cpu.lock"), ("1", "cuda.lock")])
def test_what_is_installed_is_what_make_install_installs(cuda: str, lock: str) -> None:
    """One step installs: it calls make, which runs only .ci/install, with the lock that the argument CUDA selects."""
    assert after("ARG") == ["CUDA=0"]
    (step,) = [step for step in after("RUN") if "pip" in step.lower() or "make install" in step]
    command = step[step.index("make install") :].replace("${CUDA}", cuda).split()
    # without the variables of a make that runs these tests: they would add to the output
    alone = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    asked = subprocess.run(
        [command[0], "--dry-run", "--always-make", *command[1:]],
        cwd=ROOT,
        env=alone,
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout.split() == ["PYTHON='python3.11'", f"LOCK='{lock}'", "bash", ".ci/install"]


def test_nothing_but_the_history_gets_in_and_no_login_of_it(tmp_path: Path) -> None:
    """The build gets .git without files that may contain a login or run as hooks. Its clone is the commit."""
    assert after("COPY") == [".git /tmp/repository/.git"] and not after("ADD")
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[:2] == ["*", "!.git"]
    left_out = {rule.removeprefix(".git/") for rule in rules[2:]}
    assert {"config", "hooks", "logs"} <= left_out
    repository = tmp_path / "repository"
    git = subprocess.run(
        ["git", "rev-parse", "--absolute-git-dir"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    shutil.copytree(git, repository / ".git", ignore=lambda folder, _: left_out if folder == git else set())
    (step,) = [step for step in after("RUN") if step.startswith("git clone")]
    command = step.replace("/tmp/repository", str(repository)).replace("/opt/rewardflow", str(tmp_path / "opt"))
    subprocess.run(["sh", "-c", command], check=True)

    def said(folder: Path, *arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout

    assert not repository.exists()
    assert said(tmp_path / "opt", "rev-parse", "HEAD") == said(ROOT, "rev-parse", "HEAD")
    assert said(tmp_path / "opt", "status", "--porcelain", "--ignored") == ""


def test_it_runs_as_the_user_that_the_manifests_name_and_finds_the_commands() -> None:
    (user,) = after("USER")
    (made,) = [step for step in after("RUN") if "useradd" in step]
    assert f"--uid {user} " in made and user != "0"
    ours: list[Object] = [
        pod.spec["securityContext"]
        for pod in pods(read_objects())
        if any(box["image"].startswith("rewardflow:") for box in pod.containers)
    ]
    assert {str(context["runAsUser"]) for context in ours} == {user}
    (home,) = after("WORKDIR")
    (variables,) = after("ENV")
    assert f"PATH={home}/.venv/bin:$PATH" in variables.split()
    assert "-m venv .venv" in (ROOT / ".ci/install").read_text()


def test_it_is_called_what_the_guide_builds_and_the_manifests_run() -> None:
    tags = {box["image"] for pod in pods(read_objects()) for box in pod.containers} - {"postgres:17"}
    assert tags == {f"rewardflow:{own_version()}-{kind}" for kind in ("cpu", "cuda")}
    for file in ("Dockerfile", "docs/deploy.md"):
        assert set(re.findall(r"--tag \S+/(rewardflow:\S+)", (ROOT / file).read_text())) == tags
