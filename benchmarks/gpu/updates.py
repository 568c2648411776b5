"""One GRPO update of ours and one of the plain padded loop: the same tokens, precision and optimiser."""

from __future__ import annotations

from typing import Any, Literal

import torch

from benchmarks.gpu.shapes import Packed, Size, new_model
from benchmarks.gpu.timing import NO_MEMORY, Terms, Update, clear, seconds_of
from benchmarks.shared.batches import alternating
from benchmarks.shared.learners import grpo_update, learner_of, schedule, scored_of
from benchmarks.speed.padded import PaddedLoop
from models.base.memory import is_out_of_memory
from models.learner.compiled_layers import are_compiled, compile_layers, should_compile
from models.training.flops import groups_of, shapes_of, update_flops

PRECISION = torch.bfloat16
MOST_ROWS = 32
"""Parallel completions that the padded loop is tried with first; then half as many, as long as that is faster."""


def our_update(size: Size, batch: Packed, device: torch.device, compiled: bool | Literal["auto"] = "auto") -> Update:
    """Make the loop's fit of one round.

    Args:
        compiled: `schedule.compile`.
    """
    model = new_model(size, batch.longest, device)
    learner = learner_of(model, PRECISION)
    if should_compile(compiled, model):
        compile_layers(model)
    scored = scored_of(*batch.ids(size.vocabulary), size.vocabulary)
    settings = schedule(token_budget=batch.budget)
    work = update_flops(shapes_of(model), groups_of(scored))

    def facts() -> dict[str, Any]:
        return {
            "tokens": batch.tokens,
            "flops": work,
            "parameters": model.num_parameters(),
            "token_budget": learner.tally.token_budget or batch.budget,
            "layers_read_again": learner.tally.recompute,
            "layers_compiled": are_compiled(model),
        }

    return Update(model, lambda: grpo_update(learner, scored, settings), facts)


def plain_update(size: Size, batch: Packed, terms: Terms) -> Update:
    """Make the padded loop with transformers' sdpa, with the number of parallel completions that is fastest here.

    Raises:
        MemoryError: not even one at a time fits.
    """
    model = new_model(size, batch.longest, terms.device)
    model.set_attn_implementation("sdpa")
    optimiser = learner_of(model, PRECISION).optimiser
    pairs, advantage = batch.pairs(size.vocabulary), alternating(len(batch.lengths))
    tried: dict[int, float | None] = {}

    def loop(rows: int) -> Any:
        side = PaddedLoop(model, optimiser, PRECISION, rows)
        return lambda: side.update(pairs, advantage)

    def trial(rows: int) -> float | None:
        """Return the seconds of an update; None if memory runs out."""
        step = loop(rows)
        try:
            step()
            return seconds_of(step, terms.device)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return None

    rows, fastest = min(MOST_ROWS, len(pairs)), 0
    while rows and not (fastest and terms.late):
        tried[rows] = seconds = trial(rows)
        if seconds is None:
            # Only here are the frames gone that held the tensors of the attempt.
            optimiser.zero_grad(set_to_none=True)
            clear(terms.device)
        elif fastest and seconds > (tried[fastest] or 0.0):
            break
        else:
            fastest = rows
        rows //= 2
    if not fastest:
        raise MemoryError(NO_MEMORY)
    facts = {
        "tokens": batch.padded_tokens(fastest),
        "rows_side_by_side": fastest,
        "tried_seconds": {str(rows): NO_MEMORY if spent is None else spent for rows, spent in tried.items()},
    }
    return Update(model, loop(fastest), lambda: facts)
