"""Export of a version: the folder loads in transformers with the registered weights, and its card shows the record."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from models.base.errors import UserError
from models.evaluation.bootstrap import bootstrap_mean
from models.evaluation.metrics import prompt_values
from models.evaluation.records import Completion, PromptRecord
from models.evaluation.report import summarise
from models.evaluation.table import write_records
from models.policies.base_models.source import carry_source
from models.policies.folder import given_folder, hash_folder
from models.text.chat_template import chat_ids
from models.text.encoding import Codec
from models.text.tokenizer import load_tokenizer
from tasks.pages.description import cell
from tasks.pages.model_card import serve_commands
from tasks.registered.base import source_line
from tasks.registered.export import export, served_folder
from tasks.registered.recorded_recipe import log_recipe_settings
from tasks.state import prune
from tasks.tracking import aliases, recorded, records, registry, runs, tags
from tasks.tracking.lineage import lineage, render
from tasks.tracking.verdict_record import Ruling
from tests.support.tiny_gguf import tiny_model, write_gguf
from tests.support.verdict_examples import check, verdict

ANSWERS = [
    PromptRecord(f"p{number}", 1, (Completion("a", 2, number % 3 == 0, True),), Completion("a", 2, True, True))
    for number in range(30)
]


@pytest.fixture
def said(home: Path, policy_folder: Path, tmp_path: Path) -> recorded.VersionRecord:
    """Register a champion with everything that a training leaves, and return its record."""
    flow = runs.open_flow_run("e", "train e", {tags.GIT_COMMIT: "c" * 40, tags.RECIPE: "e"})
    described = {"name": "e", "seed": 3, "policy": {"base": "Qwen/Qwen3-0.6B"}}
    runs.log_params(flow, described)
    log_recipe_settings(flow, described, tmp_path, tmp_path / "e.yaml", [])
    records.log_dataset(flow, "rows", "1" * 32 + ".dir", "data/prepared/rows", "prepared", 1234)
    evaluated = runs.open_step_run(flow, "evaluate", name="evaluate candidate")
    write_records(ANSWERS, tmp_path / "records.parquet")
    records.log_artifact(evaluated, tmp_path / "records.parquet", "evaluation")
    records.log_metrics(evaluated, summarise(ANSWERS, ks=(1,)))
    fitted = runs.open_step_run(flow, "fine_tune")
    runs.close_run(flow)
    facts = {
        tags.RUN: flow,
        tags.GIT_COMMIT: "c" * 40,
        tags.WEIGHTS_SHA256: hash_folder(policy_folder),
        tags.EVALUATION_RUN: evaluated,
        tags.DECISION: "promoted",
        tags.VERDICT_RECORD: verdict(
            earlier_text="better by much",
            checks=(check("length", "passed", "20 tokens, at most 30"),),
            ruling=Ruling(approved=True, by="A. Turing", why="samples | read", at="2026-11-24 10:00 UTC"),
        ).model_dump_json(),
        tags.COMPARED_WITH: "the base model",
        tags.IMPROVEMENT: "+0.1 [+0.05, +0.15]",
    }
    registry.register("e-policy", registry.log_model(fitted, policy_folder, "policy", "text-generation"), facts)
    aliases.promote("e-policy", 1, why="gate", by="A. Turing")
    return recorded.recorded("e-policy@champion", lambda: "")


@pytest.mark.rotating(of=6)
def test_the_folder_loads_in_transformers_with_the_registered_weights(
    said: recorded.VersionRecord, policy_folder: Path, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target = tmp_path / "exported"
    target.mkdir()  # an empty folder is allowed
    export(said, target)
    original = AutoModelForCausalLM.from_pretrained(policy_folder).state_dict()
    loaded = AutoModelForCausalLM.from_pretrained(target).state_dict()
    assert loaded.keys() == original.keys()
    assert all(torch.equal(loaded[name], original[name]) for name in original)
    assert AutoTokenizer.from_pretrained(target)("1 + 2")["input_ids"] == [4, 13, 5]
    beside = {"README.md", "chat_template.jinja"}
    assert {file.name for file in target.iterdir()} == {file.name for file in policy_folder.iterdir()} | beside
    assert list(target.glob("*.safetensors")) and not [file for file in tmp_path.iterdir() if file.suffix == ".part"]
    assert len({file.stat().st_mode for file in target.iterdir()}) == 1, "who may read the card may read the weights"


@pytest.mark.rotating(of=6)
def test_the_card_says_what_is_on_record(said: recorded.VersionRecord, tmp_path: Path) -> None:
    export(said, tmp_path / "exported", "apache-2.0")
    _, head, body = (tmp_path / "exported/README.md").read_text().split("---\n", 2)
    front = yaml.safe_load(head)
    assert (front["license"], front["base_model"], front["library_name"]) == (
        "apache-2.0", "Qwen/Qwen3-0.6B", "transformers",
    )  # fmt: skip
    interval = bootstrap_mean(prompt_values(ANSWERS, "sampled_accuracy"))
    (result,) = front["model-index"][0]["results"]
    assert {entry["type"]: entry["value"] for entry in result["metrics"]}["sampled_accuracy"] == pytest.approx(
        interval.estimate, abs=1e-6
    )
    for text in (
        f"[{interval.low:.3f}, {interval.high:.3f}]", "30 held-out problems", "length", "20 tokens, at most 30",
        "the gate: better by much", "+0.1", "the base model", r"Approved by A. Turing: samples \| read",
        "1" * 32 + ".dir", "1,234", "c" * 40, "seed: 3", *serve_commands("./exported", "e-policy-v1"), "champion",
    ):  # fmt: skip
        assert text in body, text

    export(said, tmp_path / "unlicensed")
    front = yaml.safe_load((tmp_path / "unlicensed/README.md").read_text().split("---\n")[1])
    assert (front["license"], front["license_name"]) == ("other", "not-stated")


@pytest.mark.rotating(of=6)
def test_a_chat_with_a_policy_of_plain_prompts_is_its_prompt_and_the_card_says_so(
    said: recorded.VersionRecord, policy_folder: Path, tmp_path: Path
) -> None:
    export(said, tmp_path / "exported")
    trained = Codec(load_tokenizer(policy_folder)).prompts(["1 + 2 =", "7"])
    assert [chat_ids(load_tokenizer(tmp_path / "exported"), text) for text in ("1 + 2 =", "7")] == trained
    assert "A chat of one user message is such a prompt" in (tmp_path / "exported/README.md").read_text()


@pytest.mark.rotating(of=6)
def test_a_served_folder_is_made_once_a_version_and_again_where_it_was_changed(
    said: recorded.VersionRecord, home: Path
) -> None:
    with served_folder(said, home) as folder:
        pass
    assert folder.parent == home / "serving" and hash_folder(registry.fetch("models:/e-policy/1"))[:16] in folder.name
    weights = next(folder.glob("*.safetensors"))
    inode = weights.stat().st_ino
    with served_folder(said, home) as again:
        assert again == folder and weights.stat().st_ino == inode
    (folder / "chat_template.jinja").write_text("{{ 7 }}")
    with served_folder(said, home) as again:
        assert again == folder
    assert "messages" in (folder / "chat_template.jinja").read_text()


@pytest.mark.rotating(of=6)
def test_gc_leaves_a_folder_that_is_served_however_long_and_takes_it_afterwards(
    said: recorded.VersionRecord, home: Path
) -> None:
    with served_folder(said, home) as folder, served_folder(said, home):
        for entry in (home / "serving").rglob("*"):
            os.utime(entry, (0, 0))
        os.utime(folder, (0, 0))
        before = {entry: entry.is_file() and entry.read_bytes() for entry in (home / "serving").rglob("*")}
        planned = [entry for entry in prune.plan(home, keep_days=1) if entry.what.startswith("serving/")]
        assert {entry.why for entry in planned} == {"it is being served"}
        assert not any(entry.removed for entry in planned)
        old_plan = [replace(entry, removed=True) for entry in planned]  # made before the folder was served
        prune.remove(home, old_plan)
        assert {entry: entry.is_file() and entry.read_bytes() for entry in (home / "serving").rglob("*")} == before
    prune.remove(home, prune.plan(home, keep_days=1))
    assert not folder.exists() and not folder.with_suffix(".sha256").exists()


def test_a_folder_that_holds_something_is_left_as_it_is(said: recorded.VersionRecord, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / ".hidden").write_text("mine")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="holds something already"):
        export(said, full)
    with pytest.raises(UserError, match="is not a folder"):
        export(said, tmp_path / "file")
    with pytest.raises(UserError, match="cannot be written"):
        export(said, tmp_path / "file" / "below")
    assert os.listdir(full) == [".hidden"] and (tmp_path / "file").read_text() == "mine"


def test_files_that_are_no_longer_what_was_registered_are_not_handed_on(
    said: recorded.VersionRecord, tmp_path: Path
) -> None:
    assert said.version is not None
    folder = registry.fetch(said.version.uri)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 5}))
    with pytest.raises(UserError, match="not what was registered"):
        export(said, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_a_reward_model_and_a_run_are_refused(home: Path, reward_folder: Path, tmp_path: Path) -> None:
    flow = runs.open_flow_run("e", "train e")
    model = registry.log_model(runs.open_step_run(flow, "reward_model"), reward_folder, "r", "text-classification")
    registry.register("e-reward-model", model)
    with pytest.raises(UserError, match="is a reward model"):
        export(recorded.recorded("e-reward-model/1", lambda: ""), tmp_path / "exported")
    with pytest.raises(UserError, match="is not a version"):
        export(recorded.recorded(flow, lambda: ""), tmp_path / "exported")


def test_the_card_says_what_was_written_around_every_prompt(home: Path, policy_folder: Path, tmp_path: Path) -> None:
    described = {
        "name": "form",
        "policy": {"base": "x", "chat": True, "system": "Be brief, `please`."},
        "data": {"template": "Q: {prompt}\nEnd with `#### N`."},
    }
    flow = runs.open_flow_run("form", "train form", {tags.RECIPE: "form"})
    log_recipe_settings(flow, described, tmp_path, tmp_path / "e.yaml", [])
    fitted = runs.open_step_run(flow, "fine_tune")
    runs.close_run(flow)
    version = registry.log_model(fitted, policy_folder, "policy", "text-generation")
    registry.register("form-policy", version, {tags.RUN: flow})
    export(recorded.recorded("form-policy/1", lambda: ""), tmp_path / "exported")
    body = (tmp_path / "exported/README.md").read_text()
    for text in ("system message", "\nBe brief, `please`.\n", "\nQ: {prompt}\nEnd with `#### N`.\n"):
        assert text in body, text


def test_source_and_licence_of_the_base_are_in_the_registered_model_the_lineage_and_the_card(
    home: Path, policy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARDFLOW_HOME", str(home))
    file = write_gguf(tmp_path / "a.gguf", tiny_model("llama"), "llama", "Q4_1", {"general.license": "Apache-2.0"})
    base = given_folder(str(file))
    assert base is not None
    policy = Path(shutil.copytree(policy_folder, tmp_path / "policy"))
    carry_source(base, policy)
    described = {"name": "e", "policy": {"base": str(file)}}
    source = source_line(SimpleNamespace(policy=SimpleNamespace(named_base=str(file))))  # type: ignore[arg-type]
    flow = runs.open_flow_run("e", "train e", {tags.RECIPE: "e", tags.BASE_SOURCE: source})
    log_recipe_settings(flow, described, tmp_path, tmp_path / "e.yaml", [])
    model_id = registry.log_model(runs.open_step_run(flow, "fine_tune"), policy, "policy", "text-generation")
    runs.close_run(flow)
    facts = {tags.RUN: flow, tags.WEIGHTS_SHA256: hash_folder(policy), **runs.inherited_tags(flow)}
    registry.register("licensed", model_id, facts)
    files = registry.fetch("models:/licensed/1")
    assert (files / "model.safetensors").samefile(policy / "model.safetensors"), "stored once"
    assert "Apache License" in (files.parent / "LICENSE").read_text()
    assert not (files.parent / "LICENSE.txt").exists()
    assert "license: apache-2.0" in (files.parent / "model_card_data.yaml").read_text()
    said = recorded.recorded("licensed/1", lambda: "")
    assert "dequantised from Q4_1 to bfloat16, GGUF SHA-256 " in source
    assert f"base model: {source}" in render(lineage("licensed", 1))
    export(said, tmp_path / "exported")
    card = (tmp_path / "exported" / "README.md").read_text()
    assert yaml.safe_load(card.split("---")[1])["license"] == "apache-2.0"
    assert "`apache-2.0`, the licence of the base model Tiny. The text is in `LICENSE`." in card
    assert cell(source) in card
    assert (tmp_path / "exported" / "LICENSE").is_file()


def test_a_model_without_a_licence_on_record_has_no_line_about_a_repository_of_the_hub(
    home: Path, policy_folder: Path
) -> None:
    flow = runs.open_flow_run("e", "train e")
    model_id = registry.log_model(flow, policy_folder, "policy", "text-generation")
    registry.register("unlicensed", model_id, {})
    files = registry.fetch("models:/unlicensed/1")
    assert (files.parent / "LICENSE.txt").read_text().startswith("No licence is on record for this model")
