"""Tests of backup and restore: a backup has no secrets, and either all of it is restored or nothing."""

import hashlib
import json
import os
import re
import shutil
import sqlite3
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from project import Project, Ran, rewardflow
from running import shell
from service_folders import service_folder

from flows.command_line import main
from flows.servers.server_record import running_servers
from flows.services import service_set
from flows.services.place import OVERRULING, ServiceFolder
from models.base.errors import UserError
from tasks.state.backup import MANIFEST, manifest, read_backup, write_backup
from tasks.tracking import aliases, registry, store

NAME = "tiny-policy"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make a state folder with a database, results and temporary files."""
    folder = tmp_path / "home"
    for name, text in {
        "id": "0" * 32, "store/evaluate/a1/result.json": "{}", "outbox/1.json": "{}", "registry.lock": "",
        "run.lock": "17", "servers.json": "{}", "queue/7-17": "", "services/secrets/password": "hush",
        "store/.half.17.part/x": "half",
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE numbers (number INTEGER)")
        database.execute("INSERT INTO numbers VALUES (1)")
    return folder


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def numbers(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "mlflow.db")) as database:
        return [number for (number,) in database.execute("SELECT number FROM numbers")]


def test_all_but_what_is_of_the_moment_comes_back_and_secrets_are_in_no_backup(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.tar"
    write_backup(file, home)
    assert file.stat().st_mode & 0o777 == 0o600 and b"hush" not in file.read_bytes()
    read_backup(file, tmp_path / "again")
    kept = {"id", "store/evaluate/a1/result.json", "outbox/1.json", "mlflow.db"}
    assert names(tmp_path / "again") == kept and numbers(tmp_path / "again") == [1]
    for name in kept - {"mlflow.db"}:
        assert (tmp_path / "again" / name).read_bytes() == (home / name).read_bytes()


def test_addresses_of_receivers_that_prefect_keeps_are_in_no_backup_and_all_else_of_it_is(
    home: Path, tmp_path: Path
) -> None:
    """Prefect's database contains the key to the addresses, and the file of SQLite keeps deleted rows."""
    (home / "prefect").mkdir()
    with closing(sqlite3.connect(home / "prefect" / "prefect.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE block_document (name TEXT, data TEXT)")
        kept = [("mine", "kept-1"), ("rewardflow-notify-of-mine", "kept-2")]
        for name, data in [("rewardflow-notify-1", "address-1"), ("rewardflow-notify-12", "address-12"), *kept]:
            database.execute("INSERT INTO block_document VALUES (?, ?)", (name, data * 500))
        database.commit()
        database.execute("DELETE FROM block_document WHERE name = 'rewardflow-notify-1'")
        database.commit()
        write_backup(tmp_path / "one.tar", home)
        assert len(database.execute("SELECT name FROM block_document").fetchall()) == 3
    assert b"address-1" not in (tmp_path / "one.tar").read_bytes()
    read_backup(tmp_path / "one.tar", tmp_path / "again")
    with closing(sqlite3.connect(tmp_path / "again" / "prefect" / "prefect.db")) as database:
        there = database.execute("SELECT name, data FROM block_document ORDER BY name").fetchall()
    assert there == [(name, data * 500) for name, data in kept]


def test_a_database_that_is_written_to_meanwhile_is_kept_as_it_stood_at_one_moment(home: Path, tmp_path: Path) -> None:
    """A writer adds two rows at a time: a copy of the file could have only one of them, or be damaged."""
    stop = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(home / "mlflow.db", timeout=30)) as database:
            number = 2
            while not stop.is_set():
                with database:
                    database.executemany("INSERT INTO numbers VALUES (?)", [(number,), (number + 1,)])
                number += 2

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for turn in range(5):
            write_backup(tmp_path / f"{turn}.tar", home)
    finally:
        stop.set()
        writer.join()
    seen = []
    for turn in range(5):
        read_backup(tmp_path / f"{turn}.tar", tmp_path / f"again{turn}")
        seen.append(numbers(tmp_path / f"again{turn}"))
        assert seen[-1] == list(range(1, len(seen[-1]) + 1)) and len(seen[-1]) % 2 == 1
    assert len(seen[-1]) > len(seen[0])


@pytest.mark.parametrize("where", ["content", "end", "text"])
def test_a_damaged_backup_restores_nothing(home: Path, tmp_path: Path, where: str) -> None:
    file = tmp_path / "one.tar"
    write_backup(file, home)
    content = bytearray(file.read_bytes())
    if where == "content":
        content[content.index(b"0" * 32)] ^= 1
    file.write_bytes(content[:-12_000] if where == "end" else b"no tar file" if where == "text" else content)
    with pytest.raises(UserError, match=r"one\.tar: (state/id is not what was|.* cut off|is not a backup|.*damaged)"):
        read_backup(file, tmp_path / "again")
    assert not (tmp_path / "again").exists() and not list(tmp_path.glob(".*"))


def test_a_backup_that_was_changed_with_its_hashes_is_refused_where_the_one_of_the_file_is_given(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REWARDFLOW_HOME", str(home))
    (home / "services" / "secrets" / "password").unlink()

    def ask(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["rewardflow", *arguments])
        try:
            main()
        except SystemExit as ended:
            said = capsys.readouterr()
            return int(ended.code or 0), said.out + said.err
        raise AssertionError("a command ends by sys.exit")

    code, said = ask("backup", str(tmp_path / "one.tar"))
    (noted,) = re.findall(r"^SHA-256 ([0-9a-f]{64});", said, flags=re.MULTILINE)
    assert code == 0 and noted == hashlib.sha256((tmp_path / "one.tar").read_bytes()).hexdigest()
    (home / "id").write_text("1" * 32)
    write_backup(tmp_path / "changed.tar", home)  # its own hashes are right
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path / "again"))
    code, said = ask("restore", str(tmp_path / "changed.tar"), "--sha256", noted)
    assert code == 1 and f"not {noted}: it was changed; nothing was restored" in said
    code, said = ask("restore", str(tmp_path / "one.tar"), "--sha256", noted[:-1])
    assert code == 1 and said == "error: --sha256 takes the 64 hexadecimal digits that `rewardflow backup` printed\n"
    assert not (tmp_path / "again").exists()
    code, said = ask("restore", str(tmp_path / "one.tar"), "--sha256", noted.upper())
    assert code == 0 and (tmp_path / "again" / "id").read_text() == "0" * 32, said


@pytest.mark.parametrize("planted", ["../evil", "/tmp/evil-of-a-backup", "link"])
def test_a_planted_member_restores_nothing_and_writes_nowhere(home: Path, tmp_path: Path, planted: str) -> None:
    file = tmp_path / "one.tar"
    write_backup(file, home)
    with tarfile.open(file, "a") as tar:
        member = tarfile.TarInfo(planted if planted != "link" else "state/link")
        if planted == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(member)
    with pytest.raises(UserError, match="is not a plain file inside the folder; nothing was restored"):
        read_backup(file, tmp_path / "again")
    assert not (tmp_path / "again").exists() and not (tmp_path / "evil").exists() and not Path(planted).exists()


def test_nothing_is_written_over(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.tar"
    write_backup(file, home)
    with pytest.raises(UserError, match=r"one\.tar exists; a backup is never written over another"):
        write_backup(file, home)
    with pytest.raises(UserError, match="is in the state folder, and would be in the next backup"):
        write_backup(home / "one.tar", home)
    with pytest.raises(UserError, match="is not empty; restore into a new folder"):
        read_backup(file, home)
    with pytest.raises(UserError, match="no state folder, nothing to back up"):
        write_backup(tmp_path / "two.tar", tmp_path / "nowhere")
    assert names(tmp_path) == {"one.tar"} | {f"home/{name}" for name in names(home)}


def test_every_file_stands_in_the_manifest(home: Path, tmp_path: Path) -> None:
    write_backup(tmp_path / "one.tar", home)
    with tarfile.open(tmp_path / "one.tar") as tar:
        assert set(tar.getnames()) == {*manifest(tmp_path / "one.tar").files, MANIFEST}
        said = json.loads(tar.extractfile(MANIFEST).read())  # type: ignore[union-attr]
    assert set(said["packages"]) == {"rewardflow", "mlflow", "prefect"}


@pytest.mark.thorough
def test_a_restored_folder_shows_the_same_and_rolls_back_with_the_old_one_gone(
    project: Project, first: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, file = project.copy_home(tmp_path / "old"), tmp_path / "new", tmp_path / "night.tar"
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(old)
    version = store.client().get_model_version(NAME, "1")
    store.client().create_model_version(NAME, version.source, version.run_id, model_id=version.model_id)
    for number in (1, 2):
        aliases.promote(NAME, number)
    looks = (["models"], ["lineage", "2", "--model", NAME], ["show", first.run_id], ["audit"])
    before = [project.ask(*look, home=old) for look in looks]
    assert [code for code, _, _ in before] == [0] * len(looks), before
    code, out, _ = project.ask("backup", str(file), home=old)
    assert code == 0 and "files" in out
    shutil.rmtree(old)
    code, out, _ = project.ask("restore", str(file), home=new)
    assert code == 0 and "all hashes are right" in out
    for look, (_, said, _) in zip(looks, before, strict=True):
        # in a separate process: this one keeps the places of the models in the old folder
        shown = rewardflow(project.folder, *look, **project.settings(new)).stdout
        assert shown.splitlines() == said.replace(str(old), str(new)).splitlines(), look
    assert project.ask("rollback", "--model", NAME, home=new)[0] == 0
    store.configure(new)
    champion = registry.champion(NAME)
    assert champion is not None and champion.version == 1
    folder = store.client().get_model_version_download_uri(NAME, "1")
    assert str(new) in folder and str(old) not in folder


# ------------------------------------------------------------------------------------------------------ with services


@pytest.fixture
def places() -> Iterator[Callable[[str], Path]]:
    """Yield a function that names state folders. Their services are stopped at the end."""
    with service_folder() as folder:
        yield folder.joinpath


@pytest.mark.thorough
def test_services_come_back_with_runs_artifacts_and_data_and_with_new_secrets(
    places: Callable[[str], Path], project: Project, tmp_path: Path
) -> None:
    old, new, file = places("old"), places("new"), tmp_path / "night.tar"
    kept = {key: value for key, value in shell().items() if key not in OVERRULING}

    def ask(home: Path, *arguments: str) -> str:
        place = ServiceFolder(home / "services")
        served = place.environment() if running_servers(place.folder) else {}
        extra = {"REWARDFLOW_HOME": str(home), "OMP_NUM_THREADS": "1", **served}
        ended = rewardflow(project.folder, *arguments, **{**dict.fromkeys({*os.environ} - {*kept}, ""), **extra})
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    service_set.start(ServiceFolder(old / "services"), say=lambda line: None)
    ask(old, "run", "tiny")
    before = ask(old, "models")
    assert NAME in before
    ask(old, "backup", str(file))  # while the services run
    secrets = [ServiceFolder(old / "services").password(), ServiceFolder(old / "services").keys().secret]
    assert not any(secret.encode() in file.read_bytes() for secret in secrets)
    service_set.stop(ServiceFolder(old / "services"))
    shutil.rmtree(old)
    ask(new, "restore", str(file))
    service_set.start(ServiceFolder(new / "services"), say=lambda line: None)
    assert ServiceFolder(new / "services").password() != secrets[0]
    assert ask(new, "models") == before
    assert "data" in ask(new, "lineage", "1")
    again = ask(new, "run", "tiny")  # results, artifacts and data are where they were
    assert again.count("reused") >= 5
