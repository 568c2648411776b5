"""A registered model is used only while its files are those that were registered, to the byte."""

from pathlib import Path

import pytest

from models.base.errors import UserError
from models.policies.folder import hash_folder
from tasks.registered.files import registered_files
from tasks.registered.policy import registered_policy
from tasks.registered.reward_model import registered_reward_model
from tasks.tracking import registry, runs, tags


def registered(folder: Path, **version_tags: str) -> registry.VersionInfo:
    model = registry.log_model(runs.open_flow_run("e", "n"), folder, "policy", "text-generation")
    return registry.version_info("policy", registry.register("policy", model, version_tags))


def flip(file: Path) -> None:
    """Flip one bit in the middle of a file. Its size stays the same."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_version_whose_files_are_no_longer_what_was_registered_is_refused_wherever_it_would_be_measured(
    home: Path, policy_folder: Path
) -> None:
    version = registered(policy_folder, **{tags.WEIGHTS_SHA256: hash_folder(policy_folder)})
    folder, digest = registered_files(version)
    assert digest == version.tags[tags.WEIGHTS_SHA256] == registered_policy(version).digest
    flip(folder / "model.safetensors")
    for use in (registered_files, registered_policy, lambda _: registered_reward_model("policy/1")):
        with pytest.raises(UserError, match=rf"^policy version 1: its files \({folder}\) are not what was registered"):
            use(version)
    flip(folder / "model.safetensors")
    assert registered_files(version) == (folder, digest)
    (folder / "more.json").write_text("{}")
    with pytest.raises(UserError, match="not what was registered"):
        registered_files(version)


def test_a_version_that_somebody_registered_by_hand_is_known_by_its_files(home: Path, policy_folder: Path) -> None:
    version = registered(policy_folder)
    folder, digest = registered_files(version)
    assert digest == hash_folder(folder)
    flip(folder / "model.safetensors")
    assert registered_files(version).digest == hash_folder(folder) != digest
