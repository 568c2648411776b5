"""Checks that vLLM has a kernel for a model's attention heads: on a CPU it supports some sizes only, and fails late."""

from __future__ import annotations

from pathlib import Path

import torch

from models.base.errors import UserError
from models.engines.engine import EngineSettings, has_vllm
from models.engines.vocabulary import read_config

CPU_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Head sizes that vLLM's attention on a CPU supports."""


def head_size(folder: Path, *, trust_remote_code: bool = False) -> int | None:
    """Return the size of an attention head of the model in `folder`; None if its config does not define it.

    Raises:
        UserError: the config cannot be read.
    """
    config = read_config(folder, trust_remote_code=trust_remote_code)
    size = getattr(config, "head_dim", None)
    hidden, heads = getattr(config, "hidden_size", None), getattr(config, "num_attention_heads", None)
    return size or (hidden // heads if hidden and heads else None)


def has_kernel(size: int | None) -> bool:
    """Return whether vLLM supports heads of this size on this machine; True for None, an unknown size."""
    return size is None or size in CPU_SIZES or torch.cuda.is_available()


def check_heads(folder: Path, key: str, *, trust_remote_code: bool = False) -> None:
    """Check that vLLM can run the model in `folder` on this machine.

    Raises:
        UserError: it has no kernel for heads of this size here; the message begins with `key`.
    """
    size = head_size(folder, trust_remote_code=trust_remote_code)
    if not has_kernel(size):
        raise UserError(
            f"{key}: on a CPU vLLM attends with heads of {', '.join(map(str, CPU_SIZES))} numbers, and those of "
            f"{folder} have {size}; take a size among them, or the engine transformers"
        )


def runs_in_vllm(folder: Path, settings: EngineSettings, *, trust_remote_code: bool = False) -> bool:
    """Return whether a model folder runs in vLLM: by name, or with `auto` if it is installed and supports the heads.

    Raises:
        UserError: vLLM is named, and not installed or without a kernel for these heads; or the config cannot be read.
    """
    if settings.name == "vllm":
        if not has_vllm():
            raise UserError(
                "engine.name: vllm is not installed; install the extra cpu or cuda, or use engine.name: transformers"
            )
        check_heads(folder, "engine.name", trust_remote_code=trust_remote_code)
        return True
    return settings.name == "auto" and has_vllm() and has_kernel(head_size(folder, trust_remote_code=trust_remote_code))
