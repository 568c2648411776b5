"""Versions that were registered by hand, without the project's tags: a cached evaluation belongs to one policy only."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from flows.train import evaluate_splits
from models.policies.folder import hash_folder
from tasks.gate.judgement import OnGate
from tasks.registered.policy import PolicyFiles
from tasks.runner.step import StepResult
from tasks.tracking import aliases, registry, runs, tags

NAME = "arithmetic-policy"


class Recorder(SimpleNamespace):
    """A training that records the hash of the policy that it measures, for each role and split."""

    def __init__(self, folder: Path, run: str) -> None:
        made = StepResult(
            step="s", key="k", folder=str(folder), digest="d", headline="", metrics={}, run_id=run, seconds=0.0,
            links={"model_id": "m-1"},
        )  # fmt: skip
        super().__init__(warmed=made, tuned=made, digests={})

    def evaluated(self, role: str, policy: PolicyFiles, split: str = "validation") -> Any:
        self.digests[role, split] = policy.digest
        assert role in ("base", "candidate") or (policy.folder / "config.json").is_file()
        return self.tuned

    def evaluated_candidate(self) -> Any:
        return self.tuned

    def evaluated_on_suites(self, role: str, policy: PolicyFiles) -> dict[str, StepResult]:
        return {}

    def for_verdict(self, role: str, policy: PolicyFiles) -> OnGate:
        return OnGate(self.evaluated(role, policy, "gate"))


def scaled(folder: Path, target: Path, times: int) -> Path:
    """Copy a model, multiply its weights, and return the copy."""
    shutil.copytree(folder, target)
    weights = load_file(target / "model.safetensors")
    save_file(
        {name: times * tensor for name, tensor in weights.items()}, target / "model.safetensors", {"format": "pt"}
    )
    return target


@pytest.fixture
def by_hand(home: Path, policy_folder: Path, tmp_path: Path) -> tuple[str, list[Path]]:
    """Return the run and the folders of versions 1 to 3. Version 1 is the champion; the others have no tag."""
    run = runs.open_flow_run("arithmetic", "night")
    folders = [policy_folder, *(scaled(policy_folder, tmp_path / str(times), times) for times in (2, 3))]
    for number, folder in enumerate(folders):
        model = registry.log_model(run, folder, "policy", "text-generation")
        made_here = {tags.WEIGHTS_SHA256: hash_folder(folder), tags.DECISION: "promoted"}
        registry.register(NAME, model, {} if number else made_here)
    aliases.promote(NAME, 1)
    return run, folders


@pytest.mark.rotating(of=6)
def test_two_anchors_registered_by_hand_do_not_share_an_evaluation(by_hand, tmp_path: Path):
    run, folders = by_hand
    measured = []
    for anchor in (2, 3):
        aliases.set_anchor(NAME, anchor)
        training = Recorder(tmp_path, run)
        evaluate_splits(training, registry.champion(NAME), NAME)  # type: ignore[arg-type]
        measured.append(training.digests["anchor", "gate"])
        assert training.digests["champion", "gate"] == hash_folder(folders[0])
    assert measured == [hash_folder(folder) for folder in folders[1:]]


@pytest.mark.rotating(of=6)
def test_a_champion_registered_by_hand_is_known_by_its_files(by_hand, tmp_path: Path):
    run, folders = by_hand
    aliases.promote(NAME, 3)
    training = Recorder(tmp_path, run)
    evaluate_splits(training, registry.champion(NAME), NAME)  # type: ignore[arg-type]
    assert training.digests["champion", "gate"] == training.digests["champion", "validation"] == hash_folder(folders[2])
