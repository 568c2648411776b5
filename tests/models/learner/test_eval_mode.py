"""`in_eval_mode` and the readings that use it: every module has its former mode afterwards, also after an error."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from models.base.errors import UserError
from models.engines.canary import canary_gap
from models.learner.all_completions import all_log_probs
from models.learner.eval_mode import in_eval_mode
from models.learner.log_probs import use_packed_attention
from models.learner.precision import measured
from tests.support.tiny_models import SEQUENCES, tiny_policy


def modes(*models: nn.Module) -> list[bool]:
    return [module.training for model in models for module in model.modules()]


def mixed_modes(model: nn.Module) -> nn.Module:
    """Put `model` in training mode, but its first child in eval mode, and return it."""
    model.train()
    next(iter(model.children())).eval()
    return model


def test_every_module_has_its_own_mode_again() -> None:
    mixed, training, resting = mixed_modes(tiny_policy()), tiny_policy().train(), tiny_policy()
    before = modes(mixed, training, resting)
    assert len(set(modes(mixed))) == 2
    with in_eval_mode(mixed, training, resting):
        assert not any(modes(mixed, training, resting))
    assert modes(mixed, training, resting) == before


def test_every_module_has_its_own_mode_again_after_an_exception() -> None:
    mixed = mixed_modes(tiny_policy())
    before = modes(mixed)
    with pytest.raises(ZeroDivisionError), in_eval_mode(mixed, nn.Dropout()):
        1 / 0  # noqa: B018
    assert modes(mixed) == before


def test_within_one_another_the_outer_mode_comes_back_last() -> None:
    mixed = mixed_modes(tiny_policy())
    before = modes(mixed)
    with in_eval_mode(mixed):
        with in_eval_mode(mixed, mixed):
            assert not any(modes(mixed))
        assert not any(modes(mixed))
    assert modes(mixed) == before


def test_dropout_is_off_inside_and_on_again_afterwards() -> None:
    dropout, ones = nn.Dropout(0.5).train(), torch.ones(1000)
    with in_eval_mode(dropout):
        assert torch.equal(dropout(ones), ones)
    assert not torch.equal(dropout(ones), ones)


def fails(*given: Tensor, **settings: Any) -> None:
    raise RuntimeError("the model's own code failed")


class SilentEngine:
    def members(self) -> Sequence["SilentEngine"]:
        return [self]

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        return [[0.0] * len(ids) for ids in completions]


@pytest.mark.parametrize(
    "read",
    [
        lambda policy: all_log_probs(policy, SEQUENCES),
        lambda policy: measured(policy),
        lambda policy: canary_gap(cast(Any, SilentEngine()), policy, SEQUENCES, None),
    ],
    ids=["log_probs", "precision", "canary"],
)
def test_a_reading_that_fails_leaves_the_modes_as_they_were(read: Callable[[PreTrainedModel], Any]) -> None:
    policy = tiny_policy()
    use_packed_attention(policy)
    mixed_modes(policy)
    before = modes(policy)
    policy.model.layers[0].forward = fails
    with pytest.raises(RuntimeError, match="own code"):
        read(policy)
    assert modes(policy) == before


def test_a_reading_leaves_a_part_in_eval_mode_that_was_in_it() -> None:
    policy = mixed_modes(tiny_policy())
    before = modes(policy)
    all_log_probs(policy, SEQUENCES)
    assert modes(policy) == before


def test_a_budget_below_a_row_leaves_the_modes_as_they_were() -> None:
    policy = mixed_modes(tiny_policy())
    before = modes(policy)
    with pytest.raises(UserError, match="smaller than one row"):
        all_log_probs(policy, SEQUENCES, token_budget=1)
    assert modes(policy) == before
