"""Tests of the scheduled flows: the champion is evaluated again, and the data are refreshed."""

import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from project import Project, Ran, flow_of

from models.evaluation.samples import Numbers, as_json, from_json
from models.evaluation.table import read_records, write_records
from tasks.gate.champion_watch import PAGE
from tasks.messages.receivers import URLS
from tasks.tracking import recorded, records, registry, runs, store, summaries, tags
from tests.support.message_listener import Listener

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("configured")]


@pytest.mark.thorough
def test_without_a_champion_the_nightly_evaluation_says_so(
    project: Project, tmp_path: Path, new_store: Callable[[Path], Path]
) -> None:
    new_store(tmp_path)
    ended = flow_of(project, "evaluate_champion", "evaluate_champion", tmp_path)
    assert ended.returncode != 0
    assert "tiny-policy has no champion yet; `rewardflow run tiny` trains one" in ended.stdout + ended.stderr


@pytest.mark.rotating(of=12, together="nightly evaluation")
def test_the_nightly_evaluation_measures_the_champion_as_the_training_did(
    project: Project, first: Ran, tmp_path: Path
) -> None:
    """The test uses a copy of the state folder, because other tests need the project without a champion."""
    home = project.copy_home(tmp_path / "home")
    assert project.ask("promote", "1", home=home)[0] == 0
    ended = flow_of(project, "evaluate_champion", "evaluate_champion", home)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    store.configure(home)
    newest = summaries.recent_runs("tiny", 1)[0]
    assert re.match(r"v\d+ champion: sampled ", newest.name) and newest.status == "FINISHED"
    (validated,) = [step for step in summaries.run_summary("tiny", newest.run_id).steps if step.name == "validate"]
    assert summaries.was_reused(validated)  # same key as in the training
    champion = registry.champion("tiny-policy")
    assert champion is not None
    judged = store.client().get_run(registry.facts_of(champion)["rewardflow.evaluation_run"]).data.metrics
    for metric in ("eval/sampled_accuracy", "eval/greedy_accuracy", "eval/tokens"):
        assert newest.metrics[metric] == judged[metric]


def judged_otherwise(version: registry.VersionInfo) -> None:
    """Change a version's record as if all answers had been right and the training prompts ten tokens longer."""
    before = recorded.of_version(version)
    with tempfile.TemporaryDirectory() as scratch:
        file = records.fetch_artifact(before.evaluation, recorded.RECORDS, Path(scratch))
        assert file is not None
        right = [
            replace(record, samples=tuple(replace(sample, correct=True) for sample in record.samples))
            for record in read_records(file)
        ]
        write_records(right, file)
        inputs = from_json(recorded.read_text(before.evaluation, "evaluation/inputs.json"))
        lengths = inputs["prompt_tokens_train"]
        assert isinstance(lengths, Numbers)
        inputs["prompt_tokens_train"] = Numbers.of(lengths.each + 10)
        evaluation = runs.open_step_run(before.run, "evaluate", name="evaluate candidate")
        records.log_artifact(evaluation, file, "evaluation")
        records.log_text(evaluation, "evaluation/inputs.json", as_json(inputs))
        runs.close_run(evaluation)
    store.client().set_model_version_tag(version.name, str(version.version), tags.EVALUATION_RUN, evaluation)


@pytest.mark.thorough
def test_a_champion_that_got_worse_and_inputs_that_drifted_are_a_message_each_and_a_quiet_night_is_none(
    project: Project, first: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = project.copy_home(tmp_path / "home")
    assert project.ask("promote", "1", home=home)[0] == 0
    listener = Listener()
    monkeypatch.setenv(URLS, listener.receiver.url)

    def night() -> summaries.RunLine:
        ended = flow_of(project, "evaluate_champion", "evaluate_champion", home)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        store.configure(home)
        return summaries.recent_runs("tiny", 1)[0]

    try:
        quiet = night()
        assert listener.heard == []
        indices = {key: value for key, value in quiet.metrics.items() if key.startswith("drift/")}
        assert len(indices) == 14 and all(value == float(key.endswith("_p")) for key, value in indices.items())
        assert quiet.metrics["since_judged/sampled_accuracy_low"] == quiet.metrics["since_judged/sampled_accuracy_high"]
        champion = registry.champion("tiny-policy")
        assert champion is not None
        judged_otherwise(champion)
        bad = night()
        assert re.match(r"v1 worse champion: sampled ", bad.name) and bad.metrics["since_judged/sampled_accuracy"] < 0
        assert bad.metrics["drift/prompt_tokens_train"] >= 0.25 > bad.metrics["drift/prompt_tokens_validation"]
        assert bad.metrics["drift/prompt_tokens_train_p"] <= 0.01
        night()  # same date and data, so no new message
    finally:
        listener.close()
    worse, drifted = listener.heard
    assert (worse["kind"], drifted["kind"]) == ("worse", "drifted")
    assert re.match(r"tiny-policy version 1 got worse: sampled accuracy -\d", worse["text"])
    assert "(12 problems, the same problems)" in worse["text"]
    assert re.search(
        r"inputs of tiny-policy version 1 drifted: prompt tokens train \(PSI \d+\.\d\d\) ", drifted["text"]
    )
    assert bad.run_id in worse["link"] and bad.run_id in drifted["link"]
    status, said, error = project.ask("diff", "tiny-policy@champion", bad.run_id, home=home)
    assert (status, error) == (0, "") and "answers: of 12 greedy ones" in said
    page = recorded.read_text(bad.run_id, PAGE)
    assert "sampled_accuracy" in page and "prompt tokens train" in page and 'src="data:image/png;base64,' in page


@pytest.mark.thorough
def test_the_weekly_refresh_pushes_the_version_that_is_pinned(
    project: Project, first: Ran, locked: dict[str, str]
) -> None:
    ended = flow_of(project, "refresh_data", "refresh_data")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    digest = locked["data/prepared/arithmetic"]
    assert f"returned {digest}" in ended.stdout
    pushed = [file.parent.name + file.name for file in project.folder.rglob("dvc-remote/files/md5/*/*")]
    assert digest in pushed
