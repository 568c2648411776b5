"""Tests of `rewardflow merge`: a merged version is evaluated, judged and traced to its parents."""

from pathlib import Path

import pytest
import torch
from project import Project, Ran, rewardflow, run_here, with_model_folders
from safetensors.torch import load_file

from models.policies.merge import MergeSettings, merge_states
from tasks.tracking import registry, store, tags
from tasks.tracking.lineage import lineage, render

MODEL = "tiny-policy"


@pytest.mark.slow
@pytest.mark.thorough
def test_two_versions_become_a_judged_candidate_that_names_its_parents_and_cannot_be_trained_again(
    project: Project, first: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = project.copy_home(tmp_path / "home")
    settings = project.settings(home)
    second = rewardflow(project.folder, "run", "tiny", "--set", "schedule.rounds=2", **settings)
    assert second.returncode == 0, second.stdout + second.stderr
    command = ("merge", "1", "2", "--method", "ties", "--density", "0.5", "--weight", "1", "--weight", "2")
    done = rewardflow(project.folder, *command, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 policies by ties, weights 1 2, density 0.5" in done.stdout
    for step in ("merge", "evaluate candidate", "gate candidate", "promote"):
        assert f"\n{step}" in done.stdout, step
    assert "warm_start" in done.stdout and "verdict    " in done.stdout

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(home)
    version = registry.version_info(MODEL, 3)
    facts = registry.facts_of(version)
    wanted = f"{MODEL}/1, {MODEL}/2 on the warm start by ties, weights 1 2, density 0.5"
    assert facts[tags.MERGED_FROM] == wanted and wanted in version.description
    assert "candidate" in version.aliases and facts[tags.DECISION] and facts[tags.EVALUATION_RUN]
    assert facts[tags.REWARD_MODEL_VERSION]
    chain = render(lineage(MODEL, 3))
    assert f"merged from: {wanted}" in chain
    assert f"starts from {MODEL} version 1" in chain and f"starts from {MODEL} version 2" in chain
    (warm_start,) = {path.parent.parent for path in (home / "store/warm_start").glob("*/policy/model.safetensors")}
    states = [load_file(registry.fetch(f"models:/{MODEL}/{number}") / "model.safetensors") for number in (1, 2, 3)]
    base = load_file(warm_start / "policy" / "model.safetensors")
    method = MergeSettings(method="ties", weights=(1, 2), density=0.5)
    expected = dict(merge_states(method, states[:2], base))
    assert all(torch.equal(states[2][name], value) for name, value in expected.items())

    again = rewardflow(project.folder, *command, **settings)
    assert again.returncode == 0 and "nothing changed, judged before" in again.stdout, again.stdout + again.stderr
    refused = rewardflow(project.folder, "reproduce", f"{MODEL}/3", **settings)
    assert refused.returncode == 2 and "was not trained but merged" in refused.stderr
    card = tmp_path / "exported"
    assert rewardflow(project.folder, "export", f"{MODEL}/3", str(card), **settings).returncode == 0
    assert "A policy that Rewardflow merged from others." in (card / "README.md").read_text()


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["A", "B", "--method", "linear"], "--recipe: all models are folders"),
        (["A", "B", "--method", "linear", "--weight", "1"], "--weight: 1 given for 2 models"),
        (["A", "B", "--method", "linear", "--base", "A"], "--base: linear merges the weights themselves"),
        (["A", "B", "--method", "ties", "--density", "2"], "--density: 2 is not above 0 and at most 1"),
        (["A", "OTHER", "--method", "linear", "--recipe", "arithmetic"], "but 24 in"),
        (["A", "none-policy/7", "--method", "linear", "--recipe", "arithmetic"], "no version 7"),
    ],
    ids=["no recipe", "weights", "base", "density", "another vocabulary", "no version"],
)
def test_a_wrong_argument_is_one_line_before_anything_starts(
    arguments: list[str], line: str, new_store: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(new_store)
    monkeypatch.setenv("REWARDFLOW_HOME", str(new_store(tmp_path / "home")))
    status, _, errors = run_here("merge", *with_model_folders(arguments, tmp_path))
    assert status == 1 and line in errors and len(errors.splitlines()) == 1
