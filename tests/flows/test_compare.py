"""Tests of `rewardflow compare` and of smoke runs: the printed lines, the tracking store and the plot."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project, rewardflow

from flows.command_line import main
from tasks.tracking import records, registry, store, summaries
from tests.support.tiny_models import NO_VLLM

pytestmark = pytest.mark.slow

CHEAP = ("evaluation.problems=2", "evaluation.samples=2", "warm_start.steps=1", "reward_model.fit.steps=1")
"""Overrides that make a smoke run even smaller."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("comparison") / "home"


@pytest.fixture
def configured(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure the store of the comparison for the queries of the tests."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(home)


@pytest.fixture(scope="module")
def said(project: Project, home: Path) -> str:
    """Compare a method that samples with one that does not, over two seeds. Return the output."""
    cheap = [word for setting in CHEAP for word in ("--set", setting)]
    ended = rewardflow(
        project.folder, "compare", "rloo", "dpo", "--seeds", "2", "--smoke", *cheap, **project.settings(home)
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.thorough
@pytest.mark.usefixtures("configured")
def test_the_table_has_a_line_a_method_and_the_run_holds_table_plot_and_numbers(said: str) -> None:
    lines = said.splitlines()
    (head,) = [number for number, line in enumerate(lines) if line.startswith("method ")]
    assert re.match(r"rloo +0\.\d+ \[0\.\d+, 0\.\d+\] {2,}", lines[head + 1])
    assert re.match(r"dpo +0\.\d+ \[0\.\d+, 0\.\d+\] +0\.\d\d \[0\.\d\d, 1?0?\.\d\d\]", lines[head + 2])
    (run,) = set(re.findall(r"/runs/([0-9a-f]{32})", said))
    page = store.client().get_run(run)
    names = ("rloo/iqm", "dpo/iqm", "dpo/probability_of_improvement", "rloo/optimality_gap", "dpo/optimality_gap")
    assert set(page.data.metrics) == {f"{name}{end}" for name in names for end in ("", "_low", "_high")}
    for name in names:
        low, middle, high = (page.data.metrics[f"{name}{end}"] for end in ("_low", "", "_high"))
        assert low <= middle <= high
    plots = [file.path for file in store.client().list_artifacts(run, "plots")]
    assert sorted(plots) == ["plots/comparison.png", "plots/profiles.png"]


@pytest.mark.thorough
@pytest.mark.usefixtures("configured")
def test_methods_get_as_many_completions_in_rounds_of_their_own_size(said: str) -> None:
    (run,) = set(re.findall(r"/runs/([0-9a-f]{32})", said))
    rows = records.read_table(run, "comparison.json")
    costs = [(row["method"], row["rounds"], row["completions"], row["updates"]) for row in rows]
    assert costs == [("rloo", 1, 16, 1), ("dpo", 2, 16, 2)]  # 4 prompts a round, with 4 or 2 completions each
    assert all(float(row["tokens"]) > 0 for row in rows)


@pytest.mark.thorough
@pytest.mark.usefixtures("configured", "said")
def test_each_training_is_a_child_run_with_its_recipe_and_no_policy_is_registered() -> None:
    (line,) = summaries.recent_runs("comparison-smoke", 5)
    children = summaries.run_summary("comparison-smoke", line.run_id).steps
    assert sorted(child.name for child in children) == [
        "dpo, seed 0", "dpo, seed 1", "rloo, seed 0", "rloo, seed 1",
    ]  # fmt: skip
    assert {child.status for child in children} == {"FINISHED"}
    assert registry.policy_names() == []
    for child in children:
        method, seed = child.name.split(", seed ")
        params = store.client().get_run(child.run_id).data.params
        assert (params["seed"], params["schedule.rounds"]) == (seed, "1" if method == "rloo" else "2")
        left = {file.path for file in store.client().list_artifacts(child.run_id, "recipe")}
        assert left == {f"recipe/{method}.yaml", "recipe/overrides.txt"}


@pytest.mark.rotating(of=8)
def test_what_is_wrong_is_one_line_before_anything_starts(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr("os.environ", {**os.environ, "REWARDFLOW_HOME": str(tmp_path / "untouched")})
    monkeypatch.setattr("sys.argv", ["rewardflow", "compare", "tiny", "rloo", "--metric", "sampled_acuracy"])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert (ended.value.code, out) == (1, "") and not (tmp_path / "untouched").exists()
    assert line.startswith("error: a comparison needs recipes with one task") and " in tiny and " in line


ON_VLLM = ("--set", "engine.name=vllm")
"""Override that selects vLLM. Its attention on a CPU needs heads of 32 numbers, as a smoke run has them."""


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        pytest.param(
            "rloo",
            ON_VLLM,
            marks=[NO_VLLM, pytest.mark.rotating(of=12, together="another smoke on vLLM")],
            id="rloo on vLLM",
        ),
        pytest.param("dpo", (), marks=pytest.mark.thorough, id="dpo"),
    ],
)
def test_a_smoke_run_goes_through_every_step_and_learns(
    project: Project, new_store: Callable[[Path], Path], tmp_path: Path, recipe: str, overrides: tuple[str, ...]
) -> None:
    """A smoke run uses transformers by default. One case uses vLLM, as other runs do, from start to gate."""
    own = project.settings(new_store(tmp_path))
    ended = rewardflow(project.folder, "run", recipe, "--smoke", *overrides, **own)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    steps = re.findall(r"^(\w[\w ]*?) +\d+\.\d  (?:run|reused) ", ended.stdout, flags=re.MULTILINE)
    judged = ["evaluate base", "evaluate candidate", "gate candidate", "gate base", "promote"]
    assert steps[-6:] == ["fine_tune", *judged]
    assert list((project.folder / "recipes").rglob(f"{recipe}.yaml"))
    assert re.search(r"^ +learn +\d+\.\d +\d+\.\d% +[1-9]", ended.stdout, flags=re.MULTILINE), ended.stdout
