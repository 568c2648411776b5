"""Supervised fits before the loop (warm start, reward models), described as data so that several processes can run one.

As in `models.training.train`, a fit does not depend on how its processes were started: the first rank reports to a
`Watchers`, whose rounds are updates here. A fit has no checkpoints: its processes begin again if one of them is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, Self, TypeVar

import torch
from torch import Tensor, nn

from models.base.ranks import Ranks
from models.learner.model_parts import ALL_PARTS, Part
from models.learner.out_of_memory import NeedsLess
from models.learner.packing import Sequences
from models.learner.precision import Precision, autocast_of, chosen_precision
from models.learner.sharding import shard
from models.learner.supervised import Report, SupervisedSettings, fit_supervised, negative_log_likelihood
from models.policies.build import LoraSettings, load_causal_model
from models.policies.save_whole import save_whole
from models.policies.trained_parts import set_to_learn
from models.reward_models.fit import Pair, RewardModelSettings, fit_reward_model, score_pairs
from models.reward_models.fit_process import fit_process_model, sequences_of_solutions
from models.reward_models.model import reward_model_from_policy
from models.reward_models.process import step_values
from models.reward_models.solutions import Solution
from models.text.tokenizer import load_tokenizer
from models.training.watchers import Watchers

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, kw_only=True)
class _Fit:
    seed: int
    precision: Precision | Literal["auto"]
    trust_remote_code: bool
    recompute: bool = False
    """Whether layers are computed again for their backward pass; it changes only the memory."""
    start: Path
    """The model folder that the fit begins with."""
    precisions: Path
    """Folder of the measurements of precisions, if the recipe leaves the precision open."""
    result: Path
    """The model folder that is written."""

    settings: SupervisedSettings | RewardModelSettings

    def with_less(self, less: NeedsLess) -> Self:
        """Return the same fit with less memory."""
        return replace(self, settings=replace(self.settings, token_budget=less.budget), recompute=less.recompute)


@dataclass(frozen=True, kw_only=True)
class SupervisedFit(_Fit):
    """Inputs of a fit of the policy to demonstrations."""

    settings: SupervisedSettings
    adapter: LoraSettings | None
    """Adapter that learns instead of the model's own weights; it is merged in at the end."""
    train: Sequences
    judged: Sequences
    """Held-out data on which the loss at the end is measured."""
    parts: tuple[Part, ...] = ALL_PARTS
    """Parts of the policy that learn."""


@dataclass(frozen=True, kw_only=True)
class RewardFit(_Fit):
    """Inputs of a fit of a reward model to preferences; it starts from the body of a policy."""

    settings: RewardModelSettings
    pairs: Sequence[Pair]
    judged: Sequence[Pair]
    """Pairs whose scores are returned."""


@dataclass(frozen=True, kw_only=True)
class ProcessFit(_Fit):
    """Inputs of a fit of a process reward model to labelled steps; it starts from the body of a policy."""

    settings: RewardModelSettings
    solutions: Sequence[Solution]
    judged: Sequence[Solution]
    """Solutions whose step values are returned."""


Measured = TypeVar("Measured")
OfRewards = TypeVar("OfRewards", RewardFit, ProcessFit)


@dataclass(frozen=True)
class Fitted(Generic[Measured]):
    """Results of a fit, in addition to the model folder that it wrote."""

    precision: Precision
    """Precision that it learned in."""
    measured: Measured


def fit_demonstrations(
    fit: SupervisedFit, ranks: Ranks, open_engine: object, watchers: Watchers
) -> Fitted[dict[str, float]]:
    """Fit a policy to demonstrations, together with the other ranks, and write it to `fit.result`.

    Returns:
        See `fit_and_judge`.

    Raises:
        UserError: see `models.learner.supervised.fit_supervised`; on every rank alike.
    """
    trusted = fit.trust_remote_code
    model = load_causal_model(fit.start, torch.float32, trust_remote_code=trusted)
    model = set_to_learn(model, fit.adapter, fit.parts, fit.seed)
    return _fit_and_save(
        fit,
        model,
        lambda: load_causal_model(fit.start, torch.float32, trust_remote_code=trusted),
        partial(fit_and_judge, model, fit),
        ranks,
        watchers,
    )


def fit_and_judge(
    model: nn.Module, fit: SupervisedFit, autocast: torch.dtype | None, report: Report
) -> dict[str, float]:
    """Fit `model` to demonstrations, in place, whole or sharded. Returns final_loss and held_out_loss, nats a token."""
    last = fit_supervised(
        model, fit.train, fit.settings, seed=fit.seed, autocast=autocast, report=report, recompute=fit.recompute
    )
    loss = negative_log_likelihood(model, fit.judged, fit.settings.token_budget, autocast)
    return {"final_loss": last["loss"], "held_out_loss": loss}


def fit_preferences(
    fit: RewardFit, ranks: Ranks, open_engine: object, watchers: Watchers
) -> Fitted[tuple[Tensor, Tensor]]:
    """Fit a reward model to preferences, together with the other ranks, and write it to `fit.result`.

    Returns:
        See `fit_and_score`.

    Raises:
        UserError: see `models.reward_models.fit.fit_reward_model`; on every rank alike.
    """
    return _fit_from_policy(fit, fit_and_score, ranks, watchers)


def fit_and_score(
    model: PreTrainedModel, fit: RewardFit, autocast: torch.dtype | None, report: Report
) -> tuple[Tensor, Tensor]:
    """Fit the reward model `model`, in place, whole or sharded over ranks, and score the pairs `fit.judged`.

    Returns:
        Scores of the chosen and of the rejected completions of `fit.judged`, both [pairs], float32 on the CPU.
    """
    fit_reward_model(
        model, fit.pairs, fit.settings, seed=fit.seed, autocast=autocast, report=report, recompute=fit.recompute
    )
    return score_pairs(model, fit.judged, token_budget=fit.settings.token_budget, autocast=autocast)


def fit_steps(fit: ProcessFit, ranks: Ranks, open_engine: object, watchers: Watchers) -> Fitted[list[Tensor]]:
    """Fit a process reward model, together with the other ranks, and write it to `fit.result`.

    Returns:
        See `fit_and_value`.

    Raises:
        UserError: see `models.reward_models.fit_process.fit_process_model`; on every rank alike.
    """
    return _fit_from_policy(fit, fit_and_value, ranks, watchers)


def fit_and_value(
    model: PreTrainedModel, fit: ProcessFit, autocast: torch.dtype | None, report: Report
) -> list[Tensor]:
    """Fit the process reward model `model`, in place, whole or sharded, and compute the step values of `fit.judged`.

    Returns:
        Value of each step of `fit.judged`, [solutions] tensors of [steps], float32 on the CPU.
    """
    fit_process_model(
        model, fit.solutions, fit.settings, seed=fit.seed, autocast=autocast, report=report, recompute=fit.recompute
    )
    ends = [solution.ends for solution in fit.judged]
    budget = fit.settings.token_budget
    return step_values(model, sequences_of_solutions(fit.judged), ends, token_budget=budget, autocast=autocast)


def _fit_from_policy(
    fit: OfRewards,
    fit_and_measure: Callable[[PreTrainedModel, OfRewards, torch.dtype | None, Report], Measured],
    ranks: Ranks,
    watchers: Watchers,
) -> Fitted[Measured]:
    """Fit a reward model on the body of the policy that the fit starts from, by `fit_and_measure`."""
    build_model = partial(reward_model_from_policy, fit.start, seed=fit.seed, trust_remote_code=fit.trust_remote_code)
    model = build_model()
    return _fit_and_save(fit, model, build_model, partial(fit_and_measure, model, fit), ranks, watchers)


def _fit_and_save(
    fit: _Fit,
    model: nn.Module,
    build_model: Callable[[], PreTrainedModel],
    fit_and_measure: Callable[[torch.dtype | None, Report], Measured],
    ranks: Ranks,
    watchers: Watchers,
) -> Fitted[Measured]:
    """Shard `model` over the ranks, fit it and write it.

    Args:
        build_model: see `models.policies.save_whole.save_whole`.
        fit_and_measure: fits the model, given the autocast dtype and the callback for the metrics of updates.
    """
    # the first rank measures, if the recipe leaves the precision open
    precision = ranks.from_first(lambda: chosen_precision(fit.precision, model, fit.precisions))
    shard(model, ranks)
    measurements = fit_and_measure(autocast_of(precision), _report_of(ranks, watchers))
    tokenizer = load_tokenizer(fit.start, trust_remote_code=fit.trust_remote_code)
    save_whole(model, build_model, tokenizer, fit.result, ranks)
    return Fitted(precision, measurements)


def _report_of(ranks: Ranks, watchers: Watchers) -> Report:
    """Return the callback for the metrics of updates on this rank."""
    if not ranks.first:
        return lambda step, metrics: None
    watchers.resumed(0)
    return watchers.metrics
