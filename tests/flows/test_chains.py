"""Chains of recipes: a stage is a run of its own, and the next one begins with its policy, bit for bit."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import Project, Ran, command, environment, rewardflow
from running import wait_for

from models.policies.folder import hash_folder
from tasks.tracking import aliases, needs, registry, store, tags

pytestmark = [pytest.mark.slow, pytest.mark.rotating(of=12, together="chains of recipes")]

FIRST = """
extends: tiny
schedule: {rounds: 2}
"""
SECOND = """
extends: tiny
policy: {base: {recipe: HERE/stage_one.yaml, set: [seed=1]}}
warm_start: null
reward_model: null
rewards: [{name: coin}]
schedule: {rounds: 2}
"""


class Chain:
    """Two recipes next to each other, of which the second begins with the policy of the first, and a state folder."""

    def __init__(self, project: Project, folder: Path, first: str = FIRST, second: str = SECOND) -> None:
        self.project, self.folder, self.home = project, folder, project.copy_home(folder / "home")
        (folder / "stage_one.yaml").write_text(first)
        self.second = folder / "stage_two.yaml"
        self.second.write_text(second.replace("HERE", str(folder)))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the second recipe, and with it the first."""
        return rewardflow(self.project.folder, "run", str(self.second), *arguments, **self.project.settings(self.home))

    def ran(self, *arguments: str) -> str:
        """Run it and return the output of a run that ended well or without learning."""
        ended = self.run(*arguments)
        assert ended.returncode in (0, 3), ended.stdout + ended.stderr
        return ended.stdout

    def ask(self, *arguments: str) -> str:
        """Run a command that only reads, and return its output."""
        status, out, errors = self.project.ask(*arguments, home=self.home)
        assert status == 0, errors
        return out


@pytest.fixture(scope="module")
def chain(project: Project, first: Ran, tmp_path_factory: pytest.TempPathFactory) -> tuple[Chain, str]:
    """Run a chain of two stages, and return it with its output."""
    made = Chain(project, tmp_path_factory.mktemp("chain"))
    return made, made.ran()


@pytest.fixture
def tracked(chain: tuple[Chain, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Chain]:
    """Return the chain, with its store configured for queries."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(chain[0].home)
    yield chain[0]


def test_a_stage_is_a_run_with_a_gate_of_its_own_and_the_next_run_names_its_version(
    chain: tuple[Chain, str], tracked: Chain
) -> None:
    said = chain[1]
    assert re.search(r"^stage      models:/stage_one-policy/1  (kept|refused|promoted)", said, flags=re.MULTILINE)
    (stage,), (policy,) = registry.versions("stage_one-policy"), registry.versions("stage_two-policy")
    assert registry.facts_of(policy)[tags.BASE_VERSION] == "stage_one-policy/1"
    assert tags.BASE_VERSION not in registry.facts_of(stage) and tags.DECISION in stage.tags
    assert registry.facts_of(stage)[tags.SEED] == "1" and registry.facts_of(policy)[tags.SEED] == "0"
    run = registry.facts_of(policy)[tags.RUN]
    assert store.client().get_run(run).data.params["policy.base"] == "models:/stage_one-policy/1"


def test_the_second_stage_equals_a_run_by_hand_on_the_folder_of_the_first_bit_for_bit(tracked: Chain) -> None:
    folder = registry.fetch("models:/stage_one-policy/1")
    (policy,) = registry.versions("stage_two-policy")
    tracked.ran("--set", f"policy.base={folder}", "--set", "name=by_hand", "--refresh")
    (by_hand,) = registry.versions("by_hand-policy")
    assert by_hand.tags[tags.WEIGHTS_SHA256] == policy.tags[tags.WEIGHTS_SHA256] != hash_folder(folder)


def test_a_second_run_reuses_both_stages_and_registers_nothing(tracked: Chain) -> None:
    said = tracked.ran()
    rows = re.findall(r"^(\w[\w ]*?) +\d+\.\d  (run|reused) ", said, flags=re.MULTILINE)
    assert {how for name, how in rows if name != "promote"} == {"reused"}
    assert len(registry.versions("stage_one-policy")) == len(registry.versions("stage_two-policy")) == 1


def test_lineage_export_and_plan_name_the_stages(tracked: Chain, tmp_path: Path) -> None:
    said = tracked.ask("lineage", "1", "--model", "stage_two-policy")
    assert "stage stage_one-policy version 1" in said and "trained on from: stage_one-policy/1" in said
    assert "recipe: stage_one" in said
    tracked.ask("export", "stage_two-policy/1", str(tmp_path / "out"))
    assert "- stages: stage\\_one-policy/1" in (tmp_path / "out" / "README.md").read_text()
    assert "policy.size of the first stage, stage_one" in tracked.ask("plan", str(tracked.second))
    said = tracked.ask("diff", "stage_one-policy/1", "stage_two-policy/1", "--json")
    changed = {setting["name"]: setting["after"] for setting in json.loads(said)["recipe"]}
    assert changed["policy.base"] == "models:/stage_one-policy/1"


def test_a_lasting_version_needs_the_outputs_of_its_stages(tracked: Chain) -> None:
    (stage,) = registry.versions("stage_one-policy")
    aliases.promote("stage_two-policy", 1)
    need = needs.needed_runs()[stage.run_id]
    assert need.lasting and "stage_one-policy version 1" in need.why


def test_a_stage_that_stops_with_an_error_stops_the_chain_in_one_line(
    project: Project, first: Ran, tmp_path: Path
) -> None:
    broken = Chain(project, tmp_path)
    broken.second.write_text(broken.second.read_text().replace("seed=1", "reward_model.least_accuracy=1.0"))
    ended = broken.run()
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: the stage stage_one stopped, so stage_two did not begin: ")
    assert ended.returncode == 1


DEMONSTRATED = """
extends: tiny
reward_model: null
rewards: [{name: coin}]
schedule: null
"""
AGAINST = """
extends: tiny
models: {rival: {recipe: HERE/stage_one.yaml, set: [seed=5]}}
policy: {base: {recipe: HERE/stage_one.yaml}}
warm_start: null
reward_model: null
rewards: [{name: coin}]
rollouts:
  name: episodes
  environment: {name: table, others: frozen, measured_against: frozen, model: rival}
  turns: 2
  max_tokens: 16
schedule: {rounds: 2}
evaluation: {problems: 4, samples: 2, ks: [1]}
gate: {problems: 4, samples: 2}
"""


def test_a_stage_without_reinforcement_learning_and_a_rival_by_name_are_made_first(
    project: Project, first: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Chain(project, tmp_path, DEMONSTRATED, AGAINST)
    said = made.ran()
    assert "stage      models:/stage_one-policy/1  not judged, it has no schedule" in said
    assert re.search(r"^models.rival: warm_start +\d", said, flags=re.MULTILINE)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(made.home)
    (stage,), (policy,) = registry.versions("stage_one-policy"), registry.versions("stage_two-policy")
    assert tags.DECISION not in stage.tags and registry.facts_of(policy)[tags.BASE_VERSION] == "stage_one-policy/1"
    run = store.client().get_run(registry.facts_of(policy)[tags.RUN])
    (made_file,) = [
        file for file in made.home.glob("store/warm_start/*/result.json")
        if run.data.tags[tags.MODELS] == f"rival={json.loads(file.read_text())['digest']}"
    ]  # fmt: skip
    assert run.data.params["rollouts.environment.model"] == "rival" and made_file.is_file()
    assert not (registry.fetch(policy.uri) / "partner").exists()  # the recipe names it


@pytest.mark.thorough
@pytest.mark.faults
def test_a_run_that_is_killed_in_either_stage_resumes_and_ends_with_the_same_bits(
    project: Project, tracked: Chain, tmp_path: Path
) -> None:
    killed = Chain(project, tmp_path)
    for number in (1, 2):
        process = subprocess.Popen(
            command("run", str(killed.second)),
            cwd=project.folder,
            env=environment(**project.settings(killed.home)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        note = killed.home / "unfinished" / f"stage_{'one' if number == 1 else 'two'}.json"
        wait_for(f"the start of stage {number}", note.is_file, process)
        checkpoint = killed.home / json.loads(note.read_text())["folder"] / "checkpoints" / "round_000001"
        wait_for(f"a checkpoint of stage {number}", checkpoint.is_dir, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    killed.ran("--resume")
    weights = [json.loads(file.read_text())["digest"] for file in killed.home.glob("store/fine_tune/*/result.json")]
    for name in ("stage_one-policy", "stage_two-policy"):
        assert registry.versions(name)[0].tags[tags.WEIGHTS_SHA256] in weights
