"""Data versions. Each test has a real git and DVC repository of its own; the fixture `made` prepares the data in it."""

import hashlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from s3_loopback import BUCKET, SECRET, s3_endpoint  # noqa: F401  (a fixture)
from small_repository import ROOT, commit, git, mine, ran, set_params, write_raw

from models.base.errors import UserError
from models.datasets.schema import read_rows
from models.datasets.settings import DataSettings
from tasks.data.dvc_command import repository_lock, run_dvc
from tasks.data.versions import current, digest_of, prepare, pull, push, read_pinned, stored

pytestmark = [pytest.mark.slow, pytest.mark.rotating(of=6)]


def refused(settings, root):
    with pytest.raises(UserError) as error:
        prepare(settings, root, report=lambda line: None)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_built_in_data_are_made_once_and_a_second_time_nothing_runs(root):
    first: list[str] = []
    made = prepare(DataSettings(), root, first.append)
    assert len(ran(first)) == 2
    second: list[str] = []
    assert prepare(DataSettings(), root, second.append) == made
    assert ran(second) == []
    assert made.digest.endswith(".dir")
    assert "data/prepared/arithmetic/manifest.json" in made.files
    assert set(made.raw) == {"data/raw/arithmetic"}
    assert git(root, "status", "--porcelain") == "?? dvc.lock"


@pytest.mark.rotating(of=6)
def test_a_clone_makes_the_same_data_again(root, made, tmp_path):
    commit(root)
    git(tmp_path, "clone", "--quiet", str(root), "clone")
    lock = (tmp_path / "clone/dvc.lock").read_bytes()
    again = prepare(DataSettings(), tmp_path / "clone", lambda line: None)
    assert (again.digest, again.files, again.dirty) == (made.digest, made.files, False)
    assert (tmp_path / "clone/dvc.lock").read_bytes() == lock


def test_a_changed_parameter_changes_the_digest_and_the_old_revision_still_reads_its_rows(root, made):
    old = made
    assert old.dirty, "no commit pins it yet"
    revision = commit(root)
    pinned = current("arithmetic", root)
    assert (pinned.revision, pinned.dirty) == (revision, False)
    file = "data/prepared/arithmetic/problems_train.parquet"
    bytes_then = (root / file).read_bytes()

    set_params(root, seed=2)
    new = prepare(DataSettings(), root, lambda line: None)
    assert new.digest != old.digest
    assert new.files[file] != old.files[file]
    assert new.raw != old.raw
    assert new.dirty
    assert (root / file).read_bytes() != bytes_then
    assert read_pinned(root, file, revision) == bytes_then


def test_a_users_file_outside_of_the_repository_is_prepared_and_not_copied_into_git(root, raw):
    version = prepare(mine(raw), root, lambda line: None)
    assert sum(len(read_rows(version.folder, "problems", split)) for split in ("train", "validation", "gate")) == 60
    assert version.raw.keys() == {str(raw)}
    assert git(root, "status", "--porcelain", "--untracked-files=all").splitlines() == [
        "?? data/sources/mine/dvc.lock",
        "?? data/sources/mine/dvc.yaml",
        "?? data/sources/mine/params.yaml",
    ]


def test_nothing_runs_again_for_the_same_file_and_settings(root, raw, made_mine):
    lines: list[str] = []
    assert prepare(mine(raw), root, lines.append) == made_mine
    assert ran(lines) == []


@pytest.mark.parametrize("what", ["rows", "settings"])
def test_changed_rows_or_settings_change_the_digest(root, raw, made_mine, what):
    if what == "rows":
        write_raw(raw, 70)
    new = prepare(mine(raw, seed=0 if what == "rows" else 9), root, lambda line: None)
    assert new.digest != made_mine.digest
    assert (new.raw == made_mine.raw) == (what == "settings")
    assert digest_of("mine", root) == new.digest


@pytest.mark.usefixtures("made_mine")
def test_a_committed_source_is_pinned_too(root, raw):
    revision = commit(root)
    assert not current("mine", root).dirty
    file = "data/prepared/mine/problems_train.parquet"
    bytes_then = (root / file).read_bytes()
    write_raw(raw, 70)
    assert prepare(mine(raw), root, lambda line: None).dirty
    assert read_pinned(root, file, revision) == bytes_then


def test_relative_paths_count_from_the_working_directory(root, raw, monkeypatch):
    monkeypatch.chdir(raw.parent)
    version = prepare(mine(Path("rows.jsonl")), root, lambda line: None)
    assert version.raw.keys() == {str(raw)}


def test_paths_with_odd_characters_are_only_paths(root, tmp_path):
    raw = write_raw(tmp_path / "el se/${HOME} 'x' $(id)/rows.jsonl", 60)
    assert prepare(mine(raw), root, lambda line: None).raw.keys() == {str(raw)}


def test_a_missing_file_is_said_before_anything_is_written(root, tmp_path):
    assert refused(mine(tmp_path / "gone.jsonl"), root) == f"data.path: {tmp_path / 'gone.jsonl'}: no such file"
    assert git(root, "status", "--porcelain") == ""


def test_what_the_stage_says_of_a_column_comes_through_and_nothing_is_left(root, raw):
    message = refused(mine(raw, columns={"answer": "solution"}), root)
    assert message == f"{raw}: no column 'solution' for data.columns.answer; the file has answer, prompt"
    assert git(root, "status", "--porcelain") == ""
    assert not (root / "data/prepared/mine").exists()


@pytest.mark.thorough
def test_what_the_stage_says_of_a_corrupt_file_and_of_an_empty_split_comes_through(root, tmp_path, raw):
    corrupt = tmp_path / "rows.parquet"
    corrupt.write_bytes(b"PAR1 not really")
    assert refused(mine(corrupt), root).startswith(f"{corrupt}: not a readable Parquet file")
    assert "the validation split of problems is empty" in refused(mine(raw, limit=1), root)


@pytest.mark.thorough
def test_a_failure_leaves_the_stage_of_the_version_before(root, raw, made_mine):
    refused(mine(raw, columns={"answer": "solution"}), root)
    assert prepare(mine(raw), root, lambda line: None) == made_mine


def test_a_wrong_parameter_of_the_built_in_data_comes_through(root):
    set_params(root, operand=[9, 1])
    assert refused(DataSettings(), root) == "params.yaml: arithmetic: operand: 9 is larger than 1"


def test_the_name_of_a_built_in_set_is_not_for_a_users(root, raw):
    assert "give yours another" in refused(mine(raw, name="arithmetic"), root)


def dvc_digest(path):
    """Return the MD5 of a file, or that of a folder's listing as DVC writes it."""
    if path.is_file():
        return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    files = sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    listing = [{"md5": dvc_digest(file), "relpath": file.relative_to(path).as_posix()} for file in files]
    listing.sort(key=lambda entry: entry["relpath"])
    return hashlib.md5(json.dumps(listing, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"


@pytest.mark.rotating(of=1)  # it only computes hashes; a failure that is found turns later makes a data stage run again
def test_the_committed_lock_file_is_of_the_code_and_parameters_beside_it():
    stages = yaml.safe_load((ROOT / "dvc.lock").read_text())["stages"]
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    stale = [
        item["path"]
        for stage in stages.values()
        for item in stage["deps"]
        if item["path"].startswith("models/") and item["md5"] != dvc_digest(ROOT / item["path"])
    ]
    assert stale == [], "run `dvc repro` and commit dvc.lock"
    for stage in stages.values():
        for section, values in stage["params"]["params.yaml"].items():
            assert params[section] == values, "run `dvc repro` and commit dvc.lock"


@pytest.mark.thorough
def test_two_at_once_both_end_with_the_same_version(root, raw):
    with ThreadPoolExecutor(2) as pool:
        versions = list(pool.map(lambda _: prepare(mine(raw), root, lambda line: None), range(2)))
    assert versions[0] == versions[1]


def test_a_folder_without_dvc_is_refused(tmp_path):
    assert "no DVC repository" in refused(DataSettings(), tmp_path)


def test_an_unknown_revision_or_file_is_one_line(root):
    for path, revision in (("params.yaml", "no-such-revision"), ("data/prepared/gone", "HEAD")):
        with pytest.raises(UserError, match=f"{path} at revision {revision}") as error:
            read_pinned(root, path, revision)
        assert "\n" not in str(error.value)


def test_what_is_not_prepared_is_said(root):
    with pytest.raises(UserError, match="data/prepared/arithmetic: not prepared yet"):
        digest_of("arithmetic", root)


def wipe(root):
    shutil.rmtree(root / ".dvc/cache")
    shutil.rmtree(root / "data/prepared")


def dvc(root, *words):
    with repository_lock(root) as lock:
        run_dvc(root, list(words), lambda line: None, lock)


def test_the_local_remote_brings_everything_back(root, made):
    push(root, report=lambda line: None)
    wipe(root)
    pull(root, report=lambda line: None)
    assert current("arithmetic", root) == made


def test_what_a_user_pins_elsewhere_is_brought_back_too(root, made):
    stage = {"cmd": "cat words.txt words.txt > twice.txt", "deps": ["words.txt"], "outs": ["twice.txt"]}
    folder = root / "notes"
    folder.mkdir()
    (folder / "words.txt").write_text("a word\n")
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"twice": stage}}))
    dvc(root, "add", "notes/words.txt")
    dvc(root, "repro", "notes/dvc.yaml:twice")
    push(root, report=lambda line: None)
    wipe(root)
    for name in ("words.txt", "twice.txt"):
        (folder / name).unlink()
    pull(root, report=lambda line: None)
    assert (folder / "twice.txt").read_text() == 2 * "a word\n" == 2 * (folder / "words.txt").read_text()
    assert current("arithmetic", root) == made


@pytest.mark.thorough
@pytest.mark.parametrize("named_by", ["configuration", "DATA_REMOTE"])
def test_an_s3_remote_brings_a_users_data_back_and_serves_pinned_reads(
    root,
    made_mine,
    s3_endpoint,  # noqa: F811
    named_by,
    monkeypatch,
):
    config = root / ".dvc/config"
    if named_by == "DATA_REMOTE":
        monkeypatch.setenv("DATA_REMOTE", f"s3://{BUCKET}/named")
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    else:
        remote = f"\n['remote \"bucket\"']\n    url = s3://{BUCKET}/data\n    endpointurl = {s3_endpoint}\n"
        config.write_text(config.read_text().replace("remote = local", "remote = bucket") + remote)
    configured = config.read_bytes()
    revision = commit(root)
    lines: list[str] = []
    push(root, "mine", report=lines.append)
    wipe(root)
    file = "data/prepared/mine/problems_gate.parquet"
    pinned = read_pinned(root, file, revision)
    shutil.rmtree(root / ".dvc/cache", ignore_errors=True)
    pull(root, "mine", report=lines.append)
    version = current("mine", root)
    assert (version.digest, version.files) == (made_mine.digest, made_mine.files)
    assert (root / file).read_bytes() == pinned
    assert stored(root, {version.digest}) == {version.digest}
    assert not any(SECRET in line for line in lines)
    assert (config.read_bytes(), (root / ".dvc/config.local").exists()) == (configured, False)


@pytest.mark.parametrize("address", ["/srv/data", "https://bucket/data", "s3://key:secret-4711@bucket/data"])
def test_a_remote_of_the_environment_that_is_no_s3_address_is_one_line(root, address, monkeypatch):
    monkeypatch.setenv("DATA_REMOTE", address)
    with pytest.raises(UserError, match="DATA_REMOTE must be an address like s3://bucket/prefix") as error:
        push(root, report=lambda line: None)
    assert "4711" not in str(error.value)


@pytest.mark.usefixtures("made")
def test_a_remote_that_is_away_is_one_line(root):
    with pytest.raises(UserError, match="dvc push: ") as error:
        push(root, remote="no-such-remote", report=lambda line: None)
    assert "\n" not in str(error.value)
