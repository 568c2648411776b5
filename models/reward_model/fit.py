"""Fit a reward model to preferences (Bradley & Terry 1952; Christiano et al. 2017).

    P(chosen > rejected) = sigmoid(margin),   margin = score(prompt + chosen) - score(prompt + rejected)
    d    = margin - margin_wanted
    loss of a pair = -(1 - smoothing) log sigmoid(d) - smoothing log sigmoid(-d)
                     + centring * (score_chosen + score_rejected)^2

The likelihood leaves the level of the scores free; `centring` holds it near zero (Eisenstein et al. 2023). A batch's
loss is the mean over its pairs, whatever the micro-batches it is cut into. Contrasts of hidden states may stand beside
it (`models.reward_model.contrast`).
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

from models.bounds import Positive
from models.errors import UserError
from models.learner.optimiser import OptimiserSettings, build_optimiser, learning_rate_at, take_step
from models.learner.out_of_memory import Way, within_memory
from models.learner.packing import Sequences, longest_unit
from models.learner.recompute import can_recompute
from models.learner.rows import rows_of
from models.learner.supervised import Report, shuffled_batches
from models.learner.whole_weights import ranks_of
from models.reward_model.contrast import ContrastSettings, pull_of_batch, row_contrast
from models.reward_model.model import score, score_and_states
from models.reward_model.reactions import ReactionSettings, reaction_loss
from models.reward_model.scoring import checked_lengths, score_all
from models.seeds import seed_of
from models.text.token_rows import TokenRows, few

if TYPE_CHECKING:
    from transformers import PreTrainedModel


TOGETHER = 1 << 16
"""Pairs that are in memory together where all are looked at."""


@dataclass(frozen=True)
class Pair:
    """Token ids of one preference."""

    prompt: Sequence[int]
    chosen: Sequence[int]
    """The better completion, with its end token where the policy writes one."""
    rejected: Sequence[int]
    margin: float = 0.0
    """By how much the chosen score should exceed the rejected one beyond what the settings ask of every pair."""

    @property
    def anchors(self) -> tuple[float, float]:
        """Weights of the squared scores of the two, which hold them near zero."""
        return 0.0, 0.0

    def turned(self) -> Pair:
        """The pair the wrong way round."""
        return replace(self, chosen=self.rejected, rejected=self.chosen)


class PairRows(Sequence[Pair]):
    """Pairs whose tokens are read when a pair is asked for, [pairs] rows of each."""

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
        """The same pairs: as a list where they are few, and where they lie otherwise."""
        return list(self) if few(len(self), sum(int(rows.lengths.sum()) for rows in self._rows)) else self


def both_answers(pairs: Sequence[Pair]) -> Sequences:
    """The chosen and the rejected completion of each pair, side by side, [2 * pairs]."""
    return Sequences(
        [pair.prompt for pair in pairs for _ in range(2)],
        [answer for pair in pairs for answer in (pair.chosen, pair.rejected)],
    )


@dataclass(frozen=True, kw_only=True)
class RewardModelSettings:
    """How the reward model learns. Stands under `reward_model.fit:`."""

    epochs: PositiveFloat = 1.0
    """Passes over the pairs or solutions; `steps` overrides it."""
    steps: Positive | None = None
    """Updates."""
    batch_pairs: Positive = 64
    """Pairs of one update; of a process reward model, solutions."""
    token_budget: Positive = 16384
    """Tokens of one packed row; bounds memory and does not change the result."""
    margin: NonNegativeFloat = 0.0
    """By how much a chosen score should exceed a rejected one before the loss counts it as even."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Share of the pairs that are taken to be the wrong way round."""
    centring: NonNegativeFloat = 0.0
    """Weight of the squared sum of the two scores; 0.01 is usual."""
    reactions: ReactionSettings | None = None
    """Each completion is liked or not, by itself; null: of two one is better."""
    contrast: ContrastSettings | None = None
    """Contrasts of hidden states beside the loss; null: none."""
    report_every: Positive = 10
    """Updates between two calls of the report."""
    optimiser: OptimiserSettings = field(
        default_factory=lambda: OptimiserSettings(learning_rate=1e-4, decay="cosine", warmup_steps=10)
    )

    def __post_init__(self) -> None:
        if self.reactions is not None and (self.margin or self.centring):
            raise ValueError("reactions give scores a level of their own: margin and centring must be 0 beside them")

    def updates(self, pairs: int) -> int:
        """Number of updates on a set of `pairs` pairs."""
        return self.steps if self.steps is not None else math.ceil(self.epochs * pairs / min(self.batch_pairs, pairs))


def bradley_terry_loss(
    chosen: Tensor,
    rejected: Tensor,
    margin: float | Tensor = 0.0,
    centring: float = 0.0,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Loss of each pair in nats, [pairs], before any reduction.

    Args:
        chosen: scores of the chosen completions, [pairs].
        rejected: scores of the rejected ones, [pairs].
        margin: that is wanted between them, of all or of each, [pairs].
        centring: weight of the squared sum.
        label_smoothing: chance that a pair is the wrong way round.
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
    """Add the gradient of the mean loss of `pairs` to the model. Returns what is worth watching, scalars, float64;
    `seed`: what the contrast within the batch draws from."""
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
    """Loss of each of `pairs` from the scores of its two completions, [pairs] each."""
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
    """Fit `model` in place to `pairs`, on the device that it is on. Returns the last reported metrics.

    Args:
        seed: the order of the pairs is drawn from it; equal seeds give equal weights on a CPU.
        autocast: bfloat16 on a GPU; None computes in the precision of the weights.
        report: called with the update's number, from 1, and its metrics: loss (nats a pair), accuracy, margin and
            score of the batch, gradient_norm, learning_rate; of a contrast its value too.
        recompute: read layers again for their backward pass; memory alone.

    Raises:
        UserError: there are no pairs, one does not fit the model, or the loss or a gradient is not finite.
    """
    if not pairs:
        raise UserError("reward_model: there are no preference pairs to learn from")
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
    """Take the updates of a reward model's fit, in place. Returns the last reported metrics.

    Args:
        model: what learns, on the device that it is on.
        count: what there is to learn from: pairs, or solutions.
        accumulated: adds the gradient of the mean loss of some of them, by number, in rows of so many tokens, and
            returns what is worth watching: `loss` and others, scalars.
        least: tokens of the longest of some of them that cannot be cut, by number.
        settings: of the fit.
        seed: the order is drawn from it.
        report: see `fit_reward_model`.
        recompute: see `fit_reward_model`.
    """
    total = settings.updates(count)
    optimiser = build_optimiser(model, settings.optimiser)
    batches = shuffled_batches(count, min(settings.batch_pairs, count), seed)
    metrics: dict[str, float] = {}
    model.train()
    way, able = Way(settings.token_budget, recompute=recompute), can_recompute(model)
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
    """Which pair each of `both_answers` belongs to, [2 * pairs]."""
    return [number for number in range(len(pairs)) for _ in range(2)]


def score_pairs(
    model: PreTrainedModel, pairs: Sequence[Pair], *, token_budget: int = 16384, autocast: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Scores of the chosen and of the rejected completions, both [pairs], float32 on the CPU, without gradient."""
    some = [both_answers(pairs[first : first + TOGETHER]) for first in range(0, len(pairs), TOGETHER)]
    parts = [score_all(model, both, token_budget=token_budget, autocast=autocast) for both in some]
    scores = torch.cat([torch.empty(0), *parts]).view(-1, 2)
    return scores[:, 0], scores[:, 1]
