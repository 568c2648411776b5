"""A small policy computes on one thread; a large one, and a number of threads that the user chose, are left alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from models.policies.build import PolicySettings, SizeSettings, new_policy
from models.policies.threads import CHOSEN_BY_USER, SMALL_POLICY, set_threads, weights_of
from models.text.tokenizer import TokenizerSettings
from tests.support.device_here import OF_A_PROCESSOR
from tests.support.tiny_models import word_tokenizer

SMALL = PolicySettings(size=SizeSettings(layers=3), tokenizer=TokenizerSettings(kind="words", vocabulary=512))


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    for name in CHOSEN_BY_USER:
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@OF_A_PROCESSOR
def test_a_new_small_policy_computes_on_one_thread() -> None:
    set_threads(SMALL)
    assert torch.get_num_threads() == 1


def test_where_there_is_a_gpu_a_small_policy_keeps_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.policies.threads.has_gpu", lambda: True)
    set_threads(SMALL)
    assert torch.get_num_threads() == 2


def test_a_new_large_policy_keeps_the_threads() -> None:
    set_threads(PolicySettings(size=SizeSettings(hidden=256, layers=4, feed_forward=1024)))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("name", CHOSEN_BY_USER)
def test_a_number_that_the_user_chose_is_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "2")
    set_threads(SMALL)
    assert torch.get_num_threads() == 2


def test_weights_of_a_size_are_those_of_the_model_but_for_its_norms() -> None:
    size, tokenizer = SizeSettings(hidden=64, layers=2, heads=4, key_value_heads=2, head=32), word_tokenizer()
    model = new_policy(size, tokenizer, seed=0)
    matrices = sum(weight.numel() for weight in model.parameters() if weight.ndim > 1)
    vocabulary = TokenizerSettings(vocabulary=len(tokenizer))
    assert weights_of(PolicySettings(size=size, tokenizer=vocabulary)) == matrices


@OF_A_PROCESSOR
@pytest.mark.parametrize(("bytes_of_weights", "threads"), [(4 * SMALL_POLICY - 4, 1), (4 * SMALL_POLICY, 2)])
def test_a_base_in_a_folder_is_as_large_as_its_files_of_weights(
    tmp_path: Path, bytes_of_weights: int, threads: int
) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(bytes_of_weights)
    set_threads(PolicySettings(base=str(tmp_path)))
    assert torch.get_num_threads() == threads


def test_a_base_whose_files_are_not_here_keeps_the_threads() -> None:
    set_threads(PolicySettings(base="owner/name@0123456789abcdef0123456789abcdef01234567"))
    assert torch.get_num_threads() == 2
