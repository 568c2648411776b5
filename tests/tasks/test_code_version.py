"""Code version: a run's code is pinned only if the commit contains all of it; other files are reported."""

import os
from pathlib import Path

import pytest
from small_repository import git

from models.base.package_files import CODE
from tasks.host.code_version import NO_COMMIT, code_version, running_version


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for file in ("models/parts/objective/grpo.py", "recipes/grpo.yaml", "data/sources/mine/dvc.yaml", "README.md"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("as committed\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "a state")
    return tmp_path


def test_a_checkout_as_committed_is_its_commit(checkout: Path) -> None:
    version = code_version(checkout)
    assert (version.name, version.unpinned) == (git(checkout, "rev-parse", "HEAD"), "")


@pytest.mark.parametrize("file", ["models/parts/objective/mine.py", "recipes/mine.yaml", "flows/x.py", "tasks/x/y.py"])
def test_a_new_part_or_recipe_that_no_commit_holds_shows(checkout: Path, file: str) -> None:
    (checkout / file).parent.mkdir(parents=True, exist_ok=True)
    (checkout / file).write_text("new\n")
    version = code_version(checkout)
    assert version.changed == (file,)
    assert version.name.endswith("-dirty")
    assert file in version.unpinned and version.commit[:8] in version.unpinned


def test_an_edited_and_a_deleted_file_show(checkout: Path) -> None:
    (checkout / "models/parts/objective/grpo.py").write_text("edited\n")
    (checkout / "recipes/grpo.yaml").unlink()
    assert code_version(checkout).changed == ("models/parts/objective/grpo.py", "recipes/grpo.yaml")


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


def test_a_repository_without_a_commit_is_not_called_no_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    assert code_version(tmp_path).unpinned == (
        "the code is in no commit (no commit was made in the git repository yet)"
    )


def test_a_checkout_of_another_owner_says_so_in_gits_words_and_what_to_do(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    version = code_version(checkout)
    assert version.name == NO_COMMIT
    assert version.unpinned == (
        f"the code is in no commit (git refuses it: detected dubious ownership in repository at '{checkout}'; "
        f"if you trust it: git config --global --add safe.directory {checkout})"
    )


def test_a_repository_that_git_cannot_read_is_not_called_no_repository(checkout: Path) -> None:
    (checkout / ".git/config").write_text("[core\n")
    assert "git refuses it: bad config line 1" in code_version(checkout).unpinned


def test_a_git_status_that_fails_does_not_count_as_clean(checkout: Path) -> None:
    (checkout / "models/parts/objective/grpo.py").write_text("edited\n")
    (checkout / ".git/index").write_bytes(b"no index")
    version = code_version(checkout)
    assert version.name.endswith("-dirty")
    assert "git status" in version.unpinned and "index" in version.unpinned


def test_a_file_whose_name_is_not_utf_8_shows_and_stops_nothing(checkout: Path) -> None:
    with open(os.fsencode(checkout) + b"/models/caf\xe9\n.py", "wb") as file:
        file.write(b"new\n")
    version = code_version(checkout)
    assert version.changed == (r"models/caf\xe9\n.py",)
    version.unpinned.encode()


# ---------------------------------------- code and recipe outside of the checkout


@pytest.fixture
def other(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make another clone of the checkout, at the same commit."""
    folder = tmp_path_factory.mktemp("other") / "clone"
    git(checkout, "clone", "--quiet", str(checkout), str(folder))
    return folder


def test_code_of_another_clone_is_pinned_only_where_the_commit_holds_it_to_the_byte(
    checkout: Path, other: Path
) -> None:
    assert running_version(checkout, package=other).unpinned == "", "the very same code, elsewhere"
    (other / "models/parts/objective/grpo.py").write_text("edited there\n")
    version = running_version(checkout, package=other)
    assert version.name.endswith("-dirty")
    assert str(other) in version.unpinned and "models/parts/objective/grpo.py" in version.unpinned
    assert running_version(checkout, package=checkout).unpinned == ""


@pytest.mark.parametrize("change", ["new", "gone"])
def test_a_part_that_only_one_of_the_two_clones_has_shows(checkout: Path, other: Path, change: str) -> None:
    file = other / "models/parts/objective/grpo.py"
    if change == "gone":
        file.unlink()
    else:
        file = file.with_name("mine.py")
        file.write_text("new\n")
    assert file.name in running_version(checkout, package=other).unpinned


def test_the_code_of_this_very_test_is_not_that_of_a_repository_without_it(checkout: Path) -> None:
    assert str(CODE) in running_version(checkout).unpinned


def test_a_recipe_is_pinned_only_where_the_commit_holds_it(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def unpinned(recipe: Path) -> str:
        return running_version(checkout, recipe, package=checkout).unpinned

    outside = tmp_path_factory.mktemp("outside") / "x.yaml"
    for file in (outside, checkout / "x.yaml"):
        file.write_text("extends: grpo\n")
        assert str(file) in unpinned(file)
    git(checkout, "add", "x.yaml")
    assert "x.yaml" in unpinned(checkout / "x.yaml"), "staged, in no commit"
    git(checkout, "commit", "--quiet", "--message", "a recipe")
    assert unpinned(checkout / "x.yaml") == unpinned(checkout / "recipes/grpo.yaml") == ""
    (checkout / "x.yaml").write_text("extends: grpo\nseed: 1\n")
    assert "x.yaml" in unpinned(checkout / "x.yaml"), "edited since"
    (checkout / "recipes/grpo.yaml").write_text("seed: 1\n")
    assert unpinned(checkout / "recipes/grpo.yaml").count("grpo.yaml") == 1, "told once"


def test_a_reward_of_ones_own_is_pinned_only_where_the_commit_holds_it(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def unpinned(reward: Path) -> str:
        return running_version(checkout, checkout / "recipes/grpo.yaml", given=[reward], package=checkout).unpinned

    outside, inside = tmp_path_factory.mktemp("outside") / "mine.py", checkout / "mine.py"
    for file in (outside, inside):
        file.write_text("def reward(completions): ...\n")
    assert f"the file {outside} lies outside of the repository" in unpinned(outside)
    assert f"does not hold the file {inside} as it is" in unpinned(inside)
    git(checkout, "add", "mine.py")
    git(checkout, "commit", "--quiet", "--message", "a reward")
    assert unpinned(inside) == ""
    inside.write_text("def reward(answers): ...\n")
    assert "mine.py" in unpinned(inside)
