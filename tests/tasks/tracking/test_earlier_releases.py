"""A registry of release 390191ab, whose verdicts are sentences: it is read, approved, exported and rolled back.

`registry_of_390191ab.tar.xz` is a state folder of tiny policies, made by `promote`, `approve` and `reject` of this
commit. Ann approved version 2, and Bob rejected 3. Version 4 was not better, 5 was refused as unpinned, and 6 waits.
"""

import sqlite3
import tarfile
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from test_gate_promotion import NAME

from models.base.errors import UserError
from tasks.gate import approval
from tasks.gate.judgement import is_lifted
from tasks.registered.export import export
from tasks.tracking import aliases, audit, earlier_releases, registry, runs, store, summaries, tags
from tasks.tracking.lineage import lineage, render
from tasks.tracking.recorded import recorded
from tasks.tracking.verdict_record import VerdictRecord, decided, read_verdict
from tasks.tracking.verdict_text import verdict_text

ARCHIVE = Path(__file__).with_name("registry_of_390191ab.tar.xz")


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Extract the state folder, configure its store, and return it."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    home = tmp_path / "earlier"
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(home, filter="data")
    written = (home / "mlflow.sql").read_text()
    for folder in (home / "mlartifacts" / "arithmetic" / "models").iterdir():
        fresh = f"m-{uuid.uuid4().hex}"  # MLflow keeps the place of an id's artifacts for the whole process
        written = written.replace(folder.name, fresh)
        described = folder / "artifacts" / "MLmodel"
        described.write_text(described.read_text().replace(folder.name, fresh))
        folder.rename(folder.with_name(fresh))
    with closing(sqlite3.connect(home / "mlflow.db")) as database:
        database.executescript(written)
    store.configure(home)
    return home


def record(version: int) -> VerdictRecord:
    read = read_verdict(registry.version_info(NAME, version))
    assert read is not None
    return read


def test_every_verdict_is_read_as_typed_data(earlier: Path) -> None:
    read = {number: record(number) for number in range(1, 7)}
    assert {number: (each.decision, each.reason, each.champion) for number, each in read.items()} == {
        1: ("promoted", "better", None),
        2: ("promoted", "approved", 1),
        3: ("refused", "rejected", 2),
        4: ("kept", "not_better", 2),
        5: ("refused", "not_pinned", 2),
        6: ("waiting", "better", 2),
    }
    assert all(decided(registry.version_info(NAME, number)) == each.decision for number, each in read.items())
    ann, bob = read[2].ruling, read[3].ruling
    assert ann is not None and (ann.approved, ann.by, ann.why) == (True, "Ann", "samples read (all of them)")
    assert bob is not None and (bob.approved, bob.by, bob.why) == (False, "Bob", "wrong: language")
    assert read[4].metric == "sampled_accuracy" and read[4].difference is not None
    assert (read[4].difference.estimate, read[4].difference.low) == (-0.5, -0.5)
    failed = {check.name for check in read[4].checks if check.failed}
    assert failed == {"better", "capability_easiest_accuracy", "capability_easiest_accuracy_anchor"}


def test_every_sentence_comes_back_as_it_was(earlier: Path) -> None:
    for number in range(1, 7):
        written = registry.version_info(NAME, number).tags[earlier_releases.VERDICT]
        rendered = verdict_text(record(number))
        if number == 6:  # how to approve is not part of the record
            written, rendered = (text.partition("; the recipe asks")[0] for text in (written, rendered))
        assert rendered == written


@pytest.mark.rotating(of=6)
def test_a_waiting_version_can_be_approved_and_the_champion_rolled_back(earlier: Path) -> None:
    run = registry.version_info(NAME, 6).tags[tags.RUN]
    assert "aiting for approval" in registry.version_info(NAME, 6).description
    approval.approve(NAME, 6, by="Cleo", why="better answers")
    info = registry.version_info(NAME, 6)
    champion = registry.champion(NAME)
    assert champion is not None and champion.version == 6 and audit.broken(NAME) == []
    assert info.tags[tags.DECISION] == "promoted" and earlier_releases.VERDICT not in info.tags
    assert record(6).reason == "approved" and record(6).earlier_text.startswith("better than champion, version 2: +0.5")
    assert info.description.startswith("Approved by Cleo: better answers (")
    assert info.description.count("Passed the gate: ") == 1 and "Waiting" not in info.description
    assert "### Gate" in info.description and "### Load it" in info.description
    name, page = summaries.name_and_note(run)
    assert name == "v6 approved +50.0 [+50.0, +50.0]" and runs.tags_of(run)[tags.RUN_VERDICT] == "approved"
    assert page.startswith("Approved by Cleo") and "Waiting" not in page
    assert aliases.rollback(NAME, by="Cleo").version == 2 and audit.broken(NAME) == []
    champions = [line.partition(" UTC ")[2].partition(" (")[0] for line in aliases.history(NAME)]
    assert champions == ["version 2", "version 6", "version 2", "version 1"]
    with pytest.raises(UserError, match="version 6 does not wait for approval"):
        approval.reject(NAME, 6, by="Cleo", why="no")


def test_what_was_held_back_only_for_a_reason_that_no_longer_holds_is_judged_again(earlier: Path) -> None:
    assert is_lifted(record(5), approval=False, unpinned="") and not is_lifted(record(5), False, "not committed")
    assert is_lifted(record(6), approval=False, unpinned="") and not is_lifted(record(6), True, "")
    assert not any(is_lifted(record(number), approval=False, unpinned="") for number in (2, 3, 4))


def test_lineage_record_and_export_read_it(earlier: Path, tmp_path: Path) -> None:
    assert "FAILED  capability_easiest_accuracy: against the baseline" in render(lineage(NAME, 4))
    known = recorded(f"{NAME}/2", lambda: NAME)
    assert known.version is not None and known.version.version == 2
    export(known, tmp_path / "exported")
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "Approved by Ann: samples read (all of them)" in card


def test_a_second_ruling_or_reproduction_leaves_one_of_each_on_the_page(earlier: Path) -> None:
    from tasks.pages.registered_page import annotate

    for sentence in ("differs: 1 of 4 tensors", "identical to the bit"):
        annotate(registry.version_info(NAME, 2), {tags.REPRODUCED: sentence})
    page = registry.version_info(NAME, 2).description
    assert "differs" not in page and page.count("### Trained again") == 1 and page.endswith("identical to the bit")
    assert page.startswith("Approved by Ann: samples read (all of them) (")
    assert page.count("Passed the gate: ") == page.count("Approved by Ann: ") == 1
