"""Exports in GGUF and uploads to a hub: a real client against a hub on loopback, and a token that is shown nowhere."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from running import ROOT, shell

from flows.cli.export import export
from flows.cli.push import push
from models.base.errors import UserError
from models.policies.base_models.gguf_file import read_gguf
from models.policies.folder import hash_folder, save_model_folder
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tasks.registered.recorded_recipe import log_recipe_settings
from tasks.tracking import registry, runs, tags
from tests.support.small_hub import COMMIT, SmallHub, small_hub
from tests.support.tiny_gguf import tiny_model
from tests.support.tiny_models import tiny_policy, word_tokenizer

TOKEN = "hf_oYwzTestTokenThatMustNotAppear"
REPOSITORY = "team/arithmetic"


@pytest.fixture
def home(new_store: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a state folder with version 1 of a Llama with a byte-level tokenizer, and version 2 with whole words."""
    made = new_store(tmp_path / "home")
    monkeypatch.setenv("REWARDFLOW_HOME", str(made))
    bytes_ = train_tokenizer(["What is 1 + 2?"], TokenizerSettings(vocabulary=290))
    for model, tokenizer in ((tiny_model("llama"), bytes_), (tiny_policy(torch.float32), word_tokenizer())):
        folder = tmp_path / type(model).__name__
        save_model_folder(model, tokenizer, folder)
        (folder / "LICENSE").write_text("Permission is granted.")
        flow = runs.open_flow_run("e", "train e", {tags.GIT_COMMIT: "c" * 40})
        described = {"name": "e", "policy": {"base": "Qwen/Tiny", "chat": False}}
        log_recipe_settings(flow, described, tmp_path, tmp_path / "e.yaml", [])
        logged = registry.log_model(runs.open_step_run(flow, "fine_tune"), folder, "policy", "text-generation")
        registry.register("e-policy", logged, {tags.RUN: flow, tags.WEIGHTS_SHA256: hash_folder(folder)})
        runs.close_run(flow)
    return made


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallHub]:
    """Run a hub on loopback, and make it the hub of the client in this process."""
    with small_hub() as made:
        monkeypatch.setattr(constants, "ENDPOINT", made.address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # another protocol, with servers of its own
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield made


@pytest.mark.rotating(of=6)
def test_a_version_is_exported_as_one_gguf_file_with_card_and_licence(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export("1", tmp_path / "out", licence="mit", form="gguf", kind="q8_0")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "LICENSE", "README.md", "e-policy-v1-Q8_0.gguf",
    ]  # fmt: skip
    file = tmp_path / "out" / "e-policy-v1-Q8_0.gguf"
    assert f"llama-server --model {file} --alias e-policy-v1" in capsys.readouterr().out
    stated = read_gguf(file).metadata
    weights = registry.version_info("e-policy", 1).tags[tags.WEIGHTS_SHA256]
    wanted = {
        "general.name": "e-policy-v1", "general.license": "mit", "general.version": "1", "general.file_type": 7,
        "general.base_model.0.name": "Tiny", "general.base_model.0.repo_url": "https://huggingface.co/Qwen/Tiny",
        "rewardflow.weights_sha256": weights, "rewardflow.commit": "c" * 40,
    }  # fmt: skip
    assert {key: stated.get(key) for key in wanted} == wanted
    assert "messages[0]" in stated["tokenizer.chat_template"], "a chat is a plain prompt"
    card = (tmp_path / "out" / "README.md").read_text()
    assert "library_name: gguf" in card and "llama-server --model ./out/e-policy-v1-Q8_0.gguf" in card


def test_a_version_that_gguf_cannot_describe_leaves_no_folder(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a tokenizer of the kind WordLevel cannot be written to GGUF"):
        export("2", tmp_path / "out", form="gguf")
    with pytest.raises(UserError, match="--type is for GGUF files; add --format gguf"):
        export("1", tmp_path / "out", kind="f16")
    assert not (tmp_path / "out").exists()


def test_without_yes_the_files_and_the_target_are_listed_and_nothing_is_sent(
    home: Path, hub: SmallHub, capsys: pytest.CaptureFixture[str]
) -> None:
    push("1", REPOSITORY)
    shown = capsys.readouterr().out
    assert f"e-policy version 1 -> {hub.address}/{REPOSITORY}" in shown
    assert "model.safetensors" in shown and "KiB" in shown and "README.md" in shown and "LICENSE" in shown
    assert "Nothing was uploaded (a token is set). Add --yes to upload." in shown
    assert hub.requests == [] and TOKEN not in shown
    assert not list(home.glob("pushing-*"))


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("form", ["safetensors", "gguf"])
def test_with_yes_every_byte_arrives_in_one_commit_and_the_version_records_it(
    form: str, home: Path, hub: SmallHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    push("1", REPOSITORY, yes=True, private=True, form=form)  # type: ignore[arg-type]
    export("1", tmp_path / "arithmetic", form=form)  # type: ignore[arg-type]
    exported = {path.name: path.read_bytes() for path in (tmp_path / "arithmetic").iterdir()}
    assert hub.files == exported
    assert hub.repositories[REPOSITORY]["private"] is True
    assert hub.messages == ["Upload e-policy version 1"]
    shown = capsys.readouterr()
    assert f"uploaded: {hub.address}/{REPOSITORY}, commit {COMMIT}" in shown.out
    facts = registry.facts_of(registry.version_info("e-policy", 1))
    assert facts[tags.PUSHED].startswith(f"{hub.address}/{REPOSITORY}, commit {COMMIT}, {form}, ")
    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert not list(home.glob("pushing-*"))
    assert TOKEN not in shown.out + shown.err + json.dumps(facts)
    assert_nowhere(home)


def assert_nowhere(home: Path) -> None:
    """Check that no file of the state folder holds the token."""
    for file in home.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes(), file


@pytest.mark.rotating(of=6)
def test_a_private_push_to_a_public_repository_is_refused_before_anything_is_sent(home: Path, hub: SmallHub) -> None:
    hub.repositories[REPOSITORY] = {"id": REPOSITORY, "private": False, "sha": "0" * 40}
    with pytest.raises(UserError, match="team/arithmetic is public; choose another repository"):
        push("1", REPOSITORY, yes=True, private=True)
    assert hub.requests == [f"GET /api/models/{REPOSITORY}"]
    push("1", REPOSITORY, yes=True)
    assert "POST /api/repos/create" not in hub.requests and hub.files


@pytest.mark.rotating(of=6)
def test_a_refusal_of_the_hub_is_one_line_without_the_token(home: Path, hub: SmallHub) -> None:
    hub.refuses = 403
    with pytest.raises(UserError) as error:
        push("1", REPOSITORY, yes=True)
    line = str(error.value)
    assert line.startswith("team/arithmetic: the hub answers 403 (no right to write with Bearer ***)")
    assert "check the token and its right to write" in line and TOKEN not in line
    assert hub.files == {} and tags.PUSHED not in registry.facts_of(registry.version_info("e-policy", 1))


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("repository", ["arithmetic", "a/b/c", "team/..", "team/a b", ""])
def test_an_id_of_another_form_is_refused(repository: str, home: Path) -> None:
    with pytest.raises(UserError, match="is not the id of a repository on the hub, which is OWNER/NAME"):
        push("1", repository)


@pytest.mark.rotating(of=6)
def test_without_a_token_a_network_or_permission_to_use_it_the_line_names_the_remedy(
    home: Path, hub: SmallHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        UserError, match=r"http://127\.0\.0\.1:9/team/arithmetic: the hub cannot be reached \(Connection"
    ):
        push("1", REPOSITORY, yes=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set; unset it to push"):
        push("1", REPOSITORY, yes=True)
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(UserError, match="no token for the hub; set HF_TOKEN"):
        push("1", REPOSITORY, yes=True)
    push("1", REPOSITORY)
    assert "no token is set" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.thorough
def test_the_command_uploads_to_the_hub_of_the_environment_and_debug_output_has_no_token(home: Path) -> None:
    with small_hub() as hub:
        environment = {
            **{name: value for name, value in shell().items() if name != "HF_HUB_OFFLINE"},
            "REWARDFLOW_HOME": str(home), "PYTHONPATH": str(ROOT), "HF_ENDPOINT": hub.address, "HF_TOKEN": TOKEN,
            "HF_HUB_DISABLE_XET": "1", "HF_HUB_VERBOSITY": "debug", "NO_PROXY": "127.0.0.1",
        }  # fmt: skip
        command = [sys.executable, "-m", "flows.command_line", "--debug", "push", "1", REPOSITORY, "--yes"]
        done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"uploaded: {hub.address}/{REPOSITORY}" in done.stdout
    assert "model.safetensors" in hub.files and hub.tokens == {f"Bearer {TOKEN}"}
    assert TOKEN not in done.stdout + done.stderr
    assert_nowhere(home)
    assert os.environ.get("HF_TOKEN") != TOKEN
