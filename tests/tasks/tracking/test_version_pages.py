"""Pages of a model version and of its LoggedModel: tags, facts, numbers of the evaluation, and an example."""

import json
from pathlib import Path

import mlflow
import pytest

from tasks.tracking import aliases, model_files, records, registry, runs, store, tags
from tasks.tracking.verdict_record import verdict_of
from tests.support.verdict_examples import verdict

FACTS = {
    tags.RECIPE: "arithmetic",
    tags.RECIPE_SHA256: "5" * 64,
    tags.GIT_COMMIT: "6d57ac2",
    tags.DATA_REVISION: "v3",
    tags.SEED: "0",
    tags.WEIGHTS_SHA256: "abc",
    tags.RUN: "f" * 32,
    tags.HELDOUT_ACCURACY: "31.0 % [28.1, 33.9]",
    tags.EVALUATION_RUN: "e" * 32,
    tags.REWARD_MODEL_VERSION: "reward/1",
    tags.COMPARED_WITH: "champion, version 3",
    tags.IMPROVEMENT: "+3.9 [+3.6, +4.2]",
    tags.DECISION: "promoted",
    tags.VERDICT_RECORD: verdict().model_dump_json(),
}


def logged(folder: Path, example: str = "") -> str:
    return registry.log_model(runs.open_flow_run("e", "n"), folder, "policy", "text-generation", example=example)


def test_the_page_of_a_registered_model_says_so(home: Path, policy_folder: Path):
    """MLflow's UI reads this tag. MLflow's server writes it, but the embedded store does not."""
    model_id = logged(policy_folder)
    registry.register("policy", model_id)
    registry.register("copy", model_id)
    linked = json.loads(store.client().get_logged_model(model_id).tags[registry.VERSIONS_OF_MODEL])
    assert linked == [{"name": "policy", "version": "1"}, {"name": "copy", "version": "1"}]


@pytest.mark.rotating(of=6)
@pytest.mark.slow
def test_through_a_server_a_version_is_named_once_on_its_model_and_its_record_comes_back(server, policy_folder: Path):
    model_id = logged(policy_folder)
    registry.register("policy", model_id, FACTS)
    (linked,) = json.loads(store.client().get_logged_model(model_id).tags[registry.VERSIONS_OF_MODEL])
    assert (linked["name"], str(linked["version"])) == ("policy", "1")
    assert registry.facts_of(registry.version_info("policy", 1)) == FACTS


@pytest.mark.rotating(of=6)
def test_a_champion_has_at_most_ten_tags_and_loses_no_fact(home: Path, policy_folder: Path):
    for _ in range(2):
        registry.register("policy", logged(policy_folder), FACTS)
    aliases.promote("policy", 1, why="gate")
    aliases.promote("policy", 2, why="gate", judged_against=1)
    for version in registry.versions("policy"):
        assert len(version.tags) <= 10
        facts = registry.facts_of(version)
        assert facts.items() >= FACTS.items()
        assert {tags.PROMOTED_AT, tags.PROMOTED_BY} <= set(version.tags)
    second, first = (registry.facts_of(version) for version in registry.versions("policy"))
    assert second[tags.REPLACED] == "1" and first[tags.REPLACED_BY].startswith("2 at ")
    kept = verdict_of(second)
    assert kept is not None and kept.model_dump_json() == verdict().model_dump_json()


def test_a_version_without_a_logged_model_keeps_its_facts_as_tags(home: Path, policy_folder: Path):
    store.client().create_registered_model("by hand")
    store.client().create_model_version("by hand", source=policy_folder.as_uri())
    registry.annotate("by hand", 1, {tags.SEED: "7"})
    assert registry.facts_of(registry.version_info("by hand", 1)) == {tags.SEED: "7"}


def test_the_record_is_no_part_of_the_folder_that_is_loaded(home: Path, policy_folder: Path):
    registry.register("policy", logged(policy_folder), FACTS)
    folder = registry.fetch("models:/policy/1")
    assert not (folder / model_files.RECORD).exists()
    assert (folder.parent / model_files.RECORD).is_file()


def test_numbers_of_an_evaluation_stand_on_the_model_with_their_data(home: Path, policy_folder: Path):
    model_id, run_id = logged(policy_folder), runs.open_flow_run("e", "evaluate")
    records.log_dataset(run_id, "arithmetic/problems", "a" * 32, "data", "evaluation", 460)
    measured = records.MeasurementContext(model_id, "arithmetic/problems", "a" * 32)
    records.log_metrics(run_id, {"eval/accuracy": 0.31}, measured=measured)
    (metric,) = store.client().get_logged_model(model_id).metrics
    assert (metric.key, metric.value, metric.run_id) == ("eval/accuracy", 0.31, run_id)
    assert (metric.dataset_name, metric.dataset_digest) == ("arithmetic/problems", "a" * 32)
    assert store.client().get_run(run_id).data.metrics == {"eval/accuracy": 0.31}


def test_a_model_shows_an_example_and_what_goes_in_and_comes_out(home: Path, policy_folder: Path):
    example = "Start with 7 . Add 5 ."
    info = mlflow.models.get_model_info(f"models:/{logged(policy_folder, example)}")
    assert info.signature.inputs.to_dict()[0]["type"] == "string"
    assert info.signature.outputs.to_dict()[0]["type"] == "string"
    folder = Path(mlflow.artifacts.download_artifacts(info.model_uri))
    assert json.loads((folder / info.saved_input_example_info["artifact_path"]).read_text()) == [example]


def test_the_models_own_page_says_what_the_versions_says(home: Path, policy_folder: Path):
    model_id = logged(policy_folder)
    registry.register("policy", model_id)
    registry.annotate("policy", 1, description="Promoted: +3.9")
    registry.describe_model("policy", "Policies of arithmetic")
    assert store.client().get_logged_model(model_id).tags[records.NOTE] == "Promoted: +3.9"
    assert registry.version_info("policy", 1).description == "Promoted: +3.9"
    assert store.client().get_registered_model("policy").description == "Policies of arithmetic"
