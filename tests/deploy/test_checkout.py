"""Tests of deploy/checkout, which prepares the working directory of flows in the head pod, on real repositories."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import DEPLOY, container_named, read_objects

IMAGE = {"flows/train.py": "first", "models/a.py": "first", "recipes/a.yaml": "first", "data/.gitignore": "/raw"}


def git(folder: Path, *arguments: str) -> str:
    """Run git with a name for author and committer. Return its output."""
    who = {f"GIT_{role}_{part}": "x@example.internal" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], env={**os.environ, **who}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(folder: Path, files: dict[str, str]) -> str:
    """Commit some files. Return the id of the commit."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", " ".join(files))
    return git(folder, "rev-parse", "HEAD")


def checkout(image: Path, work: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script as the pod does."""
    who = {f"GIT_{role}_{part}": "y@example.internal" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    found_first = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", str(DEPLOY / "checkout"), str(image), str(work)],
        env={**os.environ, **who, "PATH": found_first, **variables},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def image(tmp_path: Path) -> Path:
    folder = tmp_path / "image"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, IMAGE)
    return folder


def test_it_is_the_images_commit_and_stays_so(image: Path, tmp_path: Path) -> None:
    work = tmp_path / "state" / "checkout"
    work.parent.mkdir()
    (tmp_path / "state" / "checkout.new").mkdir()  # left by a start that was killed
    for _ in range(2):
        done = checkout(image, work)
        assert done.returncode == 0, done.stderr
        assert git(work, "rev-parse", "HEAD") == git(image, "rev-parse", "HEAD")
    assert (work / "flows/train.py").read_text() == "first"
    assert not (tmp_path / "state" / "checkout.new").exists()


def test_commits_of_data_stay_where_they_were_below_a_new_image(image: Path, tmp_path: Path) -> None:
    """Records of runs name these commits. A merge keeps them, and the code is that of the new image."""
    work = tmp_path / "checkout"
    assert checkout(image, work).returncode == 0
    data = commit(work, {"data/sources/mine/dvc.lock": "hash"})
    new = commit(image, {"flows/train.py": "second"})
    done = checkout(image, work)
    assert done.returncode == 0, done.stderr
    for kept in (data, new):
        git(work, "merge-base", "--is-ancestor", kept, "HEAD")
    assert (work / "flows/train.py").read_text() == "second"
    assert (work / "data/sources/mine/dvc.lock").read_text() == "hash"


@pytest.mark.parametrize("committed", [True, False])
def test_other_code_than_the_images_is_refused_by_name(image: Path, tmp_path: Path, committed: bool) -> None:
    work = tmp_path / "checkout"
    assert checkout(image, work).returncode == 0
    if committed:
        commit(work, {"models/a.py": "mine"})
    else:
        (work / "models/a.py").write_text("mine")
    done = checkout(image, work)
    assert done.returncode == 1
    assert done.stderr.strip() == f"checkout: {work} holds other code than the image: models/a.py"


def test_an_older_image_is_refused_as_long_as_the_code_is_newer(image: Path, tmp_path: Path) -> None:
    work = tmp_path / "checkout"
    old = git(image, "rev-parse", "HEAD")
    commit(image, {"flows/train.py": "second"})
    assert checkout(image, work).returncode == 0
    git(image, "checkout", "--quiet", old)
    done = checkout(image, work)
    assert (done.returncode, "flows/train.py" in done.stderr) == (1, True)
    git(work, "reset", "--quiet", "--hard", old)  # the remedy in docs/deploy.md
    assert checkout(image, work).returncode == 0


def test_what_cannot_be_merged_is_refused_and_left_as_it_was(image: Path, tmp_path: Path) -> None:
    work = tmp_path / "checkout"
    assert checkout(image, work).returncode == 0
    mine = commit(work, {"dvc.lock": "mine"})
    commit(image, {"dvc.lock": "theirs"})
    done = checkout(image, work)
    assert done.returncode == 1 and "cannot be merged with the image's commit" in done.stderr
    assert git(work, "rev-parse", "HEAD") == mine
    assert git(work, "status", "--porcelain") == ""


@pytest.mark.rotating(of=6)
def test_the_bucket_becomes_dvcs_remote_in_no_file_of_the_commit(image: Path, tmp_path: Path) -> None:
    commit(image, {".dvc/config": "[core]\n    remote = local\n", ".dvc/.gitignore": "/config.local\n"})
    work = tmp_path / "checkout"
    for _ in range(2):
        done = checkout(image, work, DATA_REMOTE="s3://bucket/data", AWS_ENDPOINT_URL="https://s3.example.internal")
        assert done.returncode == 0, done.stderr
    local = " ".join((work / ".dvc/config.local").read_text().split())
    assert "remote = bucket" in local and "url = s3://bucket/data" in local
    assert "endpointurl = https://s3.example.internal" in local
    assert git(work, "status", "--porcelain") == ""


def test_the_pod_calls_it_with_the_images_repository_and_the_folder_that_flows_start_in() -> None:
    objects = read_objects()
    shell, script, image, work = container_named(objects, "checkout")["command"]
    assert (shell, Path(script).relative_to(image)) == ("bash", Path("deploy/checkout"))
    assert f"WORKDIR {image}\n" in (DEPLOY.parent / "Dockerfile").read_text()
    assert container_named(objects, "prefect-worker")["workingDir"] == work
    assert shlex.quote(work) == work
