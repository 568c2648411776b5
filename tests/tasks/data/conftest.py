"""Fixtures of the tests of hub data: an empty state folder and cache, and a hub on loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from data_hub import TOKEN, DataHub, data_hub
from huggingface_hub import constants


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty state folder and an empty cache of the hub's client, without a connection."""
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataHub]:
    """Run a hub on loopback, and make it the hub of the client in this process."""
    with data_hub() as made:
        monkeypatch.setattr(constants, "ENDPOINT", made.address)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix("https://huggingface.co")
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", made.address + template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield made
