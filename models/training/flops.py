"""Operations that an update needs, counted from the model's shapes: the basis of the learner's speed.

The count is of the necessary work, not of the work that was done: every prompt once for all of its completions (P + G *
C tokens), the output projection for completion tokens only, nothing for padding, nothing twice. A multiplication with
an addition counts as two. Norms, activations and the softmax are left out, as is usual.

    forward    2 * (matrix entries) a token, and in each layer 4 * (width of all heads) for every key a query sees
    backward   as much again for the gradient of the inputs, and as much again for that of the weights
    LoRA       the frozen matrices have no gradient of their own: 4 instead of 6 an entry; adapters 6
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from models.method.scored import Scored


@dataclass(frozen=True)
class Group:
    """Completions that share one prompt."""

    prompt: int
    """Tokens of the prompt."""
    completions: tuple[int, ...]
    """Tokens of each completion, [G]."""

    @property
    def tokens(self) -> int:
        """Tokens that a model must compute: P + the sum of C."""
        return self.prompt + sum(self.completions)


@dataclass(frozen=True)
class Shapes:
    """The shapes of a model that take part in matrix products."""

    learning: int
    """Entries of matrices that learn, adapters included, without embeddings and output projection."""
    frozen: int
    """Entries of matrices that do not learn."""
    head: int
    """Entries of the output projection, hidden x vocabulary."""
    head_learns: bool
    attention: tuple[tuple[int, int | None], ...]
    """For each layer: heads x head size, and the tokens of its sliding window (None: all)."""
    adapters: int = 0
    """Entries of `learning` that a reference with the adapter switched off does not compute."""


def shapes_of(model: nn.Module) -> Shapes:
    """Count the matrices of a causal language model of transformers, with or without adapters."""
    adapted: Any = model
    inner: Any = adapted.get_base_model() if hasattr(model, "get_base_model") else adapted
    head = inner.get_output_embeddings()
    in_head = {id(module) for module in head.modules()}
    learning = frozen = adapters = 0
    for path, module in inner.named_modules():
        if isinstance(module, nn.Embedding) or id(module) in in_head:
            continue
        for parameter in module.parameters(recurse=False):
            if parameter.ndim != 2:
                continue
            if parameter.requires_grad:
                learning += parameter.numel()
                adapters += parameter.numel() if ".lora_" in path else 0
            else:
                frozen += parameter.numel()
    projection = max(head.parameters(), key=lambda parameter: parameter.numel())
    return Shapes(
        learning,
        frozen,
        projection.numel(),
        projection.requires_grad,
        _attention(inner.config.get_text_config()),
        adapters,
    )


def update_flops(shapes: Shapes, groups: Sequence[Group]) -> float:
    """Count the operations of one forward and backward pass over `groups`, each prompt computed once."""
    tokens, predicted = _tokens(groups)
    body = (6 * shapes.learning + 4 * shapes.frozen) * tokens
    head = (6 if shapes.head_learns else 4) * shapes.head * predicted
    return float(body + head + 3 * _attention_flops(shapes, groups))


def forward_flops(shapes: Shapes, groups: Sequence[Group], *, adapter_off: bool = False) -> float:
    """Count the operations of one forward pass: a third of an update if all matrices learn."""
    tokens, predicted = _tokens(groups)
    entries = shapes.learning + shapes.frozen - (shapes.adapters if adapter_off else 0)
    return float(2 * entries * tokens + 2 * shapes.head * predicted + _attention_flops(shapes, groups))


def groups_of(chosen: Scored) -> list[Group]:
    """Return the lengths of the chosen completions, by the prompt that they share."""
    lengths_of: dict[int, list[int]] = {}
    prompts: dict[int, int] = {}
    for number, rollout in zip(chosen.groups.tolist(), chosen.rollouts, strict=True):
        prompts[number] = len(rollout.problem.tokens)
        lengths_of.setdefault(number, []).append(len(rollout.completion))
    return [Group(prompts[number], tuple(lengths)) for number, lengths in lengths_of.items()]


def keys_seen(start: int, length: int, window: int | None = None) -> int:
    """Count the keys that `length` queries see together, the first of which comes after `start` tokens; each sees
    itself."""
    if window is None or start + length <= window:
        return length * start + length * (length + 1) // 2
    growing = max(0, window - start)
    return keys_seen(start, growing) + (length - growing) * window


def _tokens(groups: Iterable[Group]) -> tuple[int, int]:
    """Return the tokens computed, and those of them that are completions."""
    every = list(groups)
    return sum(group.tokens for group in every), sum(sum(group.completions) for group in every)


def _attention_flops(shapes: Shapes, groups: Sequence[Group]) -> int:
    """Count queries times keys and probabilities times values: 2 products of 2 operations a number."""
    seen = {
        window: sum(
            keys_seen(0, group.prompt, window) + sum(keys_seen(group.prompt, c, window) for c in group.completions)
            for group in groups
        )
        for window in {window for _, window in shapes.attention}
    }
    return sum(4 * width * seen[window] for width, window in shapes.attention)


def _attention(config: Any) -> tuple[tuple[int, int | None], ...]:
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    layers = config.num_hidden_layers
    sliding = [kind == "sliding_attention" for kind in kinds] if kinds else [window is not None] * layers
    return tuple((config.num_attention_heads * size, window if slides else None) for slides in sliding)
