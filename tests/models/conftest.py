"""Base models with a vision tower, for the tests of several packages."""

from pathlib import Path

import pytest

from models.text.base_images import FAMILIES


@pytest.fixture(scope="session", params=FAMILIES)
def vision_family(request: pytest.FixtureRequest) -> str:
    """Name of a family of base models with a vision tower."""
    return str(request.param)


@pytest.fixture(scope="session")
def vision_base(vision_family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a small base model of the family, with random weights."""
    from tests.support.vision_families import save_base

    return save_base(vision_family, tmp_path_factory.mktemp(vision_family) / "base")
