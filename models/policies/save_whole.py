"""Writer of a model, possibly split over several ranks, as an ordinary model folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from models.base.ranks import Ranks
from models.policies.folder import save_model_folder
from models.policies.weights import merged_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def save_whole(
    model: nn.Module,
    plain: Callable[[], PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    result: Path,
    ranks: Ranks,
    beside: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Write the whole weights of `model`, adapters merged in; each is joined once, and kept by the first rank only.

    Args:
        plain: opens a model without adapters whose weights have the same names; called on the first rank.
        result: the model folder that is created.
        beside: see `save_model_folder`.
    """
    weights = {}
    for name, tensor in merged_weights(model):
        if ranks.first:
            weights[name] = tensor.detach().cpu()

    def write() -> None:
        written = plain()
        written.load_state_dict(weights)
        save_model_folder(written, tokenizer, result, beside)

    ranks.from_first(write)
