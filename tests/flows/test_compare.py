"""What must be true of comparing recipes and of smoke runs, as a user calls them: the command, the store, the plot."""

import re
from pathlib import Path

import pytest
from project import Project, rewardflow

from tasks.tracking import records, registry, store, summaries

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("comparison") / "home"


@pytest.fixture
def configured(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries of the tests go to the store of the comparison."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(home)


@pytest.fixture(scope="module")
def said(project: Project, home: Path) -> str:
    """What comparing two recipes over two seeds prints."""
    ended = rewardflow(
        project.folder, "compare", "tiny", "rloo", "--seeds", "2", "--smoke", "--set", "evaluation.problems=4",
        **project.settings(home),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.usefixtures("configured")
def test_the_table_has_a_line_a_method_and_the_run_holds_table_plot_and_numbers(said: str) -> None:
    lines = said.splitlines()
    (head,) = [number for number, line in enumerate(lines) if line.startswith("method ")]
    assert re.match(r"tiny +0\.\d+ \[0\.\d+, 0\.\d+\] {2,}", lines[head + 1])
    assert re.match(r"rloo +0\.\d+ \[0\.\d+, 0\.\d+\] +0\.\d\d \[0\.\d\d, 1?0?\.\d\d\]", lines[head + 2])
    (run,) = set(re.findall(r"/runs/([0-9a-f]{32})", said))
    found = store.client().get_run(run)
    assert {"tiny/iqm", "rloo/iqm", "rloo/probability_of_improvement"} == set(found.data.metrics)
    rows = records.read_table(run, "comparison.json")
    assert [row["method"] for row in rows] == ["tiny", "rloo"] and all(float(row["tokens"]) > 0 for row in rows)
    plots = [file.path for file in store.client().list_artifacts(run, "plots")]
    assert plots == ["plots/comparison.png"]


@pytest.mark.usefixtures("configured", "said")
def test_each_training_is_a_child_run_and_no_policy_is_registered() -> None:
    (line,) = summaries.recent_runs("comparison", 5)
    children = summaries.run_summary("comparison", line.run_id).steps
    assert sorted(child.name for child in children) == [
        "rloo, seed 0", "rloo, seed 1", "tiny, seed 0", "tiny, seed 1",
    ]  # fmt: skip
    assert {child.status for child in children} == {"FINISHED"}
    assert registry.policy_names() == []


def test_a_single_recipe_is_nothing_to_compare(project: Project, tmp_path: Path) -> None:
    ended = rewardflow(project.folder, "compare", "tiny", "tiny", **project.settings(tmp_path / "home"))
    assert ended.returncode == 1 and "needs two recipes or more" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_smoke_run_goes_through_every_step_and_learns(project: Project, home: Path, said: str) -> None:
    ended = rewardflow(project.folder, "run", "dpo", "--smoke", **project.settings(home))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    steps = re.findall(r"^(\w[\w ]*?) +\d+\.\d  (?:run|reused) ", ended.stdout, flags=re.MULTILINE)
    assert steps[-4:] == ["fine_tune", "evaluate base", "evaluate candidate", "promote"]
    assert (project.folder / "recipes" / "dpo.yaml").is_file()
    assert re.search(r"^ +learn +\d+\.\d +\d+\.\d% +[1-9]", ended.stdout, flags=re.MULTILINE), ended.stdout
