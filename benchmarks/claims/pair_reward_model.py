"""A reward model fitted to pairs as in the pipeline's step, into a folder that a training opens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from models.base.device import on_device
from models.policies.folder import save_model_folder
from models.recipes.schema import Recipe
from models.reward_models.fit import Pair, fit_reward_model, score_pairs
from models.reward_models.model import reward_model_from_policy
from models.text.tokenizer import load_tokenizer


def fit_to_pairs(
    start: Path,
    recipe: Recipe,
    pairs: Sequence[Pair],
    folder: Path,
    judged: Sequence[Pair] = (),
    autocast_for: Callable[[nn.Module], torch.dtype | None] = lambda model: None,
) -> float | None:
    """Fit a reward model to `pairs` by the settings `recipe.reward_model.fit`; it is written to `folder`.

    Args:
        start: the model folder that it begins as.
        recipe: its settings and seed.
        pairs: what it learns from.
        folder: where it is written.
        judged: held-out pairs.
        autocast_for: what the model computes in; None for plain float32.

    Returns:
        Share of `judged` in which it scores the chosen completion higher; None if there are none.

    Raises:
        UserError: see `models.reward_models.fit.fit_reward_model`.
    """
    assert recipe.reward_model is not None
    settings, tokenizer = recipe.reward_model.fit, load_tokenizer(start)
    model = on_device(reward_model_from_policy(start, seed=recipe.seed))
    autocast = autocast_for(model)
    fit_reward_model(model, pairs, settings, seed=recipe.seed, autocast=autocast)
    save_model_folder(model, tokenizer, folder)
    if not judged:
        return None
    chosen, rejected = score_pairs(model, judged, token_budget=settings.token_budget, autocast=autocast)
    return float((chosen > rejected).float().mean())
