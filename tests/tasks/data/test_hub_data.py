"""Data sets of a hub: rows from a cache and from a hub on loopback, and one line for everything that is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from data_hub import CARD, COMMIT, EARLIER, TOKEN, DataHub, parquet, sums, sums_files, write_cache
from huggingface_hub import constants

from models.base.disk import state_folder
from models.base.errors import UserError
from models.datasets.data_files import data_files
from models.datasets.inspection import inspect
from models.datasets.settings import DataSettings
from tasks.data.hub_data import fetch_hub_data

pytest.importorskip("datasets", reason="the extra hub is not installed")
SUMS = "hf://team/sums"


def settings(path: str, **given: Any) -> DataSettings:
    return DataSettings.model_validate({"name": "mine", "path": path, "format": "auto", **given})


def fetched(path: str, **given: Any) -> tuple[DataSettings, str, list[str]]:
    lines: list[str] = []
    made, unpinned = fetch_hub_data(settings(path, **given), lines.append)
    return made, unpinned, lines


def refused(path: str) -> str:
    with pytest.raises(UserError) as error:
        fetched(path)
    assert "\n" not in str(error.value) and not list(state_folder().rglob("*.parquet"))
    return str(error.value)


def test_the_splits_of_a_cached_data_set_keep_their_role(cache: Path) -> None:
    write_cache(cache, sums_files())
    made, unpinned, lines = fetched(SUMS)
    assert made.path == (f"{SUMS}@{COMMIT}",)
    assert unpinned == f"data.path: {SUMS}@main is whatever the hub has under that name; write {SUMS}@{COMMIT}"
    assert lines[0] == f"{SUMS}@main is the commit {COMMIT}" and "the list of its files is not known" in lines[2]
    seen = inspect(made)
    assert {(file.path.name, file.rows, file.split) for file in seen.files} == {
        ("train-00000.parquet", 30, "train"),
        ("train-00001.parquet", 30, "train"),
        ("validation-00000.parquet", 10, "validation"),
        ("test-00000.parquet", 20, "gate"),
    }
    assert seen.format == "demonstrations"
    assert seen.first["demonstrations"] == {"prompt": "0 + 1 ?", "completion": "1"}


def test_a_commit_is_pinned_and_stored_rows_need_no_cache(cache: Path) -> None:
    write_cache(cache, sums_files())
    assert fetched(f"{SUMS}@{COMMIT}:main/test")[1] == ""
    write_cache(cache, {"main/test-00000-of-00001.parquet": b"broken"})
    made, unpinned, lines = fetched(f"{SUMS}@{COMMIT}:main/test")
    assert (unpinned, lines) == ("", [])
    assert [file.path.name for file in data_files(made.path or ())] == ["test-00000.parquet"]


def test_a_split_may_be_the_test_data(cache: Path) -> None:
    write_cache(cache, sums_files())
    made, unpinned, _ = fetched(f"{SUMS}:main/train", test_path=f"{SUMS}:main/test")
    assert made.test_path == (f"{SUMS}@{COMMIT}:main/test",) and "data.test_path" in unpinned
    assert [file.split for file in inspect(made).files] == ["", "", "validation and gate"]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (":nothing", "no configuration 'nothing'; it has main, extra"),
        (":main/dev", "no split 'dev'; 'main' has test, train, validation"),
        ("@v2", "the data set is not in the cache of the hub's client, and HF_HUB_OFFLINE is set"),
    ],
)
def test_an_unknown_part_is_one_line(cache: Path, part: str, message: str) -> None:
    write_cache(cache, sums_files())
    assert message in refused(SUMS + part)


def test_several_configurations_without_a_default_one_are_listed(cache: Path) -> None:
    write_cache(cache, {**sums_files(), "README.md": CARD.replace("  default: true\n", "").encode()})
    assert f"it has the configurations main, extra; name one: {SUMS}@{COMMIT}:main" in refused(SUMS)


def test_the_code_of_a_repository_is_never_run(cache: Path, tmp_path: Path) -> None:
    write_cache(cache, {"sums.py": f"open({str(tmp_path / 'ran')!r}, 'w')".encode()})
    assert "the repository has only a loading script (sums.py), and code of the hub is never run" in refused(SUMS)
    assert not (tmp_path / "ran").exists()


def test_a_broken_file_is_named_and_nothing_is_stored(cache: Path) -> None:
    write_cache(cache, {**sums_files(), "main/dev.parquet": b"PAR1 no more"})
    assert "main/dev.parquet cannot be read as parquet" in refused(SUMS)


def test_files_without_a_card_nested_values_and_mixed_types_are_read(cache: Path) -> None:
    call = {"role": "assistant", "content": "5", "weight": 0.5}
    rows = [{"messages": [{"role": "user", "content": f"{n} ?", "weight": n}, call]} for n in range(3)]
    rows[1]["messages"][0]["weight"] = {"of": ["any", 1]}
    write_cache(cache, {"train.jsonl": "\n".join(map(json.dumps, rows)).encode()})
    seen = inspect(fetched(SUMS)[0])
    assert (seen.format, seen.refused, seen.made) == ("demonstrations", 0, {"problems": 3, "demonstrations": 3})
    scored = [{"response": "good", "overall_score": 4.0}, {"response": "bad", "overall_score": 1.0}]
    write_cache(cache, {"train.parquet": parquet([{"instruction": "Rhyme", "completions": scored}])}, "team/scored")
    assert inspect(fetched("hf://team/scored")[0]).made == {"problems": 1, "demonstrations": 1, "preferences": 1}


def test_a_hub_is_asked_once_and_only_the_files_of_the_split_are_fetched(hub: DataHub) -> None:
    made, unpinned, _ = fetched(f"{SUMS}@v1:main/test")
    assert made.path == (f"{SUMS}@{COMMIT}:main/test",) and unpinned
    assert [request for request in hub.requests if "/api/" in request] == ["GET /api/datasets/team/sums/revision/v1"]
    got = {request.rpartition(f"{COMMIT}/")[2] for request in hub.requests if request.startswith("GET /datasets/")}
    assert got == {"README.md", "main/test-00000-of-00001.parquet"}
    hub.requests.clear()
    assert fetched(f"{SUMS}@{COMMIT}:main/test")[0].path == made.path
    assert hub.requests == []


def test_a_part_in_the_cache_is_not_taken_for_the_whole(hub: DataHub, monkeypatch: pytest.MonkeyPatch) -> None:
    del hub.files["README.md"]
    fetched(f"{SUMS}:default/test")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"-00002\.parquet is not in the cache of the hub's client, and HF_HUB_OFFLINE"):
        fetched(SUMS)
    assert [folder.name for folder in (state_folder() / "hub_data/team--sums" / COMMIT).glob("config*")] == [
        "config-default-split-test"
    ]


def test_a_branch_is_the_commit_that_it_was_last_without_a_connection(
    hub: DataHub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fetched(f"{SUMS}@v1")[0]
    shutil.rmtree(cache)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetched(f"{SUMS}@v1")[0] == made


def test_a_branch_that_moved_gives_other_rows_in_another_folder(hub: DataHub) -> None:
    first = fetched(SUMS)[0]
    hub.commit, hub.files["main/dev.parquet"] = EARLIER, sums(60, 65)
    second = fetched(SUMS)[0]
    assert [sum(file.rows for file in inspect(made).files) for made in (first, second)] == [90, 85]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "GatedRepo", "the data set is gated; accept its terms on the hub and set HF_TOKEN"),
        (404, "RepoNotFound", "no such data set on the hub (a private one needs HF_TOKEN)"),
        (404, "RevisionNotFound", "the data set has no revision 'main'"),
        (403, "", "the hub answers 403; it needs another HF_TOKEN"),
        (400, "", "the hub answers 400"),
    ],
)
def test_a_refusal_of_the_hub_is_one_line_without_the_token(hub: DataHub, status: int, code: str, message: str) -> None:
    hub.refuses = (status, code)
    line = refused(SUMS)
    assert line == f"data.path: {SUMS}@main: {message}"
    assert TOKEN not in line


def test_a_file_that_the_hub_no_longer_has_is_named(hub: DataHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataHub, "reply", lambda self, path, known=DataHub.reply: _lacking(self, path, known))
    assert "main/dev.parquet: the hub answers 410" in refused(SUMS)


def _lacking(hub: DataHub, path: str, known: Any) -> tuple[int, bytes, dict[str, str]]:
    reply: tuple[int, bytes, dict[str, str]] = (410, b"{}", {}) if path.endswith("dev.parquet") else known(hub, path)
    return reply


def test_without_a_connection_the_cache_is_used(hub: DataHub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "the data set is not in the cache of the hub's client, and the hub cannot be reached" in refused(SUMS)
    write_cache(cache, sums_files())
    assert fetched(SUMS)[0].path == (f"{SUMS}@{COMMIT}",)
