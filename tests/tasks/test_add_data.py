"""Addition of a user's files: it makes a version in one step, whose revision pins both rows and raw files."""

import json
import shutil

import pytest
from small_repository import commit, git, mine, write_raw

from models.base.errors import UserError
from tasks.data.add_data import add
from tasks.data.versions import current, prepare, pull, read_pinned

pytestmark = [pytest.mark.slow, pytest.mark.rotating(of=8)]
SILENT = lambda line: None  # noqa: E731


@pytest.fixture(autouse=True)
def somebody(monkeypatch):
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "somebody@localhost")


def test_what_was_added_comes_back_from_the_revision_rows_and_raw_files(root, raw, made_mine):
    assert "`rewardflow data add` pins them" in made_mine.unpinned
    commit(root)
    assert "only the hash is kept" in current("mine", root).unpinned, (
        "a committed stage holds the rows, not their source"
    )

    before = raw.read_bytes()
    version, settings = add(mine(raw), root, SILENT)
    assert version.unpinned == ""
    assert version.revision == git(root, "rev-parse", "HEAD")
    assert git(root, "status", "--porcelain") == ""
    assert read_pinned(root, "data/raw/mine/rows.jsonl", version.revision) == before
    file = "data/prepared/mine/problems_train.parquet"
    rows = (root / file).read_bytes()

    raw.unlink()
    shutil.rmtree(root / ".dvc/cache")
    shutil.rmtree(root / "data/raw/mine")
    shutil.rmtree(root / "data/prepared/mine")
    pull(root, "mine", report=SILENT)  # `add` has pushed rows and raw files
    assert (root / "data/raw/mine/rows.jsonl").read_bytes() == before
    assert read_pinned(root, file, version.revision) == rows

    absolute = settings.model_copy(update={"path": (root / settings.path[0],)})
    again = prepare(absolute, root, SILENT)
    assert (again.digest, again.unpinned) == (version.digest, "")
    assert git(root, "status", "--porcelain") == "", "training on the added data changes nothing"


@pytest.mark.thorough
def test_added_again_with_other_rows_it_is_another_version_and_the_old_one_stays_readable(root, raw):
    old, _ = add(mine(raw), root, SILENT)
    then = raw.read_bytes()
    new, _ = add(mine(write_raw(raw, 70)), root, SILENT)
    assert new.digest != old.digest and new.unpinned == ""
    assert read_pinned(root, "data/raw/mine/rows.jsonl", old.revision) == then
    (root / "data/raw/mine/rows.jsonl").write_text(then.decode() + '\n{"prompt": "new", "answer": 1}\n')
    edited = mine(root / "data/raw/mine")
    assert prepare(edited, root, SILENT).unpinned != "", "edited in place: no commit holds it"


def test_test_files_lie_beside_and_two_of_one_name_are_refused(root, raw, tmp_path):
    held_out = tmp_path / "held_out/rows.jsonl"
    held_out.parent.mkdir()
    held_out.write_text("\n".join(json.dumps({"prompt": f"held out {n}", "answer": n}) for n in range(20)))
    version, settings = add(mine(raw, test_path=held_out), root, SILENT)
    assert [str(path) for path in (*settings.path, *settings.test_path)] == ["data/raw/mine", "data/raw/mine/test"]
    assert version.unpinned == ""
    with pytest.raises(UserError, match=r"two files are called rows\.jsonl"):
        add(mine([str(raw), str(held_out)]), root, SILENT)
    assert current("mine", root).unpinned == ""


def test_added_files_keep_the_folders_that_state_their_splits(root, raw, tmp_path):
    for split in ("train", "validation", "test"):
        (tmp_path / "hub" / split).mkdir(parents=True)
        rows = [{"prompt": f"{split} {n}", "answer": n} for n in range(20)]
        (tmp_path / "hub" / split / "0.jsonl").write_text("\n".join(map(json.dumps, rows)))
    add(mine(tmp_path / "hub"), root, SILENT)
    splits = json.loads((root / "data/prepared/mine/manifest.json").read_text())["splits"]
    assert splits == {"train/0.jsonl": "train", "validation/0.jsonl": "validation", "test/0.jsonl": "gate"}


def test_a_file_that_cannot_be_read_leaves_everything_as_it_was(root, raw, tmp_path):
    add(mine(raw), root, SILENT)
    was = (git(root, "rev-parse", "HEAD"), (root / "data/raw/mine/rows.jsonl").read_bytes())
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"prompt": "p", \n')
    with pytest.raises(UserError, match="not valid JSON"):
        add(mine(broken), root, SILENT)
    assert was == (git(root, "rev-parse", "HEAD"), (root / "data/raw/mine/rows.jsonl").read_bytes())
    assert git(root, "status", "--porcelain") == ""
    assert sorted(path.name for path in (root / "data/raw").iterdir()) == ["mine", "mine.dvc"]


def test_only_the_pins_are_committed_and_what_was_staged_stays_staged(root, raw):
    (root / "models/base/errors.py").write_text("# being edited\n" + (root / "models/base/errors.py").read_text())
    git(root, "add", "models/base/errors.py")
    add(mine(raw), root, SILENT)
    assert git(root, "status", "--porcelain") == "M  models/base/errors.py"
    assert sorted(git(root, "show", "--name-only", "--format=", "HEAD").splitlines()) == [
        "data/raw/mine.dvc",
        "data/sources/mine/dvc.lock",
        "data/sources/mine/dvc.yaml",
        "data/sources/mine/params.yaml",
    ]


def test_a_checkout_of_another_owner_is_one_line_that_names_what_to_do(root, raw, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(UserError, match=r"git refuses it: detected dubious ownership.*--add safe\.directory"):
        add(mine(raw), root, SILENT)


def test_outside_of_git_it_is_one_line(root, raw):
    shutil.rmtree(root / ".git")
    with pytest.raises(UserError, match="no git repository: a version of the data is a commit"):
        add(mine(raw), root, SILENT)
