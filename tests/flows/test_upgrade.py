"""Databases of earlier versions of MLflow and Prefect are refused in one line and upgraded as the guide describes."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from running import ROOT, ask, end, start_pair, type_in
from service_folders import service_folder

from flows.services import postgres, service_set
from flows.services.place import ServiceFolder
from models.base.errors import UserError
from tasks.tracking import aliases, audit, records, registry, runs, schema, store, tags
from tests.support.guide import lines

BEFORE = "c3d9e7f1a2b4"
"""Revision of MLflow's tables before the last six migrations, one of which creates new tables for traces."""
PREFECTS = "ix_event_resources__occurred"
"""Index that the newest migration of Prefect's database creates."""
GUIDE = ROOT / "docs" / "operations.md"
NAME = "upgraded-policy"


def older(home: Path) -> None:
    """Downgrade the tables of the state folder to an earlier revision with MLflow's own migrations."""
    older_at(f"sqlite:///{home / 'mlflow.db'}")


def older_at(address: str, **more: str) -> None:
    code = (
        "import sys; from alembic import command; from mlflow.store.db.utils import _get_alembic_config as config; "
        "command.downgrade(config(sys.argv[1]), sys.argv[2])"
    )
    asked, environment = [sys.executable, "-c", code, address, BEFORE], {**os.environ, **more}
    subprocess.run(asked, check=True, capture_output=True, timeout=300, env=environment)


def stamp(home: Path, revision: str) -> None:
    """Write a revision into the tables, without a migration."""
    with closing(sqlite3.connect(home / "mlflow.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = ?", [revision])


def test_the_newest_revision_is_read_off_as_mlflow_itself_computes_it(empty_database: Path) -> None:
    there = schema.schema_of(empty_database.parent)
    assert there is not None and there.current and there.known


def test_where_there_is_no_database_of_mlflows_there_is_no_schema(tmp_path: Path) -> None:
    assert schema.schema_of(tmp_path) is None
    (tmp_path / "mlflow.db").write_text("no database")
    assert schema.schema_of(tmp_path) is None


@pytest.mark.parametrize(("revision", "words"), [(BEFORE, r"older MLflow .*mlflow db upgrade"), ("f" * 12, "newer")])
def test_tables_of_another_version_are_refused_before_mlflow_touches_them(
    empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revision: str, words: str
) -> None:
    monkeypatch.setattr(schema, "STEP_SECONDS", 0.01)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    database = tmp_path / "mlflow.db"
    database.write_bytes(empty_database.read_bytes())
    stamp(tmp_path, revision)
    before = database.read_bytes()
    for opening in (store.configure, store.open_for_reading):
        with pytest.raises(UserError, match=words):
            opening(tmp_path)
    assert database.read_bytes() == before


def filled() -> str:
    """Make a run with a metric and a table, and two promoted versions of its model; return the run's id."""
    run = runs.open_flow_run("upgraded", "before")
    records.log_metrics(run, {"reward/mean": 0.5})
    records.log_table(run, "samples/first.json", [{"prompt": "1 + 1", "right": True}])
    for number in (1, 2):
        model = store.client().create_logged_model("1", name="policy", source_run_id=run)
        store.client().finalize_logged_model(model.model_id, "READY")
        registry.register(NAME, model.model_id, {tags.RECIPE: f"recipe {number}"})
        aliases.promote(NAME, number, by="ann", why=f"read, version {number}")
    runs.close_run(run)
    return run


def state_of(run: str) -> list[Any]:
    """Return what the store records about that run and its model."""
    kept = store.client().get_run(run)
    versions = registry.versions(NAME)
    return [
        (kept.info.status, kept.info.run_name, kept.data.metrics, kept.data.tags),
        records.read_table(run, "samples/first.json"),
        [(it.version, sorted(it.aliases), registry.facts_of(it)) for it in versions],
        [audit.line(entry) for entry in audit.entries(NAME)],
        audit.broken(NAME),
        aliases.history(NAME),
    ]


def indices(database: Path) -> set[str]:
    """Return the names of a database's indices."""
    with closing(sqlite3.connect(database)) as reading:
        return {name for (name,) in reading.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}


@pytest.mark.thorough
@pytest.mark.slow
def test_what_an_older_version_wrote_is_whole_after_the_upgrade_of_the_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The locked versions create both databases and downgrade them; the documented commands upgrade them again."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    home, database = tmp_path / "home", tmp_path / "home" / "prefect" / "prefect.db"
    store.configure(home)
    run = filled()
    before = state_of(run)
    assert len(before[3]) == 2 and before[4] == []
    pair = start_pair(home)
    ask(f"{pair.prefect}/api/v2/concurrency_limits/", {"name": "kept", "limit": 3})
    end(pair.process)
    older(home)
    down = "prefect server database downgrade --yes"
    assert type_in([down], ROOT, PREFECT_HOME=str(home / "prefect")).returncode == 0
    assert PREFECTS not in indices(database)

    at_home = {"REWARDFLOW_HOME": str(home)}
    refused = type_in(["rewardflow models"], ROOT, **at_home)
    assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1
    assert f"mlflow db upgrade sqlite:///{home}/mlflow.db" in refused.stderr
    seen = type_in(["rewardflow doctor"], ROOT, **at_home)
    assert seen.returncode == 1 and "BAD  Tracking store" in seen.stdout and "older MLflow" in seen.stdout

    typed = [line.text for line in lines(GUIDE, "Upgrade") if line.program not in ("git", "make")]
    stop, backup, mlflow, prefect, doctor, restore, *_ = typed
    assert type_in([stop], ROOT, **at_home).returncode == 0
    kept = tmp_path / "before.tar"
    assert type_in([backup.replace("/backups/before.tar", str(kept))], ROOT, **at_home).returncode == 0
    ended = type_in([mlflow, prefect], ROOT, **at_home)
    assert ended.returncode == 0, ended.stderr
    assert PREFECTS in indices(database)
    assert "ok   Tracking store" in type_in([doctor], ROOT, **at_home).stdout
    assert state_of(run) == before
    pair = start_pair(home)
    limit = ask(f"{pair.prefect}/api/v2/concurrency_limits/kept")
    end(pair.process)
    assert limit["limit"] == 3

    # The backup, when restored, has the tables of the earlier version.
    back = tmp_path / "back"
    restore = restore.replace("/backups/before.tar", str(kept)).replace("/srv/restored", str(back))
    assert type_in([restore], ROOT).returncode == 0
    there = schema.schema_of(back)
    assert there is not None and there.there == BEFORE
    assert PREFECTS not in indices(back / "prefect" / "prefect.db")


@pytest.mark.thorough
@pytest.mark.slow
def test_services_of_an_older_version_do_not_start_before_the_upgrade_of_the_guide() -> None:
    """MLflow's server would migrate the tables by itself, so they are checked before it starts."""
    with service_folder() as folder:
        place = ServiceFolder(folder / "services")
        service_set.start(place)
        address = place.address("mlflow")
        ask(f"{address}/api/2.0/mlflow/experiments/create", {"name": "before"})
        service_set.stop(place)
        with service_set.database(place):
            older_at(place.database_uri("psycopg2", "mlflow"), PGPASSFILE=str(place.password_file))

        at_home = {"REWARDFLOW_HOME": str(folder)}
        refused = type_in(["rewardflow services start"], ROOT, **at_home)
        assert refused.returncode == 1
        last = refused.stderr.strip().splitlines()[-1]
        assert last.startswith(f"error: database mlflow of {place.folder}: made by an older MLflow (tables {BEFORE}, ")
        assert "`rewardflow services upgrade`" in last and not any(service_set.state(place).values())
        with service_set.database(place):
            assert postgres.revision(place, "mlflow") == BEFORE

        typed = [line.text for line in lines(GUIDE, "Upgrade") if "services" in line.text]
        ended = type_in(typed, ROOT, **at_home)
        try:
            assert ended.returncode == 0, ended.stderr
            assert f"mlflow: tables {BEFORE} are " in ended.stdout and "prefect: tables " in ended.stdout
            named = ask(f"{address}/api/2.0/mlflow/experiments/get-by-name?experiment_name=before")
            assert named["experiment"]["name"] == "before"
            refused = type_in(["rewardflow services upgrade"], ROOT, **at_home)
            assert refused.returncode == 1 and "mlflow and prefect running in" in refused.stderr
        finally:
            service_set.stop(place)
