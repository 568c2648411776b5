"""Fixtures that several tests of tasks share."""

import pytest
from small_repository import make_repository, write_raw


@pytest.fixture
def root(tmp_path):
    """A repository with the project's own DVC files and code, and a small arithmetic."""
    return make_repository(tmp_path / "repository")


@pytest.fixture
def raw(tmp_path):
    """A user's file outside of the repository."""
    return write_raw(tmp_path / "elsewhere/rows.jsonl", 60)
