"""What the tests of flows share: one pair of real servers for the whole session."""

from collections.abc import Iterator

import pytest
from running import Pair, end, start_pair


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A running MLflow and Prefect server over a state folder of their own."""
    pair = start_pair(tmp_path_factory.mktemp("home"))
    yield pair
    end(pair.process)
