"""State folders after `mv` or `cp -r`: runs and models are read at their new place, and new ones are written there."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from models.base.errors import UserError
from tasks.tracking import moved, records, registry, runs, store, tags

ROWS = [{"prompt": "1 + 1", "right": True}]


@pytest.fixture
def run(home: Path, policy_folder: Path) -> str:
    """Log a run with a table, register its model with a record, and return the run."""
    run = runs.open_flow_run("tiny", "night")
    records.log_table(run, "samples/first.json", ROWS)
    model = registry.log_model(run, policy_folder, "policy", "text-generation")
    registry.register("policy", model, {tags.REWARD_MODEL_VERSION: "reward/1"})
    runs.close_run(run)
    return run


def all_is_read(home: Path, run: str) -> None:
    import mlflow
    from mlflow.tracking._tracking_service.utils import _artifact_repos_cache

    _artifact_repos_cache.clear()  # another process would begin with an empty cache

    assert records.read_table(run, "samples/first.json") == ROWS
    folder = registry.fetch("models:/policy/1")
    assert folder.is_relative_to(home) and (folder / "model.safetensors").is_file()
    assert mlflow.artifacts.download_artifacts("models:/policy/1/model").startswith(str(home))
    assert registry.facts_of(registry.version_info("policy", 1))[tags.REWARD_MODEL_VERSION] == "reward/1"


def test_a_moved_state_folder_is_read_where_it_lies_and_goes_on_there(home: Path, run: str, tmp_path: Path):
    there = tmp_path / "other disk" / "état"
    there.parent.mkdir()
    home.rename(there)
    store.configure(there)
    all_is_read(there, run)
    later = runs.open_flow_run("tiny", "next night")
    records.log_table(later, "samples/first.json", ROWS)
    assert records.read_table(later, "samples/first.json") == ROWS
    assert not home.exists()
    assert str(home) not in json.dumps(addresses(there))
    assert moved.update_addresses(there) == 0


def test_a_copy_reads_and_writes_its_own_artifacts_and_leaves_the_original_alone(home: Path, run: str, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    before = addresses(home)
    store.open_for_reading(copy)
    all_is_read(copy, run)
    shutil.rmtree(home / "mlartifacts")
    all_is_read(copy, run)
    assert addresses(home) == before


def test_a_link_to_the_folder_is_no_move(home: Path, run: str, tmp_path: Path):
    (tmp_path / "link").symlink_to(home)
    before = addresses(home)
    store.configure(tmp_path / "link")
    assert addresses(home) == before and records.read_table(run, "samples/first.json") == ROWS


def test_where_the_addresses_cannot_be_changed_one_line_says_what_to_do(
    home: Path, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    there = home.rename(tmp_path / "there")
    monkeypatch.setattr(moved, "PATIENCE", 0.1)
    writer = sqlite3.connect(there / "mlflow.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")  # no other connection may write
    line = f"{there}: was moved from {home}, .* make the folder writable, or move it back"
    with pytest.raises(UserError, match=line) as refused:
        store.configure(there)
    assert "\n" not in str(refused.value)
    store.open_for_reading(there)  # the database can still be read
    assert registry.version_info("policy", 1).version == 1 and str(refused.value) in caplog.text
    writer.close()


def addresses(home: Path) -> list[object]:
    with sqlite3.connect(home / "mlflow.db") as database:
        return [
            database.execute(f"SELECT {column} FROM {table}").fetchall()
            for table, column in (("experiments", "artifact_location"), ("runs", "artifact_uri"))
        ]
