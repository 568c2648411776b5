"""The weights of a policy for an engine or a model folder, with adapters merged into copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from models.base.ranks import cut_like, whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def merged_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and tensors of a model without adapters; an adapted matrix is base + delta in a new tensor.

    Each tensor of a model that is split over the ranks is joined on demand, on all of them. The trained weights are not
    changed: merging in place and undoing it would not give the same floats.
    """
    if not hasattr(model, "get_base_model"):
        yield from ((name, whole(tensor)) for name, tensor in model.state_dict().items())
        return
    from peft.tuners.lora import LoraLayer

    inner = model.get_base_model()
    adapted: dict[str, Any] = {name: module for name, module in inner.named_modules() if isinstance(module, LoraLayer)}
    with torch.no_grad():
        for name, tensor in inner.state_dict().items():
            if ".lora_" in name or name.startswith("lora_"):
                continue
            plain = name.replace(".base_layer", "")
            owner = plain.removesuffix(".weight")
            if plain.endswith(".weight") and owner in adapted:
                layer = adapted[owner]
                delta = sum(layer.get_delta_weight(adapter) for adapter in layer.active_adapters)
                yield plain, whole(tensor + delta)
            else:
                yield plain, whole(tensor)


def weights_of_both(plain: nn.Module, model: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each weight of `plain`, and the corresponding weight of `model` with its adapter merged in.

    The latter is split over the ranks as the former is. Weights that a model uses twice (tied embeddings) come once.
    """
    own = dict(plain.named_parameters())
    for name, weight in merged_weights(model):
        if name in own:
            place = own.pop(name)
            yield place, cut_like(weight, place)
    assert not own, f"the two models differ in {sorted(own)}"


def plain_model(model: Any) -> PreTrainedModel:
    """Return a model without adapters, for saving.

    Adapters are merged permanently, so an adapted model must not be trained afterwards.
    """
    from transformers import PreTrainedModel

    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    assert isinstance(model, PreTrainedModel)
    return model
