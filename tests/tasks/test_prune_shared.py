"""`gc` on a tracking store that several state folders share: it deletes no model of another state folder."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_steps import context

from tasks.runner.step import StepOutput, run_step
from tasks.state import prune
from tasks.tracking import runs, store, tags


def logged(home: Path) -> str:
    """Log the model of a step in the state folder `home`, without a version, and return its id."""
    made: dict[str, str] = {}

    def work(folder: Path, run_id: str) -> StepOutput:
        experiment = store.client().get_run(run_id).info.experiment_id
        model = store.client().create_logged_model(experiment, "policy", source_run_id=run_id)
        place = Path(model.artifact_location.removeprefix("file://"))
        place.mkdir(parents=True, exist_ok=True)
        (place / "weights").write_text("weights")
        made["id"] = str(model.model_id)
        (folder / "policy").write_text("policy")
        return StepOutput("digest", "done")

    run_step(context(home, "fine_tune", "a" * 64, runs.open_flow_run("e", "n")), work)
    shutil.rmtree(home / "store")  # so that the state folder no longer needs the model
    return made["id"]


def going(home: Path) -> set[str]:
    """Run gc in the state folder `home`, and return the models that it deletes."""
    store.configure(home)
    held = prune.plan(home, keep_days=0.0)
    prune.remove(home, held)
    return {entry.model.model_id for entry in held if entry.removed and entry.model is not None}


@pytest.fixture
def shared(empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a database that every state folder of the test uses."""
    shutil.copy(empty_database, tmp_path / "shared.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/shared.db")


@pytest.fixture
def made(shared: None, tmp_path: Path) -> dict[str, str]:
    """Log one model in each of two state folders, and return them by the name of the folder."""
    models = {}
    for name in ("a", "b"):
        store.configure(tmp_path / name)
        models[name] = logged(tmp_path / name)
    return models


def test_gc_deletes_the_models_of_its_own_state_folder_alone(made: dict[str, str], tmp_path: Path) -> None:
    assert going(tmp_path / "a") == {made["a"]}
    assert store.client().get_logged_model(made["b"]).model_id == made["b"]
    assert going(tmp_path / "b") == {made["b"]}


def test_a_copy_of_a_state_folder_does_not_own_the_models_of_the_first(made: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    assert going(tmp_path / "copy") == set()


def test_what_an_earlier_version_logged_stays_on_a_shared_store(made: dict[str, str], tmp_path: Path) -> None:
    run_id = store.client().get_logged_model(made["a"]).source_run_id
    store.client().delete_tag(run_id, tags.STATE_FOLDER)
    assert going(tmp_path / "a") == set()


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "of an earlier version"])
def test_in_its_own_database_all_is_its_own_also_after_a_move(
    marked: bool, tmp_path: Path, new_store: Callable[[Path], Path]
) -> None:
    home = new_store(tmp_path / "home")
    model = logged(home)
    if not marked:
        store.client().delete_tag(store.client().get_logged_model(model).source_run_id, tags.STATE_FOLDER)
    home.rename(tmp_path / "moved")
    assert going(tmp_path / "moved") == {model}
