"""Selection of the engine for a model folder: the one in the settings, or the one that the folder's policy needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from models.base.errors import UserError
from models.engines.attention_heads import runs_in_vllm
from models.engines.engine import Engine, EngineSettings, engine_dtype
from models.engines.restart import Restarting
from models.engines.vllm_images import image_prompts_of
from models.engines.vocabulary import check_vocabulary
from models.policies.use import read_use
from models.text.end_ids import Ends


@dataclass(frozen=True)
class Opening:
    """The selected engine of a model folder: how to start it, and its properties before the start."""

    start: Callable[[], Engine]
    """Function that starts a new engine on the folder's weights."""
    dtype: torch.dtype
    """Data type of the computation."""
    most: int | None
    """Completions that it makes at the same time, batch after batch; None: it adds and drops them as it runs."""


def open_engine(
    folder: Path,
    settings: EngineSettings,
    *,
    longest: int,
    end: Ends,
    seed: int,
    dtype: torch.dtype | None = None,
    trust_remote_code: bool = False,
) -> Engine:
    """Start the engine that `opening` selects, with the same arguments and errors; it is restarted if it breaks."""
    opened = opening(
        folder, settings, longest=longest, end=end, seed=seed, dtype=dtype, trust_remote_code=trust_remote_code
    )
    return Restarting(opened.start, opened.dtype)


def opening(
    folder: Path,
    settings: EngineSettings,
    *,
    longest: int,
    end: Ends,
    seed: int,
    dtype: torch.dtype | None = None,
    trust_remote_code: bool = False,
    ways: int = 1,
) -> Opening:
    """Select the engine of a model folder by `settings`, without starting it.

    A policy that writes by turns with its reference, or within the mask of a lagged copy, has an engine of its own,
    whatever the settings name.

    Args:
        folder: a model folder in safetensors.
        settings: engine and its limits.
        longest: tokens of the longest prompt and completion together.
        end: id of the token that ends a completion, or of all that do.
        seed: seed of the engine's own random numbers.
        dtype: the learner's precision, float32 or bfloat16, which `precision: auto` follows; None: bfloat16 on a GPU.
        trust_remote_code: run code that the model ships.
        ways: GPUs, or processes, that its matrices are split over.

    Raises:
        UserError: vLLM is requested and not installed or without a kernel for the model's heads, the folder cannot be
            served, its tokenizer has more tokens than the model, an engine that cannot be split is to be split, or
            a policy that reads images is gated or masked.
    """
    in_vllm = runs_in_vllm(folder, settings, trust_remote_code=trust_remote_code)
    check_vocabulary(folder, trust_remote_code=trust_remote_code)
    chosen = engine_dtype(settings, dtype)
    use = read_use(folder)
    if (use.gated or use.mask_top_p < 1.0) and image_prompts_of(folder) is not None:
        raise UserError(f"{folder}: a policy that reads images can neither be gated nor write within a mask")
    most: int | None = settings.max_sequences
    if use.gated:
        from models.engines.gated_engine import GatedEngine

        def start() -> Engine:
            return GatedEngine(folder, settings, end=end, dtype=chosen, trust_remote_code=trust_remote_code)
    elif use.mask_top_p < 1.0:
        from models.engines.masked_engine import MaskedEngine

        def start() -> Engine:
            return MaskedEngine(folder, settings, end=end, dtype=chosen, trust_remote_code=trust_remote_code)
    elif not in_vllm:
        from models.engines.transformers_engine import TransformersEngine

        def start() -> Engine:
            return TransformersEngine(folder, settings, end=end, dtype=chosen, trust_remote_code=trust_remote_code)
    else:
        from models.engines.vllm_engine import VllmEngine

        most = None

        def start() -> Engine:
            return VllmEngine(
                folder,
                settings,
                longest=longest,
                end=end,
                seed=seed,
                dtype=chosen,
                trust_remote_code=trust_remote_code,
                ways=ways,
            )

    if ways > 1 and most is not None:
        raise UserError(f"placement.engine_gpus is {ways}, but only vLLM cuts a model over several; set it to 1")
    return Opening(start, chosen, most)
