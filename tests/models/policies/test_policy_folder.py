"""Model folders and checkpoints on disk: whole writes, full disks, damaged files, and the newest whole checkpoint."""

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from models.base.atomic_write import replace_folder
from models.base.errors import UserError
from models.base.file_hash import sha256_of
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.policies.build import SizeSettings, new_policy, open_policy
from models.policies.checkpoint import load_checkpoint, newest_checkpoint, state_of, write_checkpoint
from models.policies.folder import check_model_folder, hash_folder, save_model_folder
from models.text.tokenizer import load_tokenizer
from tests.support.device_here import DEVICE
from tests.support.tiny_models import tiny_policy, word_tokenizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "policy"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "policy")
    return tmp_path / "policy"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 64 KiB, and unmount it at the end."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def write_folder(target: Path, write: Callable[[Path], Any]) -> None:
    with replace_folder(target) as folder:
        write(folder)


def test_a_folder_appears_whole_and_replaces_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b"
    write_folder(target, lambda folder: (folder / "old").write_text("1"))
    write_folder(target, lambda folder: (folder / "new").write_text("2"))
    assert [file.name for file in target.iterdir()] == ["new"] and os.listdir(target.parent) == ["b"]


@pytest.mark.parametrize("failure", [RuntimeError("no"), KeyboardInterrupt(), OSError(errno.EIO, "bad disk")])
def test_a_failure_leaves_nothing_and_keeps_what_was_there(tmp_path: Path, failure: BaseException) -> None:
    target = tmp_path / "policy"
    write_folder(target, lambda folder: (folder / "old").write_text("1"))

    def write(folder: Path) -> None:
        (folder / "new").write_text("half")
        raise failure

    with pytest.raises(type(failure)):
        write_folder(target, write)
    assert os.listdir(tmp_path) == ["policy"] and (target / "old").read_text() == "1"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_is_one_line_however_it_is_wrapped(tmp_path: Path, number: int) -> None:
    def write(folder: Path) -> None:
        try:
            raise OSError(number, os.strerror(number))
        except OSError as error:
            raise RuntimeError("could not serialise") from error

    with pytest.raises(UserError, match=r"policy: no space left to write it \(\d+ MiB free\); nothing half-written"):
        write_folder(tmp_path / "policy", write)
    assert os.listdir(tmp_path) == []


def test_on_a_full_disk_a_model_is_one_clear_line_and_leaves_nothing(small_disk: Path) -> None:
    with pytest.raises(UserError, match=r"policy: no space left to write it"):
        save_model_folder(tiny_policy(torch.float32), word_tokenizer(), small_disk / "policy")
    assert os.listdir(small_disk) == []


def moments(model: nn.Module) -> dict[str, torch.optim.Optimizer]:
    return {"policy": build_optimiser(model, OptimiserSettings())}


def test_on_a_full_disk_a_checkpoint_is_one_clear_line_and_the_one_before_stays(small_disk: Path) -> None:
    small, large = torch.nn.Linear(4, 4), tiny_policy(torch.float32)
    moments = {"policy": build_optimiser(small, OptimiserSettings())}
    write_checkpoint(small_disk, 1, state_of({"policy": small}, moments), {"policy": 1})
    with pytest.raises(UserError, match="round_000002: no space left"):
        moments = {"policy": build_optimiser(large, OptimiserSettings())}
        write_checkpoint(small_disk, 2, state_of({"policy": large}, moments), {"policy": 1})
    assert os.listdir(small_disk) == ["round_000001"] and newest_round(small_disk) == 1


def test_a_saved_policy_loads_with_the_same_weights_and_tokens(folder: Path) -> None:
    model, tokenizer = open_policy(folder)
    expected = tiny_policy(torch.float32).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    assert tokenizer("7 + 5")["input_ids"] == word_tokenizer()("7 + 5")["input_ids"]
    assert not list(folder.glob("*.bin")) and list(folder.glob("*.safetensors"))


def test_the_same_content_has_the_same_hash_and_any_other_byte_or_name_another(whole: Path, folder: Path) -> None:
    assert hash_folder(folder) == hash_folder(whole)
    (folder / "config.json").rename(folder / "configuration.json")
    renamed = hash_folder(folder)
    with (folder / "configuration.json").open("a") as handle:
        handle.write(" ")
    assert len({hash_folder(whole), renamed, hash_folder(folder)}) == 3


def one_line(call: Callable[[], Any], pattern: str) -> None:
    with pytest.raises(UserError, match=pattern) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_what_is_no_model_folder_says_in_one_line_why(folder: Path, tmp_path: Path) -> None:
    one_line(lambda: open_policy(tmp_path / "none"), "none: no such model folder")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    one_line(
        lambda: open_policy(folder),
        r"no weights, \*\.safetensors is missing \(only pytorch_model\.bin: convert it to safetensors\)",
    )
    (folder / "pytorch_model.bin").unlink()
    one_line(lambda: check_model_folder(folder), r"no weights, \*\.safetensors is missing$")
    (folder / "config.json").write_text('{"model_type": ')
    one_line(lambda: check_model_folder(folder), r"config\.json: not valid JSON")
    (folder / "config.json").unlink()
    one_line(lambda: open_policy(folder), r"config\.json is missing; this is not a model folder")


def test_broken_weights_or_tokenizers_are_one_line_too(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    one_line(lambda: open_policy(folder), f"{re.escape(str(folder))}: the model cannot be loaded")
    (folder / "tokenizer.json").write_text("{")
    one_line(lambda: load_tokenizer(folder), "its tokenizer cannot be loaded")
    one_line(lambda: open_policy(folder), "the tokenizer of .* cannot be loaded")


def test_weights_that_are_not_there_are_not_made_up(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    one_line(lambda: open_policy(folder), r"the weights lack model\.layers\.1\.mlp\.up_proj\.weight \(1 ")


def test_weights_of_another_size_are_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 3)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    one_line(lambda: open_policy(folder), "the model cannot be loaded")


def test_a_tokenizer_of_more_tokens_than_embeddings_is_refused(tmp_path: Path) -> None:
    save_model_folder(tiny_policy(torch.float32, vocabulary=20), word_tokenizer(), tmp_path / "policy")
    one_line(lambda: open_policy(tmp_path / "policy"), "has 20 embeddings but its tokenizer has 24 tokens")


def test_a_new_policy_is_decided_by_its_seed_and_its_heads_must_fit() -> None:
    size = SizeSettings(hidden=64, layers=1, heads=2, key_value_heads=1, feed_forward=64, positions=32)
    first, two, other = (new_policy(size, word_tokenizer(), seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], two[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])
    one_line(
        lambda: new_policy(SizeSettings(hidden=65), word_tokenizer(), 0), "hidden 65 must be a multiple of heads 4"
    )


def trained(steps: int) -> tuple[PreTrainedModel, torch.optim.Optimizer]:
    model = tiny_policy(torch.float32)
    optimiser = build_optimiser(model, OptimiserSettings())
    for _ in range(steps):
        model(torch.tensor([[3, 4, 5]], device=DEVICE)).logits.square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    return model, optimiser


def newest_round(folder: Path) -> int | None:
    newest = newest_checkpoint(folder)
    return newest.round_number if newest else None


def test_a_checkpoint_brings_back_weights_and_optimiser_to_the_last_bit(tmp_path: Path) -> None:
    model, optimiser = trained(3)
    write_checkpoint(tmp_path, 3, state_of({"policy": model}, {"policy": optimiser}), {"policy": 1})
    fresh, fresh_optimiser = trained(0)
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    load_checkpoint(newest, {"policy": fresh}, {"policy": fresh_optimiser})
    for first, other in ((model, optimiser), (fresh, fresh_optimiser)):
        first(torch.tensor([[9, 8]], device=DEVICE)).logits.square().mean().backward()
        other.step()
    assert all(torch.equal(value, fresh.state_dict()[name]) for name, value in model.state_dict().items())


def test_the_newest_checkpoints_stay_even_where_broken_ones_lie_ahead(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    for number in (2, 4, 6, 8):
        write_checkpoint(tmp_path, number, state_of({"policy": model}, {"policy": optimiser}), {"policy": 1}, keep=4)
    for number in (6, 8):
        (tmp_path / f"round_{number:06d}" / "policy.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match="is broken"):
        assert newest_round(tmp_path) == 4
    write_checkpoint(tmp_path, 5, state_of({"policy": model}, {"policy": optimiser}), {"policy": 1}, keep=2)
    assert sorted(os.listdir(tmp_path)) == ["round_000004", "round_000005"]
    assert newest_round(tmp_path) == 5


def test_a_file_that_a_checkpoint_lacks_is_named_and_the_one_before_is_taken(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    for number in (1, 2):
        write_checkpoint(tmp_path, number, state_of({"policy": model}, {"policy": optimiser}), {"policy": 1})
    (tmp_path / "round_000002" / "policy.optimiser.safetensors").unlink()
    (tmp_path / "round_000002" / "policy.safetensors").write_bytes(b"")
    said = "round_000002: policy.optimiser.safetensors is missing, policy.safetensors is broken; going back"
    with pytest.warns(UserWarning, match=re.escape(said)):
        assert newest_round(tmp_path) == 1


SAID = '{"round": %s, "updates": %s, "sha256": {"policy.safetensors": "x"}}'


@pytest.mark.parametrize(
    "state",
    [
        "", "[]", "{}", "[" * 5_000, '{"round": "x", "sha256": {}}', '{"round": 1, "updates": {}, "sha256": 7}',
        '{"round": 1, "updates": {"policy": 1}, "sha256": {}}', SAID % ("NaN", "{}"), SAID % ("Infinity", "{}"),
        SAID % ("1.5", "{}"), SAID % ("true", "{}"), SAID % ("1", '{"policy": "x"}'), SAID % ("1", '{"policy": null}'),
    ],
    ids=range(13),
)  # fmt: skip
def test_a_state_that_is_none_is_passed_over(tmp_path: Path, state: str) -> None:
    model, optimiser = trained(0)
    write_checkpoint(tmp_path, 1, state_of({"policy": model}, {"policy": optimiser}), {"policy": 1})
    (tmp_path / "round_000001" / "state.json").write_text(state)
    with pytest.warns(UserWarning, match="state.json is broken"):
        assert newest_checkpoint(tmp_path) is None


def changed_state(folder: Path, **changes: object) -> None:
    file = folder / "state.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def beside(folder: Path) -> None:
    (folder / "policy.2of2.safetensors").write_bytes(b"a part of another run")


def outside(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere"
    elsewhere.write_bytes(b"x")
    hashes = {"../elsewhere": sha256_of(elsewhere)}
    changed_state(folder, sha256=json.loads((folder / "state.json").read_text())["sha256"] | hashes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: changed_state(folder, round=1), "round_000002: state.json is that of round 1"),
        (lambda folder: changed_state(folder, round=3), "round_000002: state.json is that of round 3"),
        (lambda folder: folder.rename(folder.with_name("round_000003")), "round_000003: state.json is that of round 2"),
        (lambda folder: folder.rename(folder.with_name("round_0000x")), "round_0000x: state.json is that of round 2"),
        (lambda folder: folder.rename(folder.with_name("round_2")), "round_2: state.json is that of round 2"),
        (beside, "round_000002: policy.2of2.safetensors is not named in state.json"),
        (outside, "round_000002: ../elsewhere is missing"),
    ],
    ids=["round before", "round after", "renamed", "no number", "other number", "file beside", "file elsewhere"],
)
def test_a_checkpoint_whose_state_is_not_of_its_round_and_its_files_is_passed_over(
    tmp_path: Path, change: Callable[[Path], object], says: str
) -> None:
    model, optimiser = trained(1)
    for number in (1, 2):
        write_checkpoint(tmp_path, number, state_of({"policy": model}, {"policy": optimiser}), {"policy": 1})
    change(tmp_path / "round_000002")
    with pytest.warns(UserWarning, match=re.escape(f"{says}; going back")):
        assert newest_round(tmp_path) == 1


def test_a_folder_that_is_called_after_no_round_is_left_alone_by_those_that_are_written(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    (tmp_path / "round_000001 of last week").mkdir()
    for number in (999_999, 1_000_000, 1_000_001):
        write_checkpoint(tmp_path, number, state_of({"policy": model}, {"policy": optimiser}), {"policy": 1})
    assert sorted(os.listdir(tmp_path)) == ["round_000001 of last week", "round_1000000", "round_1000001"]
    with pytest.warns(UserWarning, match="of last week: state.json is broken"):
        assert newest_round(tmp_path) == 1_000_001


def test_where_no_checkpoint_is_whole_there_is_none(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "none") is None
    (tmp_path / "round_000001").mkdir()
    with pytest.warns(UserWarning, match="state.json is broken"):
        assert newest_checkpoint(tmp_path) is None


def test_a_checkpoint_before_the_first_update_is_whole(tmp_path: Path) -> None:
    model, optimiser = trained(0)
    write_checkpoint(tmp_path, 1, state_of({"policy": model}, {"policy": optimiser}), {"policy": 1})
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    load_checkpoint(newest, {"policy": model}, {"policy": optimiser})
    assert optimiser.state_dict()["state"] == {}
