"""Fixtures for tests of agent programs: a policy, and an engine that records its requests."""

from pathlib import Path

import pytest

from models.engines.engine import EngineSettings
from tests.support.tiny_episodes import ENDING, Listening
from tests.support.tiny_loops import save_start


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def engine(start: Path) -> Listening:
    return Listening(start, EngineSettings(precision="float32"), end=ENDING.ends)
