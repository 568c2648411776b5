"""Cached reference log-probs: they equal the reference's, and other weights, tokens or settings use another file."""

import logging
from pathlib import Path

import pytest
import torch

from models.learner.distribution import Distribution
from models.learner.packing import Sequences
from models.learner.reference_cache import cached_reference_log_probs, tokens_hash
from tests.support.tiny_models import SEQUENCES, plain_log_probs, tiny_policy


def test_they_are_those_of_the_reference_and_read_back_bit_for_bit(tmp_path: Path) -> None:
    model = tiny_policy()
    first = cached_reference_log_probs(tmp_path, model, SEQUENCES, token_budget=14)
    for log_probs, expected in zip(first, plain_log_probs(model, SEQUENCES), strict=True):
        torch.testing.assert_close(log_probs, expected.detach().cpu(), rtol=1e-10, atol=1e-10)
    (file,) = tmp_path.iterdir()
    written = file.stat().st_mtime_ns
    again = cached_reference_log_probs(tmp_path, tiny_policy(), SEQUENCES)
    assert all(torch.equal(first, other) for first, other in zip(first, again, strict=True))
    assert file.stat().st_mtime_ns == written  # the file was read, not written again


def test_other_weights_tokens_or_temperature_are_another_file(tmp_path: Path) -> None:
    cached_reference_log_probs(tmp_path, tiny_policy(), SEQUENCES)
    cached_reference_log_probs(tmp_path, tiny_policy(seed=1), SEQUENCES)
    cached_reference_log_probs(tmp_path, tiny_policy(), SEQUENCES.take([0, 1]))
    cached_reference_log_probs(tmp_path, tiny_policy(), SEQUENCES, distribution=Distribution(temperature=0.7))
    cached_reference_log_probs(tmp_path, tiny_policy(torch.float32), SEQUENCES, autocast=torch.bfloat16)
    assert len(list(tmp_path.iterdir())) == 5


def test_where_a_completion_begins_is_part_of_the_hash() -> None:
    assert tokens_hash(Sequences([[1, 2]], [[3]])) != tokens_hash(Sequences([[1]], [[2, 3]]))


def test_a_broken_file_is_made_again_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_policy()
    first = cached_reference_log_probs(tmp_path, model, SEQUENCES)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:30])
    with caplog.at_level(logging.WARNING, "rewardflow.learner"):
        again = cached_reference_log_probs(tmp_path, model, SEQUENCES)
    assert "is broken" in caplog.text
    assert all(torch.equal(first, other) for first, other in zip(first, again, strict=True))


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_reference_is_left_as_it_was(tmp_path: Path, training: bool) -> None:
    model = tiny_policy().train(training)
    cached_reference_log_probs(tmp_path, model, SEQUENCES)
    assert model.training is training
