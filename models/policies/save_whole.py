"""Saving of a model, possibly split over several ranks, as an ordinary model folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

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
    write_extra: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Write `model`, with adapters merged in, as a model folder; the first rank joins and holds the whole weights.

    Args:
        plain: opens a model without adapters whose weights have the same names; called on the first rank.
        result: the model folder that is created.
        write_extra: see `save_model_folder`.
    """
    whole = whole_model(model, plain, ranks)
    ranks.from_first(lambda: save_model_folder(cast("PreTrainedModel", whole), tokenizer, result, write_extra))


def whole_model(model: nn.Module, plain: Callable[[], PreTrainedModel], ranks: Ranks) -> PreTrainedModel | None:
    """Return a model with the whole weights of `model`, adapters merged in, on the CPU; None except on the first rank.

    Args:
        plain: see `save_whole`.
    """
    weights = {}
    for name, tensor in merged_weights(model):  # all ranks join each of them
        if ranks.first:
            weights[name] = tensor.detach().cpu()
    made: list[PreTrainedModel] = []

    def build() -> None:
        made.append(plain())
        made[0].load_state_dict(weights)

    ranks.from_first(build)  # an error of the first rank is raised on all
    return made[0] if made else None
