"""Fit a reward model to preferences (Bradley & Terry 1952; Christiano et al. 2017).

    P(chosen > rejected) = sigmoid(margin),   margin = score(prompt + chosen) - score(prompt + rejected)
    d    = margin - margin_wanted
    loss of a pair = -(1 - smoothing) log sigmoid(d) - smoothing log sigmoid(-d)
                     + centring * (score_chosen + score_rejected)^2

The likelihood does not determine the level of the scores; `centring` keeps it near zero (Eisenstein et al. 2023). A
batch's loss is the mean over its pairs, whatever the micro-batches. Contrastive losses on hidden states may be added to
it (`models.reward_models.contrast`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, overload

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.nn import functional

from models.base.bounds import Positive
from models.base.errors import UserError
from models.base.seeds import seed_of
from models.learner.optimiser import OptimiserSettings, build_optimiser, learning_rate_at, take_step
from models.learner.out_of_memory import GradientPlan, within_memory
from models.learner.packing import Sequences, longest_unit
from models.learner.recompute import can_recompute
from models.learner.rows import rows_of
from models.learner.supervised import Report, shuffled_batches
from models.learner.whole_weights import ranks_of
from models.reward_models.contrast import ContrastSettings, pull_of_batch, row_contrast
from models.reward_models.model import score, score_and_states
from models.reward_models.reactions import ReactionSettings, reaction_loss
from models.reward_models.scoring import checked_lengths, score_all
from models.text.token_rows import TokenRows, few

if TYPE_CHECKING:
    from transformers import PreTrainedModel


TOGETHER = 1 << 16
"""Maximum number of pairs in memory at a time while all pairs are read."""


@dataclass(frozen=True)
class Pair:
    """Token ids of one preference."""

    prompt: Sequence[int]
    chosen: Sequence[int]
    """The better completion, with its end token if the policy writes one."""
    rejected: Sequence[int]
    margin: float = 0.0
    """Required margin of the chosen score over the rejected one, in addition to that of the settings."""

    @property
    def anchors(self) -> tuple[float, float]:
        """Weights of the squared scores of the two completions, which keep the scores near zero."""
        return 0.0, 0.0

    def turned(self) -> Pair:
        """Return the pair with chosen and rejected swapped."""
        return replace(self, chosen=self.rejected, rejected=self.chosen)


class PairRows(Sequence[Pair]):
    """Pairs whose tokens are read on access, [pairs] rows of each."""

    def __init__(self, prompts: TokenRows, chosen: TokenRows, rejected: TokenRows) -> None:
        self._rows = (prompts, chosen, rejected)

    def __len__(self) -> int:
        return len(self._rows[0])

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> PairRows: ...
    def __getitem__(self, at: int | slice) -> Pair | PairRows:
        prompts, chosen, rejected = self._rows
        if isinstance(at, slice):
            return PairRows(prompts[at], chosen[at], rejected[at])
        return Pair(prompts[at], chosen[at], rejected[at])

    def held(self) -> Sequence[Pair]:
        """Return the same pairs, as a list if they are few, and unchanged otherwise."""
        return list(self) if few(len(self), sum(int(rows.lengths.sum()) for rows in self._rows)) else self


def both_answers(pairs: Sequence[Pair]) -> Sequences:
    """Return the chosen and the rejected completion of each pair, side by side, [2 * pairs]."""
    return Sequences(
        [pair.prompt for pair in pairs for _ in range(2)],
        [answer for pair in pairs for answer in (pair.chosen, pair.rejected)],
    )


@dataclass(frozen=True, kw_only=True)
class RewardModelSettings:
    """Training settings of the reward model. Section `reward_model.fit:`."""

    epochs: PositiveFloat = 1.0
    """Passes over the pairs or solutions; `steps` overrides it."""
    steps: Positive | None = None
    """Number of updates."""
    batch_pairs: Positive = 64
    """Pairs per update; for a process reward model, solutions."""
    token_budget: Positive = 16384
    """Tokens per packed row; bounds memory and does not change the result."""
    margin: NonNegativeFloat = 0.0
    """Margin of the chosen score over the rejected one at which the loss is that of a tie."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Assumed share of pairs with the wrong label."""
    centring: NonNegativeFloat = 0.0
    """Weight of the squared sum of the two scores; 0.01 is usual."""
    reactions: ReactionSettings | None = None
    """Fit each completion separately as liked or not; null: fit preferences between two."""
    contrast: ContrastSettings | None = None
    """Contrastive losses on hidden states, in addition; null: none."""
    report_every: Positive = 10
    """Updates between two reports."""
    optimiser: OptimiserSettings = field(
        default_factory=lambda: OptimiserSettings(learning_rate=1e-4, decay="cosine", warmup_steps=10)
    )

    def __post_init__(self) -> None:
        if self.reactions is not None and (self.margin or self.centring):
            raise ValueError("reactions give scores a level of their own: margin and centring must be 0 with them")

    def updates(self, pairs: int) -> int:
        """Return the number of updates on a set of `pairs` pairs."""
        return self.steps if self.steps is not None else math.ceil(self.epochs * pairs / min(self.batch_pairs, pairs))


def bradley_terry_loss(
    chosen: Tensor,
    rejected: Tensor,
    margin: float | Tensor = 0.0,
    centring: float = 0.0,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Compute the loss of each pair in nats, [pairs], before any reduction.

    Args:
        chosen: scores of the chosen completions, [pairs].
        rejected: scores of the rejected ones, [pairs].
        margin: required between them, for all or for each, [pairs].
        centring: weight of the squared sum.
        label_smoothing: probability that a pair has the wrong label.
    """
    beyond = chosen - rejected - margin
    loss = -functional.logsigmoid(beyond)
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing * functional.logsigmoid(-beyond)
    return loss + centring * (chosen + rejected).square() if centring else loss


def accumulate(
    model: PreTrainedModel,
    pairs: Sequence[Pair],
    settings: RewardModelSettings,
    autocast: torch.dtype | None = None,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Add the gradient of the mean loss of `pairs` to the model, and return metrics, scalars, float64.

    `seed` is that of the contrast within the batch.
    """
    both, of_pair, contrast = both_answers(pairs), _by_pair(pairs), settings.contrast
    names = ["loss", "accuracy", "margin", "score", *(["goal_contrast"] if contrast and contrast.goal else [])]
    total = dict.fromkeys(names, torch.zeros((), dtype=torch.float64))
    pulled = None
    if contrast and contrast.batch:
        pulled = pull_of_batch(model, both, of_pair, settings.token_budget, contrast, seed, autocast)
    setting = "reward_model.fit.token_budget"
    for row in rows_of(model, both, settings.token_budget, together=of_pair, setting=setting):
        # The two answers of a pair share a label, so the row holds both, the chosen one first.
        numbers = [place // 2 for place in row.indices[::2]]
        if contrast:
            scores, states = score_and_states(model, row.sequences, autocast)
        else:
            scores = score(model, row.sequences, autocast=autocast)
        chosen, rejected = scores.view(-1, 2).unbind(1)
        loss = _losses(chosen, rejected, [pairs[number] for number in numbers], settings).sum() / len(pairs)
        margin = (chosen - rejected).detach()
        of_row = {
            "accuracy": ((margin > 0).double() + 0.5 * (margin == 0).double()).sum() / len(pairs),
            "margin": margin.double().sum() / len(pairs),
            "score": (chosen + rejected).detach().double().sum() / (2 * len(pairs)),
        }
        drawn = loss
        if contrast:
            goal, moving = row_contrast(states, contrast, pulled[1][numbers] if pulled else None)
            loss = loss + contrast.goal * goal / len(pairs)
            of_row |= {"goal_contrast": goal.detach().double() / len(pairs)} if contrast.goal else {}
            drawn = loss if moving is None else loss + contrast.batch * moving
        row.backward(drawn)
        of_row["loss"] = loss.detach().double()
        if row.counts:
            total = {name: value + total[name].to(value.device) for name, value in of_row.items()}
    watched = {name: ranks_of(model).sum(value) for name, value in total.items()}
    if contrast and pulled:
        watched["batch_contrast"] = pulled[0].double()
        watched["loss"] = watched["loss"] + contrast.batch * watched["batch_contrast"]
    return watched


def _losses(chosen: Tensor, rejected: Tensor, pairs: Sequence[Pair], settings: RewardModelSettings) -> Tensor:
    """Compute the loss of each of `pairs` from the scores of its two completions, [pairs] each."""
    smoothing = settings.label_smoothing
    if settings.reactions is not None:
        liked = [settings.reactions.to_pair(pair.prompt, pair.chosen, pair.rejected) for pair in pairs]
        return reaction_loss(chosen, rejected, chosen.new_tensor(liked), smoothing)
    wanted = chosen.new_tensor([settings.margin + pair.margin for pair in pairs])
    loss = bradley_terry_loss(chosen, rejected, wanted, settings.centring, smoothing)
    anchors = [pair.anchors for pair in pairs]
    if any(map(any, anchors)):
        loss = loss + (chosen.new_tensor(anchors) * torch.stack([chosen, rejected], -1).square()).sum(-1)
    return loss


def fit_reward_model(
    model: PreTrainedModel,
    pairs: Sequence[Pair],
    settings: RewardModelSettings,
    *,
    seed: int,
    autocast: torch.dtype | None = None,
    report: Report = lambda step, metrics: None,
    recompute: bool = False,
) -> dict[str, float]:
    """Fit `model` in place to `pairs`, on its device. Returns the last reported metrics.

    Args:
        seed: seed of the order of the pairs; equal seeds give equal weights on a CPU.
        autocast: bfloat16 on a GPU; None computes in the precision of the weights.
        report: called with the update's number, from 1, and its metrics: loss (nats per pair), accuracy, margin and
            score of the batch, gradient_norm, learning_rate; with a contrast, also its value.
        recompute: recompute layers in the backward pass; affects memory only.

    Raises:
        UserError: `pairs` is empty, one does not fit the model, or the loss or a gradient is not finite.
    """
    if not pairs:
        raise UserError("reward_model: no preference pairs to learn from")
    for first in range(0, len(pairs), TOGETHER):
        checked_lengths(model, both_answers(pairs[first : first + TOGETHER]), 2 * first)

    def accumulated(batch: Sequence[int], budget: int) -> dict[str, Tensor]:
        chosen, within = [pairs[number] for number in batch], replace(settings, token_budget=budget)
        drawn = seed_of(seed, f"contrast of {list(batch)}") if settings.contrast else 0
        return accumulate(model, chosen, within, autocast, drawn)

    def least(batch: Sequence[int]) -> int:
        chosen = [pairs[index] for index in batch]
        return longest_unit(both_answers(chosen), _by_pair(chosen))

    return fit_in_batches(
        model, len(pairs), accumulated, least, settings, seed=seed, report=report, recompute=recompute
    )


def fit_in_batches(
    model: PreTrainedModel,
    count: int,
    accumulated: Callable[[Sequence[int], int], dict[str, Tensor]],
    least: Callable[[Sequence[int]], int],
    settings: RewardModelSettings,
    *,
    seed: int,
    report: Report,
    recompute: bool,
) -> dict[str, float]:
    """Run the updates of a reward model's fit, in place. Returns the last reported metrics.

    Args:
        model: the model to train, on its device.
        count: number of examples: pairs, or solutions.
        accumulated: adds the gradient of the mean loss of some examples, by index, with a token budget per row, and
            returns metrics: `loss` and others, scalars.
        least: tokens of the longest of some examples, by index, that cannot be cut.
        settings: settings of the fit.
        seed: seed of the order.
        report: see `fit_reward_model`.
        recompute: see `fit_reward_model`.
    """
    total = settings.updates(count)
    optimiser = build_optimiser(model, settings.optimiser)
    batches = shuffled_batches(count, min(settings.batch_pairs, count), seed)
    metrics: dict[str, float] = {}
    model.train()
    way, able = GradientPlan(settings.token_budget, recompute=recompute), can_recompute(model)
    for step in range(total):
        batch = next(batches)
        watched, way = within_memory(
            partial(accumulated, batch), model, optimiser, way, partial(least, batch),
            f"reward model, update {step}", able=able,
        )  # fmt: skip
        norm = take_step(
            optimiser,
            model.parameters(),
            step,
            total,
            settings.optimiser,
            "reward_model.fit.optimiser",
            watched["loss"],
        )
        if (step + 1) % settings.report_every == 0 or step + 1 == total:
            rate = learning_rate_at(step, total, settings.optimiser)
            seen = {name: float(value) for name, value in watched.items()}
            metrics = {**seen, "gradient_norm": norm, "learning_rate": rate}
            report(step + 1, metrics)
    model.train(False)
    return metrics


def _by_pair(pairs: Sequence[Pair]) -> list[int]:
    """Return the index of the pair of each of `both_answers`, [2 * pairs]."""
    return [number for number in range(len(pairs)) for _ in range(2)]


def score_pairs(
    model: PreTrainedModel, pairs: Sequence[Pair], *, token_budget: int = 16384, autocast: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Score the chosen and the rejected completions, both [pairs], float32 on the CPU, without gradient."""
    some = [both_answers(pairs[first : first + TOGETHER]) for first in range(0, len(pairs), TOGETHER)]
    parts = [score_all(model, both, token_budget=token_budget, autocast=autocast) for both in some]
    scores = torch.cat([torch.empty(0), *parts]).view(-1, 2)
    return scores[:, 0], scores[:, 1]
