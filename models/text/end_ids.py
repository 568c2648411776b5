"""Tokens that end a completion: the tokenizer names one, a model's generation config may name several.

Servers stop at all of them (vLLM, transformers' generate), so engines, evaluations and rewards must too. In a folder
without a generation config, its config is used instead, as in transformers and vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Ends = int | Collection[int]
"""One id, or all ids that end a completion."""


def all_of(end: Ends) -> tuple[int, ...]:
    """Return end ids as a tuple, each once, in rising order."""
    return (end,) if isinstance(end, int) else tuple(sorted(set(end)))


def ends_of_model(model: PreTrainedModel) -> tuple[int, ...]:
    """Return the end ids in the configs of a loaded model; empty if it names none."""
    generation: Any = getattr(model, "generation_config", None)
    eos_token_id = getattr(generation, "eos_token_id", None)
    return _ids(model.config.get_text_config().eos_token_id if eos_token_id is None else eos_token_id)


def ends_of_folder(folder: Path) -> tuple[int, ...]:
    """Return the end ids in the configs of a model folder, without loading the model; empty if it names none."""
    for name in ("generation_config.json", "config.json"):
        file = folder / name
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        eos_token_id = config.get("eos_token_id", config.get("text_config", {}).get("eos_token_id"))
        if eos_token_id is not None:
            return _ids(eos_token_id)
    return ()


def name_ends(model: PreTrainedModel, ends: Collection[int]) -> None:
    """Set `ends` as the end ids in the generation config of `model`, which servers of the saved model read."""
    generation: Any = getattr(model, "generation_config", None)
    if generation is None:  # code of its own that generates by itself; the config names its end
        return
    generation.eos_token_id = next(iter(ends)) if len(ends) == 1 else list(ends)


def _ids(eos_token_id: int | list[int] | None) -> tuple[int, ...]:
    if eos_token_id is None:
        return ()
    return all_of(eos_token_id)
