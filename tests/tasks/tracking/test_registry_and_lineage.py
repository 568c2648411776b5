"""Versions: they load by alias, promotion leaves one champion, rollback swaps, and MLflow has the whole lineage."""

import os
from pathlib import Path

import pytest
from promoting import promote_at_once

from models.base.errors import UserError
from tasks.tracking import aliases, lineage, records, registry, runs, tags
from tests.support.verdict_examples import check, verdict


def made(folder: Path, count: int, name: str = "policy", **version_tags: str) -> list[int]:
    run_id = runs.open_flow_run("e", "n")
    models = [registry.log_model(run_id, folder, name, "text-generation") for _ in range(count)]
    return [registry.register(name, model, version_tags) for model in models]


def by_alias(name: str = "policy") -> dict[str, int]:
    return {alias: version.version for version in registry.versions(name) for alias in version.aliases}


def test_a_policy_loads_by_alias_in_mlflow_and_in_transformers_with_the_same_weights(home: Path, policy_folder: Path):
    import mlflow
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    aliases.promote("policy", made(policy_folder, 1)[0])
    pipeline = mlflow.transformers.load_model("models:/policy@champion")
    fetched = registry.fetch("models:/policy@champion")
    assert mlflow.artifacts.download_artifacts("models:/policy@champion/model").rstrip("/") == str(fetched)
    assert pipeline.task == "text-generation" and pipeline("1 + 2 =", max_new_tokens=3)[0]["generated_text"]
    original = AutoModelForCausalLM.from_pretrained(policy_folder).state_dict()
    for model in (pipeline.model, AutoModelForCausalLM.from_pretrained(fetched)):
        for key, tensor in model.state_dict().items():
            torch.testing.assert_close(tensor, original[key], rtol=0, atol=0)
    assert AutoTokenizer.from_pretrained(fetched)("1 + 2")["input_ids"] == [4, 13, 5]


def test_a_reward_model_loads_by_alias_as_a_classifier_with_one_label(home: Path, reward_folder: Path):
    import mlflow
    from transformers import AutoModelForSequenceClassification

    run_id = runs.open_flow_run("e", "n")
    model_id = registry.log_model(run_id, reward_folder, "reward-model", "text-classification")
    aliases.promote("reward", registry.register("reward", model_id))
    pipeline = mlflow.transformers.load_model("models:/reward@champion")
    assert type(pipeline.model).__name__ == "Qwen3ForSequenceClassification" and pipeline.model.config.num_labels == 1
    assert AutoModelForSequenceClassification.from_pretrained(registry.fetch("models:/reward/1")).config.num_labels == 1


@pytest.mark.rotating(of=6)
@pytest.mark.slow
def test_through_a_server_a_model_is_downloaded_once_and_loads(server, policy_folder: Path):
    from transformers import AutoModelForCausalLM

    aliases.promote("policy", made(policy_folder, 1)[0])
    folder = registry.fetch("models:/policy@champion")
    AutoModelForCausalLM.from_pretrained(folder)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    os.utime(folder, (0, 0))
    assert registry.fetch("models:/policy/1") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert folder.stat().st_mtime > 0, "its time is its last use, which `gc` asks for"


def test_a_folder_without_weights_and_an_alias_that_is_not_there_are_one_clear_line(home: Path, tmp_path: Path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"\*\.safetensors is missing"):
        registry.log_model(runs.open_flow_run("e", "n"), tmp_path / "broken", "policy", "text-generation")
    with pytest.raises(UserError, match="models:/policy@champion"):
        registry.fetch("models:/policy@champion")
    with pytest.raises(UserError, match="no version 7"):
        registry.version_info("policy", 7)
    assert registry.champion("policy") is None and registry.versions("policy") == []


@pytest.mark.rotating(of=6)
def test_promotion_moves_the_old_champion_to_previous_and_writes_it_down(home: Path, policy_folder: Path):
    first, second = made(policy_folder, 2)
    aliases.set_candidate("policy", second)
    aliases.promote("policy", first, why="gate")
    aliases.promote("policy", second, why="gate", judged_against=first)
    assert by_alias() == {"champion": second, "previous": first, "anchor": first}
    assert registry.facts_of(registry.version_info("policy", second))[tags.REPLACED] == str(first)
    assert registry.facts_of(registry.version_info("policy", first))[tags.REPLACED_BY].startswith(f"{second} at ")
    assert [line.split(" UTC ")[1] for line in aliases.history("policy")] == ["version 2 (gate)", "version 1 (gate)"]
    aliases.promote("policy", second)
    assert (
        by_alias() == {"champion": second, "previous": first, "anchor": first} and len(aliases.history("policy")) == 2
    )


@pytest.mark.thorough  # test_lock.py tests two state folders with a server
def test_promoting_twice_at_once_from_two_processes_leaves_one_champion(
    home: Path, policy_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    made(policy_folder, 3)
    aliases.promote("policy", 1)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)  # users with one state folder do not set it
    winner, refused = promote_at_once({2: home, 3: home})
    assert f"the champion is now version {winner}" in refused
    assert by_alias() == {"champion": winner, "previous": 1, "anchor": 1}
    assert len(aliases.history("policy")) == 2


@pytest.mark.rotating(of=6)
def test_rollback_swaps_and_a_second_rollback_returns(home: Path, policy_folder: Path):
    made(policy_folder, 2)
    aliases.promote("policy", 1)
    aliases.promote("policy", 2)
    assert aliases.rollback("policy").version == 1
    assert by_alias() == {"champion": 1, "previous": 2, "anchor": 1}
    assert aliases.rollback("policy").version == 2
    assert by_alias() == {"champion": 2, "previous": 1, "anchor": 1}
    assert "rollback from version 1" in aliases.history("policy")[0]


@pytest.mark.rotating(of=6)
def test_without_a_previous_champion_rollback_says_so_and_changes_nothing(home: Path, policy_folder: Path):
    made(policy_folder, 1)
    with pytest.raises(UserError, match="no champion"):
        aliases.rollback("policy")
    aliases.promote("policy", 1)
    with pytest.raises(UserError, match="version 1 is the first"):
        aliases.rollback("policy")
    assert by_alias() == {"champion": 1, "anchor": 1}


def test_equal_weights_are_found_by_their_hash(home: Path, policy_folder: Path):
    made(policy_folder, 1, **{tags.WEIGHTS_SHA256: "abc"})
    made(policy_folder, 1, **{tags.WEIGHTS_SHA256: "it's"})
    assert [version.version for version in registry.find_by_tag("policy", tags.WEIGHTS_SHA256, "abc")] == [1]
    assert [version.version for version in registry.find_by_tag("policy", tags.WEIGHTS_SHA256, "it's")] == [2]
    assert registry.find_by_tag("policy", tags.WEIGHTS_SHA256, "none") == []


@pytest.mark.rotating(of=6)
def test_lineage_prints_the_chain_from_raw_hash_to_alias(home: Path, policy_folder: Path, reward_folder: Path):
    flow = runs.open_flow_run("e", "nightly")
    records.log_dataset(flow, "raw", "0cc175b9c0f1b6a831c399e269772661", "data/raw/arithmetic", "raw", 32000)
    records.log_dataset(
        flow, "arithmetic", "d41d8cd98f00b204e9800998ecf8427e.dir", "data/prepared", "training", 9, "v3"
    )
    fitted = runs.open_step_run(flow, "reward_model")
    reward_model = registry.log_model(fitted, reward_folder, "reward-model", "text-classification")
    registry.register("reward", reward_model, {tags.HELDOUT_ACCURACY: "0.912 [0.884, 0.935]"})
    warmed = registry.log_model(runs.open_step_run(flow, "warm_start"), policy_folder, "warm-start", "text-generation")
    learned = runs.open_step_run(flow, "rl")
    registry.log_model_inputs(learned, [reward_model, warmed])
    evaluated = runs.open_step_run(flow, "evaluation")
    records.log_metrics(evaluated, {"accuracy": 0.66})
    own = {
        tags.RECIPE: "arithmetic",
        tags.GIT_COMMIT: "6d57ac2",
        tags.REWARD_MODEL_VERSION: "reward/1",
        tags.EVALUATION_RUN: evaluated,
        tags.COMPARED_WITH: "base model",
        tags.IMPROVEMENT: "+0.35 [+0.30, +0.40]",
        tags.DECISION: "refused",
        tags.VERDICT_RECORD: verdict(
            decision="refused",
            reason="guard_failed",
            checks=(
                check("better", "passed", "+0.35 above 0"),
                check("length", "failed", "40 tokens, at most 30"),
            ),
        ).model_dump_json(),
    }
    policy = registry.log_model(learned, policy_folder, "policy", "text-generation")
    registry.register("policy", policy, own)
    aliases.promote("policy", 1, why="by hand")

    chain = lineage.lineage("policy", 1)
    assert chain.reward_model is not None and chain.reward_model.version.model_id == reward_model
    assert chain.reward_model_read and chain.policy.models_read == (f"warm-start ({warmed})",)
    text = lineage.render(chain)
    in_order = [
        "policy version 1 [anchor, champion]",
        "data/raw/arithmetic  md5 0cc175b9c0f1b6a831c399e269772661, 32000 rows",
        "arithmetic (training)  md5 d41d8cd98f00b204e9800998ecf8427e.dir, 9 rows, DVC revision v3",
        "reward model reward version 1",
        f"run reward_model ({fitted})",
        "held-out pair accuracy: 0.912 [0.884, 0.935]",
        f"run rl ({learned})",
        "recipe: arithmetic",
        "git commit: 6d57ac2",
        f"evaluation (run {evaluated})",
        "difference: +0.35 [+0.30, +0.40]",
        "accuracy = 0.66",
        "passed  better: +0.35 above 0",
        "FAILED  length: 40 tokens, at most 30",
        "aliases: anchor, champion",
        "promoted_by: by hand",
    ]
    places = [text.find(part) for part in in_order]
    assert -1 not in places and places == sorted(places), text


def test_lineage_of_a_version_without_records_says_not_recorded(home: Path, policy_folder: Path):
    made(policy_folder, 1)
    text = lineage.render(lineage.lineage("policy", 1))
    assert "raw data: not recorded" in text and "reward model: not recorded" in text and "aliases: none" in text
