"""One round's fit: the policy's optimiser steps on the selected completions and their advantages.

A step adds up the gradient row by packed row; then the weights move, or the step is skipped.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from models.learner.optimiser import NotFinite, take_step
from models.learner.out_of_memory import GradientPlan, within_memory
from models.learner.packing import PerToken, Sequences, longest_unit
from models.learner.recompute import can_recompute
from models.learner.reduce import entropy_term, token_weights
from models.learner.rows import rows_of
from models.learner.upload import to_device
from models.method.episode_parts import episodes_together, owners_of, places_of, wholes_of_row
from models.method.learner import Learner
from models.method.objective import Objective, RoundTokens
from models.method.policy_outputs import PolicyOutputs, read_policy
from models.method.readings import Readings
from models.method.rollout import Rollout, parts_of
from models.method.schedule import BUDGET_KEY, ScheduleSettings
from models.method.scored import Scored
from models.method.token_batch import TokenBatch, pairs_of, token_batch
from models.method.update_metrics import UpdateMetrics


@dataclass(frozen=True)
class Fit:
    """Inputs of all optimiser steps of a round, which stay the same for all of them."""

    learner: Learner
    objective: Objective
    chosen: Scored
    """The completions that are trained on, [completions]."""
    advantage: PerToken
    """Advantages of their tokens, [completions] tensors of [tokens of it]."""
    settings: ScheduleSettings
    readings: Readings
    longest: int
    """Largest number of tokens that a completion may have."""
    progress: float
    """Share of the run's rounds that are done."""
    old: PerToken | None
    """Log-probs when the round began, [completions] tensors of [tokens of it]; None: the current ones are used."""
    reference: PerToken | None
    """Log-probs under the reference, likewise; None if there is none."""
    marked: PerToken | None
    """Tokens that the objective has marked, likewise; None: none."""

    def update(self, rows: Sequence[int]) -> UpdateMetrics:
        """Take one optimiser step on the completions with the indices `rows`. Returns their metrics; none if skipped.

        If memory runs out, the step is repeated in a way that needs less, which the steps after it use too.

        Raises:
            UserError: memory runs out with the shortest rows.
            NotFinite: the loss or a gradient is not finite, and `skip_nonfinite` such steps were skipped in a row.
        """
        learner, tally, settings = self.learner, self.learner.tally, self.settings
        always = settings.gradient_checkpointing is True
        budget = min(settings.token_budget, tally.token_budget or settings.token_budget)
        first = GradientPlan(budget, always or tally.recompute)
        able = settings.gradient_checkpointing == "auto" and can_recompute(learner.policy)
        metrics, plan = within_memory(
            lambda budget: self.gradient(rows, budget),
            learner.policy,
            learner.optimiser,
            first,
            lambda: self._longest_unit(rows),
            f"update {learner.updates}",
            able=able,
        )
        if plan != first:
            tally.token_budget, tally.recompute = plan.budget, plan.recompute
        try:
            norm = take_step(
                learner.optimiser,
                learner.policy.parameters(),
                learner.updates,
                settings.updates,
                settings.optimiser,
                "schedule.optimiser",
                metrics.loss,
            )
        except NotFinite as error:
            if tally.skipped >= settings.skip_nonfinite:
                raise
            tally.skipped += 1
            learner.updates += 1
            warnings.warn(f"{error}; skipped, {tally.skipped} in a row", stacklevel=2)
            return UpdateMetrics(skipped=1)
        tally.skipped = 0
        learner.updates += 1
        metrics.steps.append(norm)
        return metrics

    def gradient(self, rows: Sequence[int], budget: int) -> UpdateMetrics:
        """Accumulate the loss gradient of the completions `rows`, in packed rows of at most `budget` tokens."""
        learner, objective, chosen = self.learner, self.objective, self.chosen
        by_token = objective.level == "token"
        weights = token_weights(
            [chosen.rollouts[i].trained_tokens for i in rows],
            self.settings.normalisation or "token" if by_token else "completion",
            self.longest,
        )
        weight_of = dict(zip(rows, weights, strict=True))
        tokens = sum(map(len, weights))
        total_metrics = UpdateMetrics()
        for row in rows_of(
            learner.policy,
            self._sequences,
            budget,
            among=self._places(rows),
            together=self._together,
            setting=BUDGET_KEY,
        ):
            parts = [self._parts[place] for place in row.indices]
            row_metrics = total_metrics if row.counts else UpdateMetrics()
            sequence_outputs = read_policy(learner, row.sequences, parts, self.readings, objective.divergence)
            indices, outputs = self._wholes(row.indices, sequence_outputs)
            log_prob, batch = token_batch(
                chosen, indices, self.advantage, outputs, self.old, self.reference, self.progress, self.marked
            )
            if objective.level == "pair":
                batch = replace(batch, pairs=to_device(pairs_of(chosen, indices), log_prob.device))
            loss = _reduced(objective, log_prob, batch, [weight_of[i] for i in indices], row_metrics)
            if bonus := objective.entropy_bonus:
                loss = loss + entropy_term(batch.entropy, bonus, tokens)
            row.backward(loss)
            row_metrics.add({"entropy": outputs.entropy})
            row_metrics.add_loss(loss)
        return total_metrics.over(learner.ranks)

    def _longest_unit(self, rows: Sequence[int]) -> int:
        labels, places = self._together, self._places(rows)
        return longest_unit(self._sequences.take(places), None if labels is None else [labels[i] for i in places])

    def _places(self, rows: Sequence[int]) -> list[int]:
        """Return the sequences of the completions at `rows`."""
        return [place for row in rows for place in self._sequences_of[row]]

    def _wholes(self, indices: Sequence[int], outputs: PolicyOutputs) -> tuple[list[int], PolicyOutputs]:
        """Return the completions of a row's sequences, and the log-probs and entropies of their tokens, with an
        episode's parts concatenated."""
        if len(self._parts) == len(self.chosen.rollouts):
            return list(indices), outputs
        wholes, order = wholes_of_row(indices, self._owners)
        lengths = [self._parts[index].trained_tokens for index in indices]

        def ordered(values: Tensor | None) -> Tensor | None:
            if values is None:
                return None
            rows = values.split(lengths)
            return torch.cat([rows[place] for place in order])

        log_prob, entropy = ordered(outputs.log_prob), ordered(outputs.entropy)
        assert log_prob is not None and entropy is not None, "both are defined for every token"
        return wholes, PolicyOutputs(log_prob, entropy, ordered(outputs.divergence), ordered(outputs.contrast_gap))

    @cached_property
    def _parts(self) -> list[Rollout]:
        """The sequences that the policy reads, [sequences]."""
        return parts_of(self.chosen.rollouts)

    @cached_property
    def _owners(self) -> list[int]:
        return owners_of(self.chosen.rollouts)

    @cached_property
    def _sequences_of(self) -> list[list[int]]:
        return places_of(self.chosen.rollouts)

    @cached_property
    def _sequences(self) -> Sequences:
        return self.chosen.sequences

    @cached_property
    def _together(self) -> list[int] | None:
        """Labels of sequences that must be in one row, [sequences]: groups, if these are compared, or episodes."""
        if self.objective.level not in ("pair", "group"):
            return episodes_together(self.chosen.rollouts)
        groups = self.chosen.groups.tolist()
        return [groups[owner] for owner in self._owners]


def fit_round(
    learner: Learner,
    objective: Objective,
    chosen: Scored,
    advantage: PerToken,
    settings: ScheduleSettings,
    longest: int,
    round_number: int = 0,
    readings: Readings | None = None,
) -> dict[str, float]:
    """Take the round's optimiser steps on `learner.policy`, in place.

    The policy is read without dropout, as its old log-probs and those of the reference are: with two different dropout
    masks ratios would differ from one, and tokens be clipped, although no weight has moved.

    Args:
        learner: policy, optimiser and reference.
        objective: the loss.
        chosen: the completions that are trained on, [completions]; at least one token of each.
        advantage: advantage of their tokens, [completions] tensors of [tokens of it].
        settings: minibatches, epochs, normalisation, budget, optimiser.
        longest: tokens that a completion may have.
        round_number: number of the round, from 0.
        readings: log-probs of the round's completions that were read already; None: none.

    Returns:
        Means over all tokens read: loss, entropy, gradient norm and the values that the objective watches; if steps may
        be skipped, how many were.

    Raises:
        UserError: the loss or a gradient is not finite, the weights have not moved since the last step; or memory runs
            out with the shortest possible rows.
    """
    learner.policy.eval()
    readings = readings or Readings(learner, settings.token_budget)
    reference = readings.reference(chosen.rollouts)
    several = settings.minibatches * settings.epochs > 1  # else the policy of the first step is the old one
    old = readings.policy(chosen.rollouts) if several else None
    round_tokens = RoundTokens(chosen, advantage, readings, round_number)
    marks = objective.mark(round_tokens)
    fit = Fit(
        learner=learner,
        objective=objective,
        chosen=chosen,
        advantage=advantage,
        settings=settings,
        readings=readings,
        longest=longest,
        progress=round_number / settings.rounds,
        old=old,
        reference=reference,
        marked=None if marks is None else round_tokens.by_completion(marks),
    )
    metrics = UpdateMetrics()
    for _ in range(settings.epochs):
        for rows in minibatches(chosen, settings.minibatches):
            try:
                metrics.take_in(fit.update(rows))
            except NotFinite as error:  # curves and checkpoints count in rounds
                raise NotFinite(f"round {round_number + 1}, {error}") from error
    skipped = {"skipped_updates": float(metrics.skipped)} if settings.skip_nonfinite else {}
    return {**metrics.means(), **skipped}


def minibatches(chosen: Scored, count: int) -> Iterator[list[int]]:
    """Split the completions into at most `count` minibatches of whole groups; yields the indices of each."""
    groups = chosen.groups.tolist()
    number = max(groups) + 1
    for part in range(min(count, number)):
        yield [index for index, group in enumerate(groups) if group * min(count, number) // number == part]


def _reduced(
    objective: Objective, log_prob: Tensor, batch: TokenBatch, weights: list[Tensor], metrics: UpdateMetrics
) -> Tensor:
    if objective.level == "token":
        losses, watch = objective(log_prob, batch)
        weight = to_device(torch.cat(weights), losses.device, losses.dtype)
    else:
        sums = batch.by_pair if objective.level == "pair" else batch.sum_by_completion
        losses, watch = objective(log_prob if objective.reads_tokens else sums(log_prob), batch)
        weight = to_device(torch.stack([row.sum() for row in weights]), losses.device, losses.dtype)
        if objective.level == "pair":
            assert batch.pairs is not None
            weight = weight[batch.pairs].sum(-1)
        elif objective.level == "group":
            weight = batch.sum_by_group(weight)
    metrics.add(watch)
    return (weight * losses).sum()
