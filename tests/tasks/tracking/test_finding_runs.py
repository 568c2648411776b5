"""Finding runs: the newest of all recipes are listed, and one is found by a name or part of its id."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from models.base.errors import UserError
from tasks.tracking import runs, store, summaries


@pytest.fixture
def flows(home: Path) -> dict[str, str]:
    """Make four flow runs of two recipes, each with two steps, and a run of another program.

    Return name -> id of the flow runs, with the newest last.
    """
    begun = {}
    for recipe, name in (("a", "first"), ("b", "second"), ("a", "third"), ("b", "fourth")):
        begun[name] = runs.open_flow_run(recipe, name)
        for step in ("data", "fine_tune"):
            runs.close_run(runs.open_step_run(begun[name], step))
        runs.close_run(begun[name])
    foreign = store.client().create_run(store.experiment_id("a"), run_name="somebody else's")
    store.client().set_terminated(foreign.info.run_id)
    return begun


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return a list to which each request adds the number of runs that it brought."""
    brought: list[int] = []
    search = MlflowClient.search_runs

    def counted(*args, **kwargs):  # type: ignore[no-untyped-def]
        page = search(*args, **kwargs)
        brought.append(len(page))
        return page

    monkeypatch.setattr(MlflowClient, "search_runs", counted)
    yield brought


def test_the_newest_runs_come_in_one_request_that_brings_no_more_than_is_shown(
    flows: dict[str, str], asked: list[int]
) -> None:
    assert [line.name for line in summaries.recent_runs(limit=3)] == ["fourth", "third", "second"]
    assert [line.name for line in summaries.recent_runs("a", limit=1)] == ["third"]
    assert asked == [3, 1]


def test_runs_span_all_recipes_say_which_and_leave_out_steps_and_what_others_wrote(flows: dict[str, str]) -> None:
    assert [(line.name, line.experiment) for line in summaries.recent_runs()] == [
        ("fourth", "b"), ("third", "a"), ("second", "b"), ("first", "a"),
    ]  # fmt: skip


def test_the_latest_run_is_the_latest_of_any_recipe(flows: dict[str, str], asked: list[int]) -> None:
    assert summaries.run_summary("", "latest").line.name == "fourth"
    assert summaries.run_summary("a", "latest").line.name == "third"
    assert max(asked) <= 2  # the two steps of one run


def test_two_characters_of_an_id_are_enough_where_only_one_run_fits(home: Path) -> None:
    begun = {runs.open_flow_run("a", f"run {number}") for number in range(3)}
    for run_id in begun:
        length = next(n for n in range(1, 33) if sum(other.startswith(run_id[:n]) for other in begun) == 1)
        assert summaries.run_summary("", run_id[:length]).line.run_id == run_id


def test_a_step_is_found_by_its_id_and_a_flow_run_before_it(flows: dict[str, str]) -> None:
    step = summaries.run_summary("", flows["third"]).steps[0]
    assert summaries.run_summary("", step.run_id).line.name == "data"
    assert summaries.run_summary("", "third").line.run_id == flows["third"]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    ("experiment", "wanted", "says"),
    [
        ("nosuch", "latest", "no recipe 'nosuch' was run here; there is a, b"),
        ("", "zz", "no run 'zz'; `rewardflow runs` lists"),
        ("", "it's", 'no run "it\'s"'),
        ("", "", "no run ''"),
    ],
)
def test_what_is_not_there_is_told_in_one_line(flows: dict[str, str], experiment: str, wanted: str, says: str) -> None:
    with pytest.raises(UserError) as refusal:
        summaries.run_summary(experiment, wanted)
    assert says in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_recipe_that_never_ran_is_no_empty_list(flows: dict[str, str]) -> None:
    with pytest.raises(UserError, match="no recipe 'nosuch' was run here"):
        summaries.recent_runs("nosuch")


def test_more_than_one_run_that_fits_is_told_with_their_ids(flows: dict[str, str]) -> None:
    again = runs.open_flow_run("b", "first")
    with pytest.raises(UserError, match=f"more than one run fits 'first' .*{again[:8]} first"):
        summaries.run_summary("", "first")


def test_reading_makes_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert not store.exists(tmp_path / "nothing")
    with pytest.raises(UserError, match="nothing was run here yet"):
        store.open_for_reading(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []
