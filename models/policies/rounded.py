"""One-time rounding of a frozen model's weights that autocast would round at every forward pass.

Under autocast, a linear layer's weights are rounded to bfloat16 each time they are used. A model that is not trained
can store the rounded values: half of the memory, the same values to the last bit. The parts that autocast leaves in
float32 (norms, embeddings, and a projection tied to these) stay so.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel

from models.learner.log_probs import use_packed_attention


def round_once(model: PreTrainedModel, autocast: torch.dtype) -> None:
    """Round the weights of `rounded_layers`, in place; from then on `model` must be read under `autocast` only.

    Raises:
        UserError: the model cannot read packed rows.
    """
    use_packed_attention(model)  # tried in one precision, before the model has two
    for layer in rounded_layers(model):
        layer.weight.data = layer.weight.data.to(autocast)
        if layer.bias is not None:
            layer.bias.data = layer.bias.data.to(autocast)


def rounded_layers(model: PreTrainedModel) -> list[nn.Linear]:
    """Return the layers whose weights autocast rounds at every use, and that nothing else reads."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    head = model.get_output_embeddings()  # read by blocks, its bias unrounded
    return [
        module
        for module in model.modules()
        if type(module) is nn.Linear
        and id(module.weight) not in embeddings
        and not (module is head and module.bias is not None)
    ]
