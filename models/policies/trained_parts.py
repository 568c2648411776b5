"""Selection of the parts of a policy that learn: language model, connector, vision tower; adapters or all weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from models.base.errors import UserError
from models.learner.model_parts import ALL_PARTS, Part, part_of
from models.policies.build import LoraSettings, with_adapter

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def set_to_learn(
    model: PreTrainedModel, adapter: LoraSettings | None, parts: Sequence[Part], seed: int
) -> PreTrainedModel:
    """Add the adapter, if there is one, and freeze all weights outside of some parts.

    Args:
        model: a policy.
        adapter: low-rank adapters that learn instead of the model's own weights; None: the weights themselves.
        parts: parts that learn.
        seed: seed of the adapters.

    Raises:
        UserError: the policy lacks a part, nothing is left to learn, or the adapter does not fit.
    """
    if adapter is not None:
        model = with_adapter(model, adapter, seed)
    if set(parts) == set(ALL_PARTS):
        return model
    present = {part_of(name) for name, _ in model.named_parameters()}
    if missing := [part for part in parts if part not in present]:
        raise UserError(f"policy.train: the policy has no part {missing[0]}; leave the setting out")
    for name, weight in model.named_parameters():
        if part_of(name) not in parts:
            weight.requires_grad_(False)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise UserError("policy.train: no adapter is in these parts; name another part, or other policy.lora.targets")
    return model
