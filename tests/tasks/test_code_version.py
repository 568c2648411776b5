"""A run's commit says what it ran only where the commit holds all of it: what lies in no commit counts too."""

from pathlib import Path

import pytest
from small_repository import git

from tasks.code_version import NO_COMMIT, code_version


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for file in ("models/objectives/grpo.py", "recipes/grpo.yaml", "data/sources/mine/dvc.yaml", "README.md"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("as committed\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "a state")
    return tmp_path


def test_a_checkout_as_committed_is_its_commit(checkout: Path) -> None:
    version = code_version(checkout)
    assert (version.name, version.unpinned) == (git(checkout, "rev-parse", "HEAD"), "")


@pytest.mark.parametrize("file", ["models/objectives/mine.py", "recipes/mine.yaml", "flows/x.py", "tasks/x/y.py"])
def test_a_new_part_or_recipe_that_no_commit_holds_shows(checkout: Path, file: str) -> None:
    (checkout / file).parent.mkdir(parents=True, exist_ok=True)
    (checkout / file).write_text("new\n")
    version = code_version(checkout)
    assert version.changed == (file,)
    assert version.name.endswith("-dirty")
    assert file in version.unpinned and version.commit[:8] in version.unpinned


def test_an_edited_and_a_deleted_file_show(checkout: Path) -> None:
    (checkout / "models/objectives/grpo.py").write_text("edited\n")
    (checkout / "recipes/grpo.yaml").unlink()
    assert code_version(checkout).changed == ("models/objectives/grpo.py", "recipes/grpo.yaml")


def test_pages_data_and_what_git_ignores_make_no_other_code(checkout: Path) -> None:
    (checkout / ".gitignore").write_text("__pycache__/\n")
    for file in ("README.md", "notes.txt", "data/sources/mine/params.yaml", "models/__pycache__/grpo.pyc"):
        (checkout / file).parent.mkdir(parents=True, exist_ok=True)
        (checkout / file).write_text("other\n")
    assert code_version(checkout).unpinned == ""


def test_outside_of_a_repository_there_is_no_commit_and_that_is_said(tmp_path: Path) -> None:
    version = code_version(tmp_path)
    assert version.name == NO_COMMIT
    assert "no git repository" in version.unpinned
