"""A user's files are prepared anew where the code that reads them changes: it must be there to be hashed."""

from pathlib import Path

import models
from tasks.data_sources import READING_CODE


def test_every_module_that_reads_a_users_files_is_there() -> None:
    folder = Path(models.__path__[0]) / "datasets"
    assert [module for module in READING_CODE if not (folder / f"{module}.py").is_file()] == []
