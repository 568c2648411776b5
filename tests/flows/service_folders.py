"""Folders for the services of a test: PostgreSQL's user may enter them, pytest's own are closed to others."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.services import postgres, service_set
from flows.services.place import ServiceFolder
from models.base.errors import UserError


@contextmanager
def service_folder() -> Iterator[Path]:
    """An empty folder; services that were started in `services` right in it, or one folder below, end with it. The test
    is skipped where there is no PostgreSQL."""
    try:
        postgres.program("initdb")
    except UserError as error:
        pytest.skip(str(error))
    with tempfile.TemporaryDirectory(prefix="rewardflow-services-") as folder:
        Path(folder).chmod(0o755)
        try:
            yield Path(folder)
        finally:
            for place in (*Path(folder).glob("services"), *Path(folder).glob("*/services")):
                service_set.stop(ServiceFolder(place))
