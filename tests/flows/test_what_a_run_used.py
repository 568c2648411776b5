"""A run's page lists the rows that were used, by role, and begins with a warning if the run is not pinned."""

import pytest
from project import Project, Ran

from models.datasets.schema import read_manifest
from tasks.tracking import records, store, tags
from tasks.tracking.summaries import data_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("configured")]


def used_by(first: Ran, step: str) -> dict[str, tuple[str, int | None]]:
    """Return the role of each data set that a step used, and the number of its rows that were used."""
    return {link.name: (link.context, link.rows) for link in data_of(first.child(step))}


def test_each_split_is_an_input_in_its_own_role(first: Ran) -> None:
    run = store.client().get_run(first.run_id)
    roles = {link.name: link.context for link in data_of(run) if "/problems_" in link.name}
    assert roles == {
        "arithmetic/problems_train": "training",
        "arithmetic/problems_validation": "validation",
        "arithmetic/problems_gate": "gate",
    }


def test_an_evaluation_names_the_problems_that_it_answered_and_no_others(first: Ran, project: Project) -> None:
    for role in ("base", "candidate"):
        assert used_by(first, f"evaluate {role}") == {"arithmetic/problems_validation": ("evaluation", 12)}
        assert used_by(first, f"gate {role}") == {"arithmetic/problems_gate": ("gate", 12)}


def test_training_names_the_rows_that_it_drew_and_no_held_out_ones(first: Ran, project: Project) -> None:
    rows = read_manifest(project.folder / "data/prepared/arithmetic")["rows"]
    assert used_by(first, "fine_tune") == {"arithmetic/problems_train": ("training", 16)}  # 4 rounds of 4 prompts
    warmed = used_by(first, "warm_start")
    assert {name: role for name, (role, _) in warmed.items()} == {
        "arithmetic/demonstrations_train": "training",
        "arithmetic/demonstrations_validation": "validation",
    }
    assert warmed["arithmetic/demonstrations_train"][1] == rows["demonstrations_train.parquet"]
    rewarded = used_by(first, "reward_model")
    assert {role for role, _ in rewarded.values()} == {"training", "validation"}


def test_what_no_commit_holds_says_so_on_its_first_line(first: Ran) -> None:
    run = store.client().get_run(first.run_id)
    assert "does not hold" in run.data.tags[tags.UNPINNED]
    assert run.data.tags[records.NOTE].startswith("> **Not pinned, so it cannot be reproduced:**")
    closing = first.out[: first.out.index("\nstep ")].strip().splitlines()
    assert closing[-1].startswith("not pinned: ")
