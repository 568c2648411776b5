"""Skip analysis: how much a model's predictions change if a block is left out, and the blocks that get an adapter.

    cost(n) = mean over positions of KL(pi || pi without block n), nats a token

The positions are those of short texts that the model itself draws, so no data are needed. The same weights and seed
give the same costs. In PointVLA (paper 378), new features are injected only into the blocks whose removal costs least,
which disturbs least what the model has learned before; the paper measures the success of a robot without a block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from models.base.errors import UserError

TEXTS, LENGTH = 16, 24
"""Number of texts that the model draws, and their length, tokens."""


def blocks_of(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """Return the name and the list of a model's blocks.

    Raises:
        UserError: the model has no list of as many blocks as its config states.
    """
    config: Any = model.config
    count = config.get_text_config().num_hidden_layers
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return name, module
    raise UserError(f"policy.lora.blocks: the policy has no list of {count} blocks; leave the setting out")


@contextmanager
def without_block(block: nn.Module) -> Iterator[None]:
    """Leave a block out: its output is its input, the residual stream."""

    def skip(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
        stream = given[0] if given else named["hidden_states"]
        return (stream, *output[1:]) if isinstance(output, tuple) else stream

    handle = block.register_forward_hook(skip, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def removal_costs(model: nn.Module, seed: int) -> list[float]:
    """Return the cost of leaving out each block, nats a token, [blocks].

    Args:
        model: causal language model; its mode, its weights and the global random state stay as they are.
        seed: seed of the texts that the model draws.

    Raises:
        UserError: see `blocks_of`.
    """
    _, blocks = blocks_of(model)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            texts = _drawn_texts(model, seed)
            whole = _log_probs(model, texts)
            costs = []
            for block in blocks:
                with without_block(block):
                    costs.append(float((whole.exp() * (whole - _log_probs(model, texts))).sum(-1).mean()))
    finally:
        model.train(training)
    return costs


def least_costly(costs: Sequence[float], count: int) -> tuple[int, ...]:
    """Return the numbers of the `count` blocks whose removal costs least, in their order; the first of equal ones."""
    return tuple(sorted(sorted(range(len(costs)), key=lambda number: costs[number])[:count]))


def adapted_modules(model: nn.Module, targets: str | Sequence[str], count: int, seed: int) -> list[str]:
    """Return the names of the linear layers that get an adapter: those of the least costly blocks, [modules].

    Args:
        model: the policy before it has adapters. Without weights (device meta), the first blocks are returned.
        targets: as in `policy.lora.targets`: `all-linear`, a regular expression of whole names, or ends of names.
        count: number of blocks, at most that of the model.
        seed: see `removal_costs`.

    Raises:
        UserError: the model has fewer blocks, or none of the layers in these blocks is a target.
    """
    name, blocks = blocks_of(model)
    if count > len(blocks):
        raise UserError(f"policy.lora.blocks is {count}, but the policy has {len(blocks)} blocks; lower it")
    weightless = next(model.parameters()).is_meta
    numbers = tuple(range(count)) if weightless else least_costly(removal_costs(model, seed), count)
    chosen = tuple(f"{name}.{number}." for number in numbers)
    modules = [
        path
        for path, module in model.named_modules()
        if path.startswith(chosen) and isinstance(module, nn.Linear) and _is_target(path, targets)
    ]
    if not modules:
        raise UserError("policy.lora.targets: none of them is in a block; leave policy.lora.blocks out, or add one")
    return modules


def _is_target(path: str, targets: str | Sequence[str]) -> bool:
    if isinstance(targets, str):
        return targets == "all-linear" or re.fullmatch(targets, path) is not None
    return any(path == target or path.endswith(f".{target}") for target in targets)


def _drawn_texts(model: nn.Module, seed: int) -> Tensor:
    """Draw texts from the model, each after a random first token, [texts, tokens]."""
    config: Any = model.config
    generator = torch.Generator().manual_seed(seed)
    vocabulary = int(config.get_text_config().vocab_size)
    device = next(model.parameters()).device
    texts = torch.randint(vocabulary, (TEXTS, 1), generator=generator).to(device)
    for _ in range(LENGTH - 1):
        shares = _log_probs(model, texts)[:, -1].exp().float().cpu()
        texts = torch.cat([texts, torch.multinomial(shares, 1, generator=generator).to(device)], 1)
    return texts


def _log_probs(model: nn.Module, texts: Tensor) -> Tensor:
    """Return the log-probs of every next token, [texts, tokens, vocabulary], nats."""
    logits: Tensor = model(input_ids=texts, use_cache=False).logits
    return torch.log_softmax(logits.double(), -1)
