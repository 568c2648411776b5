"""Fixtures that several tests of tasks share."""

import shutil
from pathlib import Path

import pytest
from small_repository import make_repository, mine, write_raw

from models.datasets.settings import DataSettings
from tasks.data.versions import DataVersion, current, prepare


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the repository that each test gets a copy of. It contains no prepared data."""
    return make_repository(tmp_path_factory.mktemp("fresh") / "repository")


@pytest.fixture
def root(fresh: Path, tmp_path: Path) -> Path:
    """Make a repository with the project's own DVC files and code, and a small data set `arithmetic`."""
    return copied(fresh, tmp_path / "repository")


@pytest.fixture(scope="session")
def raw_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a user's file. All tests use the same path, because a prepared repository contains it."""
    return tmp_path_factory.mktemp("elsewhere") / "rows.jsonl"


@pytest.fixture
def raw(raw_place: Path) -> Path:
    """Write a user's file outside of the repository, for each test again."""
    for left in raw_place.parent.iterdir():
        left.unlink()
    return write_raw(raw_place, 60)


# ---------------------------------------- repositories with prepared data


@pytest.fixture(scope="session")
def fresh_with_arithmetic(fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copied(fresh, tmp_path_factory.mktemp("arithmetic") / "repository")
    prepare(DataSettings(), folder, lambda line: None)
    return folder


@pytest.fixture
def made(fresh_with_arithmetic: Path, root: Path) -> DataVersion:
    """Return the built-in data, prepared in `root` and not committed."""
    shutil.rmtree(root)
    return current("arithmetic", copied(fresh_with_arithmetic, root))


@pytest.fixture(scope="session")
def fresh_with_mine(fresh: Path, raw_place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copied(fresh, tmp_path_factory.mktemp("mine") / "repository")
    prepare(mine(write_raw(raw_place, 60)), folder, lambda line: None)
    return folder


@pytest.fixture
def made_mine(fresh_with_mine: Path, root: Path, raw: Path) -> DataVersion:
    """Return the data of the user's file `raw`, prepared in `root` and not committed."""
    shutil.rmtree(root)
    return current("mine", copied(fresh_with_mine, root))


def copied(repository: Path, target: Path) -> Path:
    """Copy a git and DVC repository with its cache. The copy shares no file with the original."""
    return shutil.copytree(repository, target, symlinks=True)
