"""Difference of two runs: changes of data, code, recipe, packages, machine and answers are found, and no others."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_repository import commit, git, set_params

from flows.difference import difference_lines, write_page
from models.base.errors import UserError
from models.datasets.schema import read_rows
from models.datasets.settings import DataSettings
from models.evaluation.records import Completion, PromptRecord
from models.evaluation.report import summarise
from models.evaluation.table import write_records
from tasks.data.versions import DataVersion, prepare
from tasks.host.machine import MACHINE, PACKAGES
from tasks.registered.difference import Difference, as_json, difference
from tasks.steps.prepare_data import log_data
from tasks.tracking import recorded, records, runs, tags

pytestmark = pytest.mark.rotating(of=6)


def answers(version: DataVersion, wrong: set[str]) -> list[PromptRecord]:
    """Return a sample and a greedy answer for each validation problem: wrong for the prompts in `wrong`, else right."""
    made = []
    for row in read_rows(version.folder, "problems", "validation"):
        right = str(row["prompt"]) not in wrong
        said = Completion("right\x1b[31m" if right else "<b>wrong</b>", 3, right, True, 0.5)
        made.append(PromptRecord(str(row["id"]), int(row["level"]), (said,), said))
    return made


def run_of(version: DataVersion, commit_of_code: str, wrong: set[str], beside: Path, **params: object) -> str:
    """Record a flow's run as a training leaves it: data, the answers of an evaluation, packages and machine."""
    run = runs.open_flow_run("e", "train e", {tags.GIT_COMMIT: commit_of_code, tags.REWARD_MODEL_VERSION: "r/1"})
    runs.log_params(run, {"schedule": {"rounds": 4}, "name": "e", **params})
    log_data(run, version)
    records.log_text(run, PACKAGES, f"same==1\ntorch=={params.get('seed', 0)}\n")
    records.log_text(run, MACHINE, json.dumps({"threads": str(params.get("seed", 0)), "cpu": "one"}))
    step = runs.open_step_run(run, "evaluate", name="evaluate candidate")
    measured = answers(version, wrong)
    write_records(measured, beside / "records.parquet")
    records.log_artifact(step, beside / "records.parquet", "evaluation")
    records.log_metrics(step, summarise(measured, ks=(1, 4)))
    runs.close_run(step)
    runs.close_run(run)
    return run


@pytest.fixture
def changed(
    root: Path, made: DataVersion, new_store: Callable[[Path], Path], tmp_path: Path
) -> tuple[str, str, DataVersion, DataVersion, set[str]]:
    """Return two runs, their data versions, and the prompts that only the second run answers wrong.

    The second run has more problems, other code and another seed. It answers the first run's one wrong prompt right,
    and three other prompts wrong.
    """
    new_store(tmp_path / "home")
    before = commit(root)
    prompts = [str(row["prompt"]) for row in read_rows(made.folder, "problems", "validation")]
    old = run_of(made, before, set(prompts[:1]), tmp_path)
    set_params(root, problems={"train": [20, 40], "validation": [5, 5, 3], "gate": [5, 5, 5]})
    later = prepare(DataSettings(), root, lambda line: None)
    after = commit(root)
    assert git(root, "rev-list", "--count", f"{before}..{after}") == "1"
    kept = {str(row["prompt"]) for row in read_rows(later.folder, "problems", "validation")} & set(prompts)
    wrong = set(sorted(kept - {prompts[0]})[:3])
    new = run_of(later, f"{after}-dirty", wrong, tmp_path, seed=1)
    return old, new, made, later, wrong


def said_of(old: str, new: str, root: Path) -> Difference:
    sides = [recorded.recorded(run, lambda: "none") for run in (old, new)]
    return difference(sides[0], sides[1], root)


def test_a_difference_says_what_was_done_and_a_run_differs_from_itself_in_nothing(
    changed: tuple[str, str, DataVersion, DataVersion, set[str]], root: Path, tmp_path: Path
) -> None:
    old, new, first, later, wrong = changed
    said = said_of(old, new, root)
    assert (said.code.ahead, said.code.behind) == (1, 0) and said.code.after.endswith("-dirty")
    assert "params.yaml" in said.code.files
    assert [(entry.name, entry.before, entry.after) for entry in said.recipe] == [("seed", "", "1")]
    assert [(entry.name, entry.before, entry.after) for entry in said.packages] == [("torch", "0", "1")]
    assert [entry.name for entry in said.machine] == ["threads"]
    (validation,) = [split for split in said.data.splits if (split.kind, split.split) == ("problems", "validation")]
    assert validation.after - validation.before == 3
    assert len(validation.added) - len(validation.removed) == 3 and not said.data.unread
    assert (said.data.before, said.data.after) == (first.digest, later.digest) and first.digest != later.digest
    flips = said.evaluation.flips
    assert flips is not None and flips.compared == 10 and flips.left_out == 3
    assert {entry.prompt for entry in said.evaluation.worse} == wrong
    assert {entry.after for entry in said.evaluation.worse} == {"<b>wrong</b>"}
    (accuracy,) = [change for change in said.evaluation.metrics if change.name == "greedy_accuracy"]
    assert accuracy.paired and accuracy.change.estimate == pytest.approx((len(flips.better) - len(flips.worse)) / 10)

    back = said_of(new, old, root)
    assert back.evaluation.flips is not None and len(back.evaluation.flips.better) == len(flips.worse)
    lines = difference_lines(said)
    assert "\x1b" not in lines and f"{len(flips.worse)} became wrong" in lines
    assert "seed" in lines and re.search(r"problems_validation\.parquet +10 -> 13 ", lines)
    assert json.loads(as_json(said))["evaluation"]["flips"]["compared"] == 10
    write_page(tmp_path / "page.html", said)
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;wrong&lt;/b&gt;" in page and "<b>wrong" not in page and sorted(wrong)[0] in page
    with pytest.raises(UserError, match="cannot be written"):
        write_page(tmp_path / "page.html" / "beside.html", said)

    same = said_of(old, old[:8], root)
    assert not (same.recipe or same.packages or same.machine or same.data.splits or same.notes or same.code.files)
    assert same.evaluation.worse == same.evaluation.better == ()
    assert all(change.change.low == change.change.high == 0 for change in same.evaluation.metrics)
    assert "no difference" in difference_lines(same)


@pytest.mark.thorough
def test_what_is_gone_is_said_and_the_rest_is_compared(
    changed: tuple[str, str, DataVersion, DataVersion, set[str]], root: Path
) -> None:
    old, new, first, _, _ = changed
    lost = first.files["data/prepared/arithmetic/problems_validation.parquet"]
    for file in root.rglob(f".dvc/cache/files/md5/{lost[:2]}/{lost[2:]}"):
        file.unlink()
    said = said_of(old, new, root)
    assert len(said.data.unread) == 1 and lost in said.data.unread[0] and not said.data.same
    assert said.evaluation.flips is None and "not paired" in said.evaluation.notes[0]
    assert not any(change.paired for change in said.evaluation.metrics)
    before, after = (recorded.recorded(run, lambda: "none") for run in (old, new))
    without = difference(replace(before, evaluation="", trained_in="0" * 32), after, root)
    assert without.evaluation.metrics == () and "not on record" in without.evaluation.notes[0]
    assert len(without.notes) == 2 and without.packages == ()
