"""Tests of the command line: the packages that it loads before it answers, and its reply to wrong arguments."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from project import environment, rewardflow
from running import ROOT

from flows import command_line
from flows.runtime import command_options
from models.base.errors import UserError
from tasks.pages import timing
from tasks.tracking import records, registry, runs, store

LARGE = (
    "torch",
    "transformers",
    "prefect",
    "mlflow",
    "pandas",
    "numpy",
    "dvc",
    "great_expectations",
    "vllm",
    "scipy",
    "psutil",
)

LOADED = f"""
import sys
from flows.command_line import main
sys.argv = ["rewardflow", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(end.code, [name for name in {LARGE!r} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    ("arguments", "says", "status"),
    [
        (["--help"], "", 0),
        (["run", "--help"], "", 0),
        (["--version"], "", 0),
        (["run", "arithmetik"], "error: arithmetik: no such recipe; did you mean recipes/arithmetic.yaml?", 1),
        (
            ["compare", "grpo", "ploo"],
            "error: ploo: no such recipe; did you mean recipes/policy-gradient/rloo.yaml?",
            1,
        ),
        (["runs"], "", 0),
        (["models"], "", 0),
    ],
)
def test_an_answer_that_needs_no_large_package_loads_none(
    arguments: list[str], says: str, status: int, tmp_path: Path
) -> None:
    """This test checks the loaded packages. `python -m benchmarks --only commands` measures the seconds."""
    asked = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        cwd=ROOT,
        env=environment(REWARDFLOW_HOME=str(tmp_path / "home")),
        capture_output=True,
        text=True,
    )
    *lines, loaded = asked.stderr.splitlines()
    assert loaded == f"{status} []", asked.stderr
    assert lines == ([says] if says else [])
    assert not (tmp_path / "home").exists()


@pytest.mark.rotating(of=6)
def test_a_recipe_is_checked_without_what_only_training_needs() -> None:
    wanted = ("transformers", "sklearn", "scipy", "torch._dynamo", "pandas")
    code = (
        "import sys; from models.recipes.load import load_recipe; load_recipe('arithmetic'); "
        f"print([name for name in {wanted!r} if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "[]\n"


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("limit", ["-1", "0", "x"])
def test_a_limit_that_is_no_number_of_runs_is_wrong_usage(limit: str, tmp_path: Path) -> None:
    asked = rewardflow(ROOT, "runs", "--limit", limit, REWARDFLOW_HOME=str(tmp_path))
    assert asked.returncode == 2 and "--limit" in asked.stderr and "Traceback" not in asked.stderr


# ---------------------------------------- with a store


@pytest.fixture
def home(tmp_path: Path, new_store: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    new_store(tmp_path)
    monkeypatch.setattr("os.environ", {**os.environ, "REWARDFLOW_HOME": str(tmp_path)})
    return tmp_path


def tell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command in this process. Return its exit status, output and error output."""
    monkeypatch.setattr("sys.argv", ["rewardflow", *arguments])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    said = capsys.readouterr()
    code = ended.value.code
    return code if isinstance(code, int) else 0, said.out, said.err


@pytest.mark.rotating(of=6)
def test_runs_and_models_of_every_recipe_are_listed_and_shown_by_what_is_typed_of_them(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = runs.open_flow_run("arithmetic", "train arithmetic")
    run = runs.open_flow_run("hh", "train hh")
    for run_id in (gone, run):
        runs.close_run(run_id)
    store.client().create_registered_model("hh-policy")
    for number in ("1", "2"):
        store.client().create_model_version("hh-policy", f"file:///nowhere/{number}")
    store.client().set_registered_model_alias("hh-policy", "champion", "2")

    code, listed, _ = tell(monkeypatch, capsys, "runs")
    assert code == 0 and [line.split()[5:] for line in listed.splitlines()[1:]] == [
        ["hh", "train", "hh"],
        ["arithmetic", "train", "arithmetic"],
    ]
    _, listed, _ = tell(monkeypatch, capsys, "runs", "hh")
    assert run[:8] in listed and gone[:8] not in listed
    for wanted in ("latest", run, run[:8]):
        _, shown, _ = tell(monkeypatch, capsys, "show", wanted)
        assert shown.startswith(f"train hh  {run}")
    _, models, _ = tell(monkeypatch, capsys, "models")
    assert [line.split()[:2] for line in models.splitlines()[1:]] == [["hh-policy", "2"], ["hh-policy", "1"]]
    assert "champion" in models.splitlines()[1]
    assert registry.model_names() == ["hh-policy"]

    for arguments, says in (
        (["runs", "nosuch"], "error: no recipe 'nosuch' was run here; there is arithmetic, hh"),
        (["runs", "arithmetik"], "error: no recipe 'arithmetik' was run here; did you mean arithmetic?"),
        (["show", "zz"], "error: no run 'zz'; `rewardflow runs` lists those that there are"),
        (["models", "nosuch"], "error: no model 'nosuch'; there is hh-policy"),
    ):
        assert tell(monkeypatch, capsys, *arguments) == (1, "", f"{says}\n")
    store.client().create_registered_model("hh-smoke-policy")
    assert command_options.meant_policy("") == "hh-policy"
    store.client().create_registered_model("gsm8k-policy")
    with pytest.raises(UserError, match="which policy"):
        command_options.meant_policy("")
    assert tell(monkeypatch, capsys, "--version") == (0, f"rewardflow {version('rewardflow')}\n", "")


@pytest.mark.rotating(of=6)
def test_a_run_is_shown_with_its_slowest_stage_once_its_times_are_logged(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = runs.open_flow_run("hh", "train hh")
    step = runs.open_step_run(flow, "fine_tune")
    assert "slowest stage" not in tell(monkeypatch, capsys, "show", flow)[1]
    lines = [
        timing.TimeLine("generate", 4.0, 0.4, 100.0),
        timing.TimeLine("learn", 6.0, 0.6, 300.0),
        timing.TimeLine(timing.TOGETHER, 10.0, 1.0),
    ]
    records.log_table(step, timing.TABLE, timing.table_rows(lines))
    shown = tell(monkeypatch, capsys, "show", flow)[1]
    assert "  slowest stage: learn takes 60.0% of the rounds: 6.0 of 10.0 s, 300 tokens/s\n" in shown
