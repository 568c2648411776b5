"""Folders for the services of a test. PostgreSQL's user can enter them; pytest's own folders are closed to it."""

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
    """Make an empty folder. At its end, stop the services in `services` and in `services` of each folder below it.

    Skip the test if PostgreSQL is not installed.
    """
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
