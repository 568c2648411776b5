"""Fit a process reward model to labelled steps (models.reward_models.process)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from models.base.errors import UserError
from models.learner.packing import Sequences, longest_unit
from models.learner.rows import rows_of
from models.learner.supervised import Report
from models.learner.whole_weights import ranks_of
from models.reward_models.fit import RewardModelSettings, fit_in_batches
from models.reward_models.process import step_logits
from models.reward_models.scoring import checked_lengths
from models.reward_models.solutions import Solution, known_labels

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def sequences_of_solutions(solutions: Sequence[Solution]) -> Sequences:
    """Return prompts and completions, [solutions]."""
    return Sequences([each.problem.tokens for each in solutions], [each.completion for each in solutions])


def step_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the cross-entropy in nats of each step's value against its label, [steps], before any reduction.

    It is zero if the label is NaN.
    """
    known = ~labels.isnan()
    loss = functional.binary_cross_entropy_with_logits(logits, labels.nan_to_num(0.0).to(logits), reduction="none")
    return torch.where(known, loss, 0.0)


def accumulate_steps(
    model: PreTrainedModel,
    solutions: Sequence[Solution],
    settings: RewardModelSettings,
    autocast: torch.dtype | None = None,
) -> dict[str, Tensor]:
    """Add the gradient of the mean loss over the labelled steps of `solutions`. Returns metrics.

    Returns:
        loss (nats per step) and accuracy: share of the steps whose value and label are on the same side of one half;
        scalars, float64.
    """
    sequences = sequences_of_solutions(solutions)
    steps = max(1, sum(int(known_labels(each).sum()) for each in solutions))
    total = dict.fromkeys(("loss", "accuracy"), torch.zeros((), dtype=torch.float64))
    for row in rows_of(model, sequences, settings.token_budget, setting="reward_model.fit.token_budget"):
        some = [solutions[index] for index in row.indices]
        logits = step_logits(model, row.sequences, [each.ends for each in some], autocast)
        labels = logits.new_tensor([label for each in some for label in each.labels])
        loss = step_loss(logits, labels).sum() / steps
        row.backward(loss)
        known = ~labels.isnan()
        right = ((logits.detach() > 0) == (labels > 0.5))[known].double().sum() / steps
        if row.counts:
            seen = {"loss": loss.detach(), "accuracy": right}
            total = {name: value + total[name].to(value.device) for name, value in seen.items()}
    return {name: ranks_of(model).sum(value) for name, value in total.items()}


def fit_process_model(
    model: PreTrainedModel,
    solutions: Sequence[Solution],
    settings: RewardModelSettings,
    *,
    seed: int,
    autocast: torch.dtype | None = None,
    report: Report = lambda step, metrics: None,
    recompute: bool = False,
) -> dict[str, float]:
    """Fit `model` in place to the labels of `solutions`, as `fit_reward_model` does to pairs. Returns the last metrics.

    Raises:
        UserError: no step has a label, a solution does not fit the model, or the loss or a gradient is not finite.
    """
    labelled = [each for each in solutions if bool(known_labels(each).any())]
    if not labelled:
        raise UserError("reward_model.process: no step of any solution has a label to learn from")
    checked_lengths(model, sequences_of_solutions(labelled))

    def accumulated(batch: Sequence[int], budget: int) -> dict[str, Tensor]:
        return accumulate_steps(model, [labelled[i] for i in batch], replace(settings, token_budget=budget), autocast)

    def least(batch: Sequence[int]) -> int:
        return longest_unit(sequences_of_solutions([labelled[index] for index in batch]))

    return fit_in_batches(
        model, len(labelled), accumulated, least, settings, seed=seed, report=report, recompute=recompute
    )
