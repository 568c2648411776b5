"""The name of a flow's run, and the tags that the shared view shows of it."""

from pathlib import Path

import pytest

from models.evaluation.records import Completion, PromptRecord
from models.recipes.load import load_recipe
from tasks.pages.review import name_run
from tasks.runner.step import StepResult
from tasks.steps.promote import Promotion
from tasks.tracking import runs, store, summaries, tags, views
from tests.support.verdict_examples import verdict

RESULT = StepResult(step="promote", key="k", folder="", digest="d", headline="", metrics={}, run_id="", seconds=0.0)
RECORDS = [
    PromptRecord(str(number), 1, (Completion("a", 1, number < 3, True),), Completion("a", 1, True, True))
    for number in range(4)
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def named(home: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> tuple[str, dict[str, str]]:
    """Return the name and the tags of a run with this promotion."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(home)
    plain = {
        "result": RESULT,
        "version": 7,
        "verdict": verdict(),
        "is_champion": True,
    }
    run = runs.open_flow_run("e", "train arithmetic")
    name_run(run, load_recipe("arithmetic", []), Promotion(**{**plain, **changes}), {"data": "abc"}, RECORDS)  # type: ignore[arg-type]
    page = store.client().get_run(run)
    assert page.data.metrics == {views.ACCURACY: 0.75}
    return summaries.name_and_note(run)[0], page.data.tags


@pytest.mark.rotating(of=6)
def test_a_promotion_is_in_the_runs_name_and_in_the_columns_of_the_shared_view(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, shown = named(home, monkeypatch)
    assert name == "v7 promoted +3.9 [+3.6, +4.2]"
    assert (shown[tags.RUN_VERDICT], shown[tags.RUN_VERSION], shown[tags.RUN_DATA]) == ("promoted", "7", "abc")
    assert shown[tags.RUN_DIFFERENCE] == "+3.9 [+3.6, +4.2]"


def test_a_run_that_met_known_weights_again_says_nothing_changed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, shown = named(home, monkeypatch, result=RESULT.model_copy(update={"reused": True}))
    assert name == "nothing changed: v7, the champion"
    assert shown[tags.RUN_VERDICT] == "nothing changed" and tags.RUN_DIFFERENCE not in shown
