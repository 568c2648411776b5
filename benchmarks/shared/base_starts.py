"""The policy that a training of a given base begins with: the base fitted to the recipe's demonstrations.

It is made as in the pipeline's step `warm_start`, with models/ alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.shared.recipe_loop import codec_of
from benchmarks.shared.warm_starts import Work
from models.base.errors import UserError
from models.learner.supervised import fit_supervised, negative_log_likelihood
from models.policies.base_models.source import carry_source
from models.policies.build import open_policy, with_adapter
from models.policies.folder import save_model_folder
from models.policies.weights import plain_model
from models.text.end_ids import name_ends
from models.training.read_demonstrations import demonstrations


def start_of_base(work: Work, recipe: Any, base: Path, folder: Path) -> tuple[Path, float | None]:
    """Make the policy that the recipe's rounds begin with.

    Args:
        work: the data, and the measured precisions.
        recipe: has a warm start.
        base: the base's model folder.
        folder: where a warm-started policy is written.

    Returns:
        The policy's model folder, and its loss on held-out demonstrations, nats a token; None if the data have no
        held-out demonstrations.

    Raises:
        UserError: the data have no demonstrations that fit, or the base cannot be opened.
    """
    settings = recipe.warm_start
    model, tokenizer = open_policy(base)
    codec = codec_of(recipe, base)
    longest = int(model.config.max_position_embeddings)
    role = None if recipe.rollouts.episodes is None else recipe.rollouts.episodes.role
    parts = (role, recipe.shown_verifier, recipe.rollouts.adviser, recipe.rollouts.teaches)
    rows, held_out = (
        demonstrations(work.data, codec, split, longest, settings, *parts) for split in ("train", "validation")
    )
    if not len(rows):
        raise UserError(f"warm_start: the data set {recipe.data.name} has no demonstrations that fit {longest} tokens")
    learner = with_adapter(model, recipe.policy.lora, recipe.seed) if recipe.policy.lora else model
    autocast = work.autocast(recipe, learner)
    fit_supervised(
        learner, rows, settings, seed=recipe.seed, autocast=autocast, report=partial(_print_progress, settings.steps)
    )
    loss = negative_log_likelihood(learner, held_out, settings.token_budget, autocast) if len(held_out) else None
    policy = plain_model(learner)
    name_ends(policy, codec.ends)
    save_model_folder(policy, tokenizer, folder, partial(carry_source, base))
    return folder, loss


def _print_progress(steps: int, step: int, metrics: Mapping[str, float]) -> None:
    """Print the progress of the warm start."""
    print(f"warm start: step {step} of {steps}, loss {metrics['loss']:.3f}", file=sys.stderr, flush=True)
