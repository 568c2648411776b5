"""Tests of the main flow as a user runs it, with real data versions, validation, engine, store and server."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from project import Project, Ran, Unchanged, rewardflow
from running import ask, wait_for

from tasks.tracking import records, registry, store, summaries, tags

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("configured")]

STEPS = [
    "data", "validate", "warm_start", "reward_model", "fine_tune", "evaluate base", "evaluate candidate",
    "gate candidate", "gate base", "promote",
]  # fmt: skip
VLLM = pytest.param("vllm", marks=pytest.mark.thorough)


def fine_tuned(home: Path, rounds: int = 4) -> dict[str, Any]:
    """Return the only fine-tuning result of the state folder with this number of rounds, and its `folder`."""
    runs_of_step = [
        json.loads(file.read_text()) | {"folder": file.parent} for file in home.glob("store/fine_tune/*/result.json")
    ]
    (result,) = [result for result in runs_of_step if f"in {rounds} rounds" in result["headline"]]
    return result


def opening(description: str) -> tuple[str, str]:
    """Return the first two lines of a run's description: the warning that it is not pinned, and the headline."""
    warning, headline = [line for line in description.splitlines() if line][:2]
    assert warning.startswith("> **Not pinned, so it cannot be reproduced:** ")
    return warning, headline


# ---------------------------------------- the first run


def test_every_step_runs_and_the_closing_table_says_so(first: Ran) -> None:
    assert first.table == dict.fromkeys(STEPS, "run") | ({"data": "reused"} if first.prepared else {})
    after = first.out[first.out.index("promote") :]
    assert re.search(r"^verdict +(kept|refused|promoted): ", after, flags=re.MULTILINE)
    assert f"/runs/{first.run_id}" in after.splitlines()[-2] + after.splitlines()[-1]


def test_the_flow_leaves_a_parent_run_and_a_child_for_every_step(first: Ran) -> None:
    summary = summaries.run_summary("tiny", first.run_id)
    assert summary.line.status == "FINISHED"
    assert [(step.name, step.status) for step in summary.steps] == [(name, "FINISHED") for name in STEPS]
    assert re.match(r"v1 (not better|refused|promoted) [+-]\d+\.\d \[", summary.line.name)
    assert re.match(r"## . (Not better|Refused|Promoted): tiny-policy version 1$", opening(summary.description)[1])
    assert {"recipe/tiny.yaml", "plots/training.png", "plots/accuracy_by_level.png"} <= artifacts(first.run_id)
    assert {"recipe/whole.json", "recipe/asked.json", "environment/packages.txt", "environment/machine.json"} <= (
        artifacts(first.run_id)
    )


def test_the_data_stand_in_the_store_with_the_hashes_that_dvc_pins(first: Ran, locked: dict[str, str]) -> None:
    for step in ("data", "validate"):
        links = {link.name: link.digest for link in summaries.data_of(first.child(step))}
        assert links["arithmetic"] == locked["data/prepared/arithmetic"]
        assert links["arithmetic/raw"] == locked["data/raw/arithmetic"]


def test_the_policy_names_the_version_of_the_reward_model_that_it_was_trained_against(first: Ran) -> None:
    pinned = first.child("fine_tune").data.tags[tags.REWARD_MODEL_VERSION]
    name, _, version = pinned.rpartition("/")
    model_id = registry.version_info(name, int(version)).model_id
    assert model_id in [entry.model_id for entry in first.child("fine_tune").inputs.model_inputs]
    (policy,) = registry.versions("tiny-policy")
    assert registry.facts_of(policy)[tags.REWARD_MODEL_VERSION] == pinned


def test_a_reviewer_finds_samples_curves_and_at_most_sixty_keys_a_run(first: Ran) -> None:
    trained = first.child("fine_tune")
    assert {"samples/round_00001.json", "samples/round_00004.json", "plots/training.png"} <= artifacts(
        trained.info.run_id
    )
    rows = records.read_table(trained.info.run_id, "samples/round_00004.json")
    assert len(rows) >= 10 and {"prompt", "completion", "reward", "exact_answer", "reward_model"} <= set(rows[0])
    history = store.client().get_metric_history(trained.info.run_id, "reward/total")
    assert [point.step for point in history] == [1, 2, 3, 4]
    assert "plots/calibration.png" in artifacts(first.child("reward_model").info.run_id)
    everything = store.client().search_runs([trained.info.experiment_id], max_results=1000)
    assert max(len(run.data.metrics) for run in everything) <= 60


def test_reinforcement_learning_changes_the_weights(first: Ran) -> None:
    (warm,) = [json.loads(file.read_text()) for file in first.home.glob("store/warm_start/*/result.json")]
    (policy,) = registry.versions("tiny-policy")
    assert policy.tags[tags.WEIGHTS_SHA256] == fine_tuned(first.home)["digest"] != warm["digest"]


@pytest.mark.thorough
def test_by_its_alias_the_policy_says_the_same_in_transformers_and_in_vllm(first: Ran) -> None:
    import mlflow
    import torch

    from models.engines.engine import EngineSettings, Sampling
    from models.engines.vllm_engine import VllmEngine
    from models.text.encoding import Codec
    from models.text.tokenizer import load_tokenizer

    uri = "models:/tiny-policy@candidate"
    pipeline = mlflow.transformers.load_model(uri)
    folder = registry.fetch(uri)
    codec = Codec(load_tokenizer(folder), chat=False)
    prompts = codec.prompts(["Start with 7 . Add 5 . Take away 3 .", "Start with 2 . Double it ."])
    engine = VllmEngine(folder, EngineSettings(), longest=128, end=codec.end, seed=0)
    try:
        said = engine.generate(prompts, Sampling(max_tokens=16, temperature=0.0), seed=0)
    finally:
        engine.close()
    for ids, (completion,) in zip(prompts, said, strict=True):
        given = torch.tensor([ids])
        written = pipeline.model.generate(
            given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=16, eos_token_id=codec.end
        )
        assert tuple(written[0, len(ids) :].tolist()) == completion.tokens


def test_a_version_does_not_differ_from_the_run_that_made_it(project: Project, first: Ran, tmp_path: Path) -> None:
    status, said, errors = project.ask("diff", "candidate", first.run_id, "--page", str(tmp_path / "page.html"))
    assert (status, errors) == (0, "")
    assert said.startswith(f"tiny-policy version 1  ->  run {first.run_id[:8]} ")
    for line in (
        "recipe: no difference",
        "packages: no difference",
        "machine: no difference",
        "0 became wrong, 0 right",
    ):
        assert line in said
    assert f"code: {first.commit}" in said and "not compared" not in said
    assert "tiny-policy version 1" in (tmp_path / "page.html").read_text()
    _, said, _ = project.ask("diff", "1", "1", "--json")
    assert json.loads(said)["data"]["splits"] == []


def test_lineage_prints_the_chain_from_the_raw_datas_hash_to_the_alias(
    project: Project, first: Ran, locked: dict[str, str]
) -> None:
    _, said, _ = project.ask("lineage", "1")
    for link in (
        f"md5 {locked['data/raw/arithmetic']}",
        locked["data/prepared/arithmetic"],
        "reward model tiny-reward-model version 1",
        f"git commit: {first.commit}",
        f"weights sha256: {fine_tuned(first.home)['digest']}",
        "better: ",
        "aliases: candidate",
    ):
        assert link in said


def test_runs_and_show_tell_of_the_run(project: Project, first: Ran) -> None:
    assert first.run_id[:8] in project.ask("runs", "tiny")[1]
    _, page, _ = project.ask("show", first.run_id)
    assert page.startswith("v1 ") and first.run_id in page and "FINISHED" in page
    assert re.search(r"(?i)kept|refused|promoted", page)
    newest = summaries.recent_runs("tiny", 1)[0]  # this run or one of an earlier test
    _, page, _ = project.ask("show", "latest", "--experiment", "tiny")
    assert " ".join(page.split()).startswith(
        " ".join(f"{newest.name} {newest.run_id}".split())
    )  # long names are wrapped


def test_the_audit_log_of_a_first_run_is_printed_and_an_approval_of_what_does_not_wait_is_one_line(
    project: Project, first: Ran
) -> None:
    status, page, _ = project.ask("audit")
    entry, *_, last = page.splitlines()
    assert status == 0 and re.match(r" +1  20\S+ \S+ UTC  (judged|promoted) version 1, by gate: ", entry)
    assert re.fullmatch(r"(1 entry|\d+ entries), none changed", last)
    status, _, error = project.ask("approve", "1", "--by", "Ann", "--why", "read")
    assert status == 1 and error.startswith("error: tiny-policy version 1 does not wait for approval (")


def test_a_rollback_without_a_champion_is_one_line(
    project: Project, tmp_path: Path, new_store: Callable[[Path], Path]
) -> None:
    new_store(tmp_path)
    store.client().create_registered_model("tiny-policy")
    ended = project.ask("rollback", home=tmp_path)
    assert ended == (1, "", "error: tiny-policy has no champion: nothing to roll back\n")


# ---------------------------------------- the next runs


@pytest.mark.rotating(of=6)
def test_with_nothing_changed_every_step_is_reused_and_nothing_is_trained(again: Unchanged) -> None:
    assert again.ran.table == dict.fromkeys(STEPS, "reused")
    ignored = ("data", "promote")  # never cached: DVC and the registry decide whether anything is new
    assert [name for name in again.written if name.split("/")[0] not in ignored] == []
    assert len(registry.versions("tiny-policy")) == 1
    summary = summaries.run_summary("tiny", again.ran.run_id)
    assert all(summaries.was_reused(step) for step in summary.steps if step.name not in ignored)
    assert summary.line.name.startswith("nothing changed: v1")
    assert opening(summary.description)[1].startswith("## = Nothing changed")


def test_prefect_shows_the_verdict_and_the_way_to_mlflow_and_mlflow_the_way_back(project: Project, first: Ran) -> None:
    summary = summaries.run_summary("tiny", first.run_id)
    page = summary.line.tags[tags.PREFECT_RUN]
    assert page.startswith(f"{project.prefect}/") and f"<{page}>" in summary.description
    flow_run = page.rsplit("/", 1)[1]
    assert ask(f"{project.prefect}/api/flow_runs/{flow_run}")["name"] == summary.line.name
    artifacts = ask(f"{project.prefect}/api/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [flow_run]}}})
    shown = {artifact["key"]: artifact["data"] for artifact in artifacts}
    assert f"/runs/{first.run_id}" in shown["mlflow-run"] and f"/runs/{first.run_id}" in shown["verdict"]
    assert all(line in shown["verdict"] for line in opening(summary.description))


def test_the_last_lines_name_the_view_of_all_runs_and_it_is_there(first: Ran) -> None:
    (key,) = re.findall(r"^all runs +\S+viewStateShareKey=(\w+)$", first.out, flags=re.MULTILINE)
    experiment = store.client().get_experiment_by_name("tiny")
    assert f"mlflow.sharedViewState.{key}" in experiment.tags


def test_a_champions_or_candidates_page_has_its_numbers_its_example_and_few_tags(first: Ran) -> None:
    import mlflow

    (policy,) = registry.versions("tiny-policy")
    assert len(policy.tags) <= 10 and "Gate" in policy.description
    model = store.client().get_logged_model(policy.model_id)
    assert '"tiny-policy"' in model.tags[registry.VERSIONS_OF_MODEL]
    measured = {metric.key: metric for metric in model.metrics}
    assert measured["eval/sampled_accuracy"].dataset_name and measured["eval/sampled_accuracy"].dataset_digest
    info = mlflow.models.get_model_info(policy.uri)
    assert info.signature is not None and info.saved_input_example_info is not None


def test_the_policies_stand_side_by_side_in_one_table(first: Ran) -> None:
    rows = records.read_table(first.run_id, "samples/side_by_side.json")
    assert rows and {"change", "prompt", "truth", "base", "candidate"} <= set(rows[0])


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["transformers", VLLM])
def test_a_deleted_result_is_made_again_bit_for_bit_and_what_depends_on_other_settings_alone_as_well(
    project: Project, first: Ran, engine: str
) -> None:
    """Changed evaluation settings repeat only the evaluations; a deleted result repeats only its own step."""
    overrides, rounds = ((), 4)
    if engine == "vllm":
        overrides, rounds = (("--set", "engine.name=vllm", "--set", "schedule.rounds=3"), 3)
        project.run(*overrides)
    before, versions = fine_tuned(first.home, rounds), len(registry.versions("tiny-policy"))
    shutil.rmtree(before["folder"])
    rebuilt = project.run(*overrides, "--set", "evaluation.samples=20")
    made = ["fine_tune", "evaluate base", "evaluate candidate"]
    assert [step for step, how in rebuilt.table.items() if how == "run"] == made
    after = fine_tuned(first.home, rounds)
    assert after["run_id"] != before["run_id"] and after["digest"] == before["digest"]
    assert len(registry.versions("tiny-policy")) == versions


# ---------------------------------------- a run that is killed


CHECKPOINTS = "store/fine_tune/*/checkpoints/round_*"


@dataclass(frozen=True)
class Interrupted:
    """A run killed between two checkpoints, the run that continues it, and the same run undisturbed elsewhere."""

    killed: str
    """Id of the MLflow run of the killed flow."""
    left: list[psutil.Process]
    """Processes that the killed run had started."""
    resumed: Ran
    undisturbed: Path
    """State folder of the undisturbed run."""
    rounds: int
    refused: subprocess.CompletedProcess[str]
    """A second run that was started in the folder of the undisturbed run, at the same time."""


@pytest.fixture(scope="module", params=["transformers", VLLM])
def interrupted(
    project: Project, first: Ran, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Interrupted]:
    """Kill a run between two of its rounds. With vLLM, another seed makes both runs repeat the earlier steps."""
    elsewhere, logs = tmp_path_factory.mktemp("elsewhere") / "home", tmp_path_factory.mktemp("logs")
    if request.param == "vllm":
        rounds, other = 13, ("--set", "engine.name=vllm", "--set", "seed=7")
        elsewhere.mkdir()
    else:
        rounds, other = 12, ()
        project.copy_home(elsewhere)
    longer = ("--set", f"schedule.rounds={rounds}", *other)
    with pytest.MonkeyPatch.context() as patch:  # a store that an earlier test configured is not a user's setting
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        store.configure(first.home)
    left: list[psutil.Process] = []
    of_others = set(project.home.glob(CHECKPOINTS))  # from runs that other tests interrupted
    alone = project.start(*longer, home=elsewhere, log=logs / "alone")
    doomed = project.start(*longer, home=project.home, log=logs / "doomed", own_server=True)
    try:
        wait_for("the lock", lambda: (lock := elsewhere / "run.lock").is_file() and lock.read_text(), alone)
        alone.send_signal(signal.SIGSTOP)  # holds the folder until the second run has been refused
        second = ThreadPoolExecutor(1).submit(
            rewardflow, project.folder, "run", "tiny", *longer, **project.settings(elsewhere), REWARDFLOW_WAIT="0"
        )

        def checkpoint() -> list[Path]:
            return list(set(project.home.glob(CHECKPOINTS)) - of_others)

        wait_for("a checkpoint", checkpoint, doomed)
        left = psutil.Process(doomed.pid).children(recursive=True)
        doomed.kill()  # only this process, as the kernel does when memory runs out
        doomed.wait()
        refused = second.result()
        alone.send_signal(signal.SIGCONT)
        assert checkpoint(), (logs / "doomed").read_text()
        killed = summaries.recent_runs("tiny", 1)[0]
        assert killed.status == "RUNNING"
        resumed = project.run(*longer, own_server=True)
        assert alone.wait(timeout=300) == 0, (logs / "alone").read_text()
        yield Interrupted(killed.run_id, left, resumed, elsewhere, rounds, refused)
    finally:
        for process in (alone, doomed):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for orphan in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                orphan.kill()


@pytest.mark.rotating(of=12, together="a run that is killed")
def test_after_a_kill_the_next_run_goes_on_from_the_checkpoint(interrupted: Interrupted) -> None:
    assert re.search(r"going on from the checkpoint after round \d+", interrupted.resumed.err)
    assert "Stopping temporary server" not in interrupted.resumed.err  # nothing comes after the closing lines
    assert interrupted.resumed.table["warm_start"] == interrupted.resumed.table["reward_model"] == "reused"
    assert interrupted.resumed.table["fine_tune"] == "run"


@pytest.mark.rotating(of=12, together="a run that is killed")
def test_after_a_kill_the_weights_are_those_of_a_run_that_was_never_interrupted(interrupted: Interrupted) -> None:
    homes = (interrupted.resumed.home, interrupted.undisturbed)
    resumed, undisturbed = (fine_tuned(home, interrupted.rounds) for home in homes)
    assert resumed["digest"] == undisturbed["digest"]


@pytest.mark.rotating(of=12, together="a run that is killed")
def test_the_killed_run_is_swept_and_the_resumed_one_has_the_whole_curve(interrupted: Interrupted) -> None:
    summary = summaries.run_summary("tiny", interrupted.killed)
    assert summary.line.status == "KILLED"
    assert [step.status for step in summary.steps if step.name == "fine_tune"] == ["KILLED"]
    trained = interrupted.resumed.child("fine_tune").info.run_id
    steps = [point.step for point in store.client().get_metric_history(trained, "reward/total")]
    assert steps == list(range(1, interrupted.rounds + 1))


@pytest.mark.rotating(of=12, together="a run that is killed")
def test_what_the_killed_run_had_started_does_not_outlive_the_next(interrupted: Interrupted) -> None:
    assert interrupted.left  # the temporary Prefect server
    assert not any(process.is_running() for process in interrupted.left)


@pytest.mark.rotating(of=12, together="a run that is killed")
def test_a_second_run_in_the_same_folder_is_refused_in_one_line_and_disturbs_nobody(interrupted: Interrupted) -> None:
    refused = interrupted.refused
    assert refused.returncode == 1 and "Traceback" not in refused.stdout + refused.stderr
    assert refused.stderr.splitlines()[-1].startswith(f"error: {interrupted.undisturbed}: another run (process ")
    store.configure(interrupted.undisturbed)
    alone = summaries.recent_runs("tiny", 1)[0]
    assert alone.status == "FINISHED"


def artifacts(run_id: str, folder: str | None = None) -> set[str]:
    """Return the paths of all files that a run logged."""
    kinds = set()
    for entry in store.client().list_artifacts(run_id, folder):
        kinds |= artifacts(run_id, entry.path) if entry.is_dir else {entry.path}
    return kinds
