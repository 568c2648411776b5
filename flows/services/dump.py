"""Backup of a state folder's services: dumps of their databases from one moment, and the objects of the bucket.

A backup has no passwords and no keys: restored services get new ones.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from flows.services import postgres, service_set
from flows.services.place import ServiceFolder
from tasks.state.backup import Contents, manifest, read_backup

DATABASES, OBJECTS = "databases", "objects"
"""Names of the services' parts of a backup."""


def write(home: Path, dumps: Path) -> dict[str, Path]:
    """Dump the databases of the services in the state folder `home`; nothing if it has no services.

    Databases are dumped first: the objects that they point to were in the bucket before.

    Args:
        home: state folder with the services in its folder `services`; the database is started if it does not run.
        dumps: an empty folder.

    Returns:
        Parts of the backup by name, for `tasks.state.backup.write_backup`.

    Raises:
        UserError: PostgreSQL is not installed, or refuses.
    """
    place = _place(home)
    if not (postgres.folder(place) / "PG_VERSION").is_file():
        return {}
    with service_set.database(place):
        for name in postgres.DATABASES:
            postgres.dump(place, name, dumps / f"{name}.dump")
    return {DATABASES: dumps, OBJECTS: service_set.objects(place)}


def restore(file: Path, home: Path) -> Contents:
    """Restore a backup, with the services' databases and objects, into the empty state folder `home`; starts nothing.

    Raises:
        UserError: see `tasks.state.backup.read_backup`; PostgreSQL is not installed, or refuses. No file is left then.
    """
    if not manifest(file).holds(DATABASES):
        return read_backup(file, home)
    postgres.program("postgres")
    with tempfile.TemporaryDirectory(prefix="rewardflow-dump-") as dumps:
        folder, place = Path(dumps) / DATABASES, _place(home)
        contents = read_backup(file, home, {DATABASES: folder, OBJECTS: service_set.objects(place)})
        try:
            with service_set.database(place):
                for name in postgres.DATABASES:
                    postgres.restore(place, name, folder / f"{name}.dump")
        except BaseException:
            shutil.rmtree(home)
            raise
    return contents


def _place(home: Path) -> ServiceFolder:
    return ServiceFolder(home / "services")
