"""Fixtures that several tests of tasks share."""

import shutil
from pathlib import Path

import pytest
from small_repository import make_repository, mine, write_raw

from models.datasets.settings import DataSettings
from tasks.data.versions import DataVersion, current, prepare


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository of which each test gets a copy: nothing is prepared in it."""
    return make_repository(tmp_path_factory.mktemp("fresh") / "repository")


@pytest.fixture
def root(fresh: Path, tmp_path: Path) -> Path:
    """A repository with the project's own DVC files and code, and a small arithmetic."""
    return copied(fresh, tmp_path / "repository")


@pytest.fixture(scope="session")
def raw_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a user's file lies: one place for all tests, for a prepared repository names it."""
    return tmp_path_factory.mktemp("elsewhere") / "rows.jsonl"


@pytest.fixture
def raw(raw_place: Path) -> Path:
    """A user's file outside of the repository, written anew for each test."""
    for left in raw_place.parent.iterdir():
        left.unlink()
    return write_raw(raw_place, 60)


# ---------------------------------------- repositories in which data are prepared already


@pytest.fixture(scope="session")
def fresh_with_arithmetic(fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copied(fresh, tmp_path_factory.mktemp("arithmetic") / "repository")
    prepare(DataSettings(), folder, lambda line: None)
    return folder


@pytest.fixture
def made(fresh_with_arithmetic: Path, root: Path) -> DataVersion:
    """The built-in data, prepared in `root` and not committed."""
    shutil.rmtree(root)
    return current("arithmetic", copied(fresh_with_arithmetic, root))


@pytest.fixture(scope="session")
def fresh_with_mine(fresh: Path, raw_place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copied(fresh, tmp_path_factory.mktemp("mine") / "repository")
    prepare(mine(write_raw(raw_place, 60)), folder, lambda line: None)
    return folder


@pytest.fixture
def made_mine(fresh_with_mine: Path, root: Path, raw: Path) -> DataVersion:
    """A user's `raw`, prepared in `root` and not committed."""
    shutil.rmtree(root)
    return current("mine", copied(fresh_with_mine, root))


def copied(repository: Path, target: Path) -> Path:
    """A copy of a git and DVC repository, cache included; it shares no file with the first."""
    return shutil.copytree(repository, target, symlinks=True)
