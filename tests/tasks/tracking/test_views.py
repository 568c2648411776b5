"""The shared view of the list of runs."""

import json
from pathlib import Path

from tasks.tracking import runs, store, tags, views


def test_the_view_is_saved_as_the_ui_saves_one_and_only_once(home: Path):
    experiment = store.experiment_id("e")
    address = views.promotions(experiment)
    assert address.endswith("&viewStateShareKey=promotions") and f"/experiments/{experiment}/runs?" in address
    saved = store.client().get_experiment(experiment).tags["mlflow.sharedViewState.promotions"]
    entry = json.loads(saved)
    # The UI refuses an entry without these keys. It lists the views that have a name.
    assert isinstance(entry["name"], str) and isinstance(entry["createdAt"], int) and isinstance(entry["state"], str)
    state = json.loads(entry["state"])
    for column in (tags.RUN_VERDICT, tags.RUN_DIFFERENCE, tags.RUN_VERSION, tags.RUN_DATA):
        assert f"tags.`{column}`" in state["selectedColumns"]
    views.promotions(experiment)
    assert store.client().get_experiment(experiment).tags["mlflow.sharedViewState.promotions"] == saved


def test_its_filter_leaves_the_runs_that_were_judged(home: Path):
    judged = runs.open_flow_run("e", "v1 promoted", {tags.RUN_VERDICT: "promoted"})
    runs.open_step_run(judged, "data")
    runs.open_flow_run("e", "data unchanged")
    experiment = store.experiment_id("e")
    views.promotions(experiment)
    entry = json.loads(store.client().get_experiment(experiment).tags["mlflow.sharedViewState.promotions"])
    listed = store.client().search_runs([experiment], json.loads(entry["state"])["searchFilter"])
    assert [run.info.run_id for run in listed] == [judged]


def test_the_view_of_a_run_is_its_experiments(home: Path):
    run = runs.open_flow_run("e", "n")
    assert views.promotions_hint(run) == views.promotions(store.experiment_id("e"))
