"""Tests of the settings of suites, of the interpreter and of the hash of everything that a suite reads."""

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from models.base.errors import UserError
from models.recipes.load import load_recipe
from models.recipes.smoke import smoke_overrides
from models.recipes.suites import SuiteSettings
from tasks.harness import suite as suites
from tasks.harness.suite import read_suite

ROOT = Path(__file__).resolve().parents[3]
RECIPE = str(ROOT / "recipes" / "arithmetic.yaml")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Let this interpreter count as one that has the harnesses; return its packages, which a test may change."""
    versions = {"lm-eval": "0.4.13", "inspect-ai": "0.3.285"}
    monkeypatch.setattr(suites, "installed", lambda interpreter, packages: dict(versions))
    return versions


def settings(folder: Path, **others: object) -> SuiteSettings:
    given = {"harness": "lm-eval", "tasks": ["facts"], "include_path": str(folder), "python": sys.executable}
    return SuiteSettings.model_validate(given | others)


def test_a_recipe_names_suites_and_a_smoke_run_leaves_them_out() -> None:
    text = "[{harness: lm-eval, tasks: [gsm8k], limit: 200, guards: {gsm8k: {metric: exact_match, margin: 0.02}}}]"
    recipe = load_recipe(RECIPE, [f"evaluation.suites={text}"])
    (suite,) = recipe.evaluation.suites
    assert (suite.title, suite.limit, suite.guards["gsm8k"].margin) == ("lm-eval", 200, 0.02)
    assert "evaluation.suites=[]" in smoke_overrides(recipe)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{harness: lm-eval, tasks: [a]}, {harness: lm-eval, tasks: [b]}]", "two are called 'lm-eval'"),
        ("[{harness: lm-eval, tasks: []}]", "tasks: name one task or more"),
        ("[{harness: lm_eval, tasks: [a]}]", "harness"),
        ("[{harness: inspect, tasks: [a.py], few_shot: 2}]", "few_shot: only the harness lm-eval has it"),
        ("[{harness: lm-eval, tasks: [a], max_tokens: 9}]", "max_gen_toks"),
        ("[{harness: lm-eval, tasks: [a], system: Answer}]", "needs chat: true"),
        ("[{harness: lm-eval, tasks: [a], guards: {a: {metric: acc, margin: -1}}}]", "margin"),
        ("[{harness: lm-eval, tasks: [a], guards: {b: {metric: acc}}}]", "guards.b"),
    ],
)
def test_wrong_settings_are_refused_by_the_name_of_the_key(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_recipe(RECIPE, [f"evaluation.suites={text}"])


def test_the_hash_follows_settings_versions_and_bytes_but_not_paths_or_guards(
    task_folder: Path, tmp_path: Path, here: dict[str, str]
) -> None:
    first = read_suite(settings(task_folder), tmp_path).digest
    guarded = settings(task_folder, guards={"facts": {"metric": "acc"}}, name="own")
    assert read_suite(guarded, tmp_path).digest == first
    task_folder.rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    assert read_suite(settings(moved), tmp_path).digest == first
    assert read_suite(settings(moved, limit=3), tmp_path).digest != first
    here["lm-eval"] = "0.4.12"
    assert read_suite(settings(moved), tmp_path).digest != first
    here["lm-eval"] = "0.4.13"
    data = tmp_path / "facts.jsonl"
    data.write_text(data.read_text().replace("plus", "and", 1))  # a data file outside of the folder
    second = read_suite(settings(moved), tmp_path).digest
    assert second != first
    (moved / "code.py").write_text("x = 1\n")
    assert read_suite(settings(moved), tmp_path).digest not in (first, second)


def test_missing_files_and_interpreters_are_one_line(
    task_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REWARDFLOW_LM_EVAL", raising=False)
    with pytest.raises(UserError, match=r"lm-eval.python: .*no such interpreter; make the environment"):
        read_suite(settings(task_folder, python=""), tmp_path)
    with pytest.raises(UserError, match=r"has no lm-eval; install lm-eval.lock there"):
        read_suite(settings(task_folder), tmp_path)
    (task_folder / "other.yaml").write_text("task: x\ndataset_kwargs: {data_files: {test: none.jsonl}}\n")
    monkeypatch.setattr(suites, "installed", lambda *_: {"lm-eval": "1", "inspect-ai": "1"})
    with pytest.raises(UserError, match=r"other.yaml: dataset_kwargs.data_files: none.jsonl: no such file"):
        read_suite(settings(task_folder), tmp_path)
    (task_folder / "other.yaml").write_text("task: [x\n")
    with pytest.raises(UserError, match=r"other.yaml: not a task file in YAML"):
        read_suite(settings(task_folder), tmp_path)
    with pytest.raises(UserError, match=r"include_path: .*no such folder"):
        read_suite(settings(tmp_path / "none"), tmp_path)
    with pytest.raises(UserError, match=r"none.py: no such file"):
        read_suite(SuiteSettings(harness="inspect", tasks=("none.py",), python=sys.executable), tmp_path)


def test_tags_of_lm_eval_in_a_task_file_are_read(task_folder: Path, tmp_path: Path, here: dict[str, str]) -> None:
    (task_folder / "tagged.yaml").write_text("task: y\nprocess_docs: !function code.prepare\n")
    assert read_suite(settings(task_folder), tmp_path).versions == here


def test_a_suite_cannot_be_changed(task_folder: Path) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        settings(task_folder).limit = 3  # type: ignore[misc]
