"""Activations that a model keeps for its backward pass: counted on fake tensors, or from the sizes of a vision tower.

The learner's own forward and backward pass runs on tensors that have only shapes, over two sizes of the model; layers
are alike, so the rest is extrapolated. The code of vision towers reads values, which such tensors do not have.
Therefore the tensors of a tower's layers are counted from its config.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from models.learner.attention.packed_attention import NAME, register_packed_attention
from models.learner.log_probs import plain_inner, row_states
from models.learner.model_parts import part_of
from models.learner.recompute import recomputing
from models.policies.build import new_shapes
from models.recipes.plan.alive import Alive

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FLOAT = 4
"""Bytes of a number in float32: weights, gradients and both moments of AdamW."""


@dataclass(frozen=True)
class PackedRowSize:
    """Size of the largest packed row that the learner reads at once."""

    tokens: int
    completion_tokens: int
    """Number of these tokens whose log-probs are read."""
    prompts: int
    """Number of distinct prompts."""
    several: bool
    """Whether an update reads more than one row, so that gradients are held while the next one is read."""


def activations_of(
    config: Any,
    prepare: Callable[[PreTrainedModel], PreTrainedModel],
    row: PackedRowSize,
    autocast: torch.dtype | None,
    again: bool,
) -> tuple[int, int]:
    """Count the bytes that a model keeps of `row`, and the most that its backward pass makes in addition.

    Args:
        config: configuration of the model, as transformers has it.
        prepare: adds what else learns, such as adapters.
        row: what is read.
        autocast: dtype of the matrix products; None: float32.
        again: whether layers are read again for their backward pass.
    """
    layers = config.get_text_config().num_hidden_layers
    counts = range(1, min(layers, 2) + 1)
    (least, backward), *more = (_activations(config, prepare, count, row, autocast, again) for count in counts)
    return least + sum((layers - 1) * (kept - least) for kept, _ in more), backward


def _activations(
    config: Any,
    prepare: Callable[[PreTrainedModel], PreTrainedModel],
    layers: int,
    row: PackedRowSize,
    autocast: torch.dtype | None,
    again: bool,
) -> tuple[int, int]:
    """Count the bytes of `activations_of` for a model of so many layers, which is run on fake tensors."""
    smaller = copy.deepcopy(config)
    text = smaller.get_text_config()
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]
    register_packed_attention()
    with torch.device("meta"):
        policy = prepare(new_shapes(smaller)).eval()
    plain_inner(policy).set_attn_implementation(NAME)
    if not any(weight.requires_grad for name, weight in policy.named_parameters() if part_of(name) == "language"):
        policy.get_input_embeddings().weight.requires_grad_(True)  # the gradient flows to the features of pictures
    policy.config.vision_config = None  # the row is read as text
    with FakeTensorMode():
        standing = _as_fakes(policy)
        ids = torch.empty(row.tokens, dtype=torch.long)
        with recomputing(policy, again), Alive((*standing, ids)) as alive:
            states = row_states(policy, ids, ids, _Attention(), autocast)
            kept = alive.now
            chosen = states[: row.completion_tokens]
            chosen.backward(torch.empty_like(chosen))  # type: ignore[no-untyped-call]
        return kept, alive.most - kept


def _as_fakes(model: nn.Module) -> list[Tensor]:
    """Give a model of shapes parameters, gradients and buffers that act as a CPU's. Returns them."""
    made: dict[int, Tensor] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                if id(weight) not in made:
                    fake = nn.Parameter(torch.empty(weight.shape, dtype=weight.dtype), weight.requires_grad)
                    fake.grad = torch.empty_like(fake) if weight.requires_grad else None
                    made[id(weight)] = fake
                module._parameters[name] = made[id(weight)]  # type: ignore[assignment]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = made.setdefault(id(buffer), torch.empty(buffer.shape, dtype=buffer.dtype))
    return [*made.values(), *(value.grad for value in made.values() if value.grad is not None)]


class _Attention:
    """Attention as the packed routes keep it: queries, keys, values, the output, a sum a query; no scores."""

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """Return attention, [1, heads, tokens, size] -> [1, tokens, heads, size]."""
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        return functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).contiguous()


def tower_activations(model: Any, pictures: int) -> int:
    """Estimate the bytes that a vision tower keeps of pictures; 0 if it does not learn, or if there is none.

    For each patch, a layer keeps about eight tensors of its width and two of its feed-forward width, five if it is
    gated. This is 74 to 96 % of what the towers of six families keep in a test.

    Args:
        model: the policy as shapes, with its adapters; parameters that require a gradient learn.
        pictures: distinct pictures of a row.
    """
    weights = {name: weight for name, weight in model.named_parameters() if part_of(name) == "vision"}
    if not any(weight.requires_grad for weight in weights.values()):
        return 0
    tower, inner = model.config.vision_config, 5 if any("gate_proj" in name for name in weights) else 2
    width, layers = _first(tower, "hidden_size", "embed_dim"), _first(tower, "num_hidden_layers", "depth")
    per_patch = 8 * width + inner * _first(tower, "intermediate_size", "hidden_size")
    return FLOAT * pictures * patches_of(tower) * layers * per_patch


def patches_of(tower: Any) -> int:
    """Return the number of patches of a picture, from the config of a vision tower.

    Towers without a fixed size of pictures get `PATCHES` patches.
    """
    sizes = getattr(tower, "image_size", None)
    if sizes is None:
        return PATCHES
    sides = sizes if isinstance(sizes, list | tuple) else (sizes, sizes)
    patch = tower.patch_size
    height, width = patch if isinstance(patch, list | tuple) else (patch, patch)
    return int(sides[0] // height) * int(sides[1] // width)


PATCHES = 1024
"""Patches of a picture that are assumed for a tower that reads pictures of any size, such as 448 x 448 pixels."""


def _first(config: Any, *names: str) -> int:
    """Return the first of several settings that a config has."""
    return next(int(getattr(config, name)) for name in names if getattr(config, name, None) is not None)
