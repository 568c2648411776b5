"""Real harnesses on tiny models: lm-eval through our server agrees with its own model `hf`, sample by sample."""

import json
import math
import os
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from prefect.logging import disable_run_logger

from models.base.errors import UserError
from models.evaluation.gate.suites import SuiteAnswers, SuiteGuard, suite_checks
from models.recipes.suites import SuiteSettings
from tasks.harness.results import read_scores
from tasks.harness.suite import read_suite
from tasks.registered.policy import given_policy
from tasks.runner.step import StepContext, StepResult
from tasks.steps.evaluate_suite import evaluate_suite, measure_suite
from tasks.tracking import runs, store
from tests.tasks.harness.conftest import interpreter, sections

pytestmark = [pytest.mark.thorough]
HF = """
import json, sys
import lm_eval
from lm_eval.tasks import TaskManager
given = json.loads(sys.argv[1])
results = lm_eval.simple_evaluate(
    model="hf", model_args={"pretrained": given["model"], "dtype": "float32"}, tasks=given["tasks"],
    limit=given["limit"], task_manager=TaskManager(include_path=given["folder"]), gen_kwargs=given["generation"],
    device="cpu", batch_size=4, bootstrap_iters=0, random_seed=0, numpy_random_seed=0, torch_random_seed=0,
    fewshot_random_seed=0, log_samples=True,
)
json.dump(results["samples"], open(given["output"], "w"), default=str)
"""
LIMIT, GENERATION = 8, {"max_gen_toks": 24}


def suite_of(folder: Path, tasks: list[str], **others: Any) -> SuiteSettings:
    given = {"harness": "lm-eval", "tasks": tasks, "include_path": str(folder), "python": interpreter("lm-eval")}
    return SuiteSettings.model_validate(given | {"limit": LIMIT, "generation": GENERATION} | others)


def by_sample(rows: list[dict[str, Any]]) -> dict[tuple[int, str], dict[str, Any]]:
    return {(row["doc_id"], row["filter"]): row for row in rows}


def test_lm_eval_through_our_server_equals_its_own_run_of_the_same_weights_sample_by_sample(
    models: tuple[Path, Path], gsm8k_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = ["gsm8k_local", "facts"]
    suite = read_suite(suite_of(gsm8k_folder, tasks), tmp_path)
    given = {
        "model": str(models[0]), "tasks": tasks, "limit": LIMIT, "folder": str(gsm8k_folder),
        "generation": GENERATION, "output": str(tmp_path / "hf.json"),
    }  # fmt: skip
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    command = [suite.interpreter, "-c", HF, json.dumps(given)]
    own = subprocess.run(command, env=offline, capture_output=True, text=True, cwd=tmp_path, check=False)
    if own.returncode and "No module named 'torch'" in own.stderr:
        pytest.skip("the environment of lm-eval has no torch, which its own model hf needs")
    assert own.returncode == 0, own.stderr[-2000:]
    expected = json.loads((tmp_path / "hf.json").read_text())

    monkeypatch.setattr("tasks.steps.evaluate_suite.shutil.rmtree", lambda *_, **__: None)  # keeps the files of lm-eval
    measure_suite(models[0], sections(), suite, tmp_path / "ours")
    files = json.loads((tmp_path / "ours/harness/outcome.json").read_text())["files"]
    texts = 0
    for task in tasks:
        lines = (tmp_path / "ours/harness" / files[task]).read_text().splitlines()
        ours, theirs = by_sample([json.loads(line) for line in lines]), by_sample(expected[task])
        assert ours.keys() == theirs.keys() and len({document for document, _ in ours}) == LIMIT
        for key, row in ours.items():
            for name in row["metrics"]:
                assert row[name] == theirs[key][name], (task, key, name)
            if task == "gsm8k_local":
                assert row["resps"] == theirs[key]["resps"] and row["filtered_resps"] == theirs[key]["filtered_resps"]
                texts += bool(row["resps"][0][0])
            else:
                for ((value, greedy),), ((other, other_greedy),) in zip(
                    row["resps"], theirs[key]["resps"], strict=True
                ):
                    assert math.isclose(float(value), float(other), abs_tol=2e-4)
                    assert str(greedy) == str(other_greedy)
    assert texts == 2 * LIMIT  # two filters


def test_a_step_measures_logs_and_a_guard_refuses_a_model_that_is_worse(
    models: tuple[Path, Path], task_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.compute.shared_engine.gpu_slot", nullcontext)
    settings = suite_of(task_folder, ["facts"], guards={"facts": {"metric": "acc", "margin": 0.2}}, limit=None)
    suite, home = read_suite(settings, tmp_path), tmp_path / "home"
    store.configure(home)
    run = runs.open_flow_run("tiny", "a flow")

    def measured(model: Path) -> StepResult:
        context = StepContext("evaluate_suite", model.name * 24, sections(), home, run, name=f"suite {model.name}")
        with disable_run_logger():
            return evaluate_suite.fn(context, given_policy(str(model)), suite)

    results = sorted((measured(model) for model in models), key=lambda result: result.metrics["suite/facts/acc"])
    scores = [read_scores(Path(result.folder)) for result in results]
    assert results[0].metrics["suite/facts/acc"] < results[1].metrics["suite/facts/acc"]
    assert results[1].headline.startswith("facts acc 0.") and not list(home.glob("store/*/*/harness"))
    assert store.client().get_run(results[0].run_id).data.metrics["suite/facts/acc_high"] > 0

    guards = {"lm-eval": {"facts": SuiteGuard(metric="acc", margin=0.2)}}
    for candidate, baseline, failed in ((scores[0], scores[1], True), (scores[1], scores[1], False)):
        (check,), _ = suite_checks(guards, {"lm-eval": SuiteAnswers(candidate, baseline)}, 0.95, anchored=False)
        assert check.name == "suite_lm-eval_facts" and check.failed == failed


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (["gsm8k"], "task gsm8k wants the network .*; name a task file with dataset_path: json and data_files"),
        (["no_such_task"], "task no_such_task: lm-eval does not know it"),
    ],
)
def test_a_task_that_cannot_run_is_one_line(
    models: tuple[Path, Path], task_folder: Path, tmp_path: Path, tasks: list[str], message: str
) -> None:
    suite = read_suite(suite_of(task_folder, tasks), tmp_path)
    with pytest.raises(UserError, match=f"evaluation.suites: lm-eval: .*{message}") as refused:
        measure_suite(models[0], sections(), suite, tmp_path / "ours")
    assert "\n" not in str(refused.value) and not (tmp_path / "ours/samples.parquet").exists()


def test_inspect_runs_a_task_file_on_the_policy(models: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(
        "from inspect_ai import Task, task\n"
        "from inspect_ai.dataset import Sample\n"
        "from inspect_ai.scorer import includes\n"
        "from inspect_ai.solver import generate\n"
        "@task\n"
        "def sums():\n"
        "    samples = [Sample(id=str(n), input=f'What is {n} plus 1?', target='') for n in range(4)]\n"
        "    return Task(dataset=samples, solver=[generate()], scorer=includes())\n"
    )
    settings = SuiteSettings(
        harness="inspect", tasks=(f"{tmp_path}/sums.py@sums",), python=interpreter("inspect"), limit=3, max_tokens=12
    )
    drawn = measure_suite(models[0], sections(chat=True), read_suite(settings, tmp_path), tmp_path / "ours")
    assert read_scores(tmp_path / "ours").tasks == {"sums": {"includes": {"0": 1.0, "1": 1.0, "2": 1.0}}}
    assert 0 < drawn <= 36
