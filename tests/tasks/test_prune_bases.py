"""`rewardflow gc` and converted base models: added bases stay, and unused conversions of GGUF files may be removed."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from models.policies.base_models.catalogue import CATALOGUE
from models.policies.base_models.store import FOLDER
from models.policies.folder import given_folder
from tasks.state import prune
from tests.support.tiny_gguf import tiny_model, write_gguf


def test_gc_keeps_added_bases_and_used_ones_and_finds_old_conversions_and_broken_off_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_store: Callable[[Path], Path]
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("REWARDFLOW_HOME", str(home))
    new_store(home)
    file = write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"), "llama")
    folder = given_folder(str(file))
    assert folder is not None
    (added,) = (entry.gguf_sha256 for entry in CATALOGUE.values())
    (home / FOLDER / added).mkdir()
    (home / FOLDER / f".{added}.999999999.part").mkdir()
    held = {entry.place: entry for entry in prune.plan(home, 30.0)}
    assert held[folder].why == "used within the retention time" and not held[folder].removed
    assert held[home / FOLDER / added].why == "added with `rewardflow base add`"
    assert held[home / FOLDER / f".{added}.999999999.part"].removed
    long_ago = time.time() - 40 * 86_400
    for place in (folder, *folder.iterdir(), home / FOLDER / added):
        os.utime(place, (long_ago, long_ago))
    removed = {entry.place for entry in prune.plan(home, 30.0) if entry.removed}
    assert folder in removed and home / FOLDER / added not in removed
    given_folder(str(file))
    assert folder not in {entry.place for entry in prune.plan(home, 30.0) if entry.removed}
