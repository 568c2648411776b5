"""One optimiser step of the policy: its gradient row by packed row, and weights that move or a step that is skipped."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from models.learner.optimiser import NotFinite, take_step
from models.learner.out_of_memory import GradientPlan, within_memory
from models.learner.packing import Sequences, longest_unit
from models.learner.recompute import can_recompute
from models.learner.reduce import entropy_term, token_weights
from models.learner.rows import rows_of
from models.learner.upload import to_device
from models.method.batch import pairs_of, token_batch
from models.method.distribution import PolicyOutputs, read_policy
from models.method.episode_parts import episodes_together, owners_of, places_of, wholes_of_row
from models.method.learner import Learner
from models.method.readings import Readings
from models.method.rollout import Rollout, Scored, TokenBatch, parts_of
from models.method.schedule import ScheduleSettings
from models.method.slots import Objective
from models.method.watched import UpdateMetrics

BUDGET = "schedule.token_budget"


@dataclass(frozen=True)
class Fit:
    """Inputs of all optimiser steps of a round, fixed when it begins."""

    learner: Learner
    objective: Objective
    chosen: Scored
    """The completions that are trained on, [completions]."""
    advantage: Sequence[Tensor]
    """Advantages of their tokens, [completions] tensors of [tokens of it]."""
    settings: ScheduleSettings
    readings: Readings
    longest: int
    """Tokens that a completion may have."""
    progress: float
    """Share of the run's rounds that are done."""
    old: Sequence[Tensor] | None
    """Log-probs when the round began, [completions] tensors of [tokens of it]; None: the current ones are used."""
    reference: Sequence[Tensor] | None
    """Log-probs under the reference, likewise; None if there is none."""
    marked: Sequence[Tensor] | None
    """Tokens that the objective has marked, likewise; None: none."""

    def update(self, rows: Sequence[int]) -> UpdateMetrics:
        """Take one optimiser step on the completions at `rows`. Returns the watched values; empty if it was skipped.

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
        watched, way = within_memory(
            lambda budget: self.gradient(rows, budget),
            learner.policy,
            learner.optimiser,
            first,
            lambda: self._longest_unit(rows),
            f"update {learner.updates}",
            able=able,
        )
        if way != first:
            tally.token_budget, tally.recompute = way.budget, way.recompute
        try:
            norm = take_step(
                learner.optimiser,
                learner.policy.parameters(),
                learner.updates,
                settings.updates,
                settings.optimiser,
                "schedule.optimiser",
                watched.loss,
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
        watched.steps.append(norm)
        return watched

    def gradient(self, rows: Sequence[int], budget: int) -> UpdateMetrics:
        """Add the gradient of the loss of the completions at `rows`, read in packed rows of at most `budget` tokens."""
        learner, objective, chosen = self.learner, self.objective, self.chosen
        by_token = objective.level == "token"
        weights = token_weights(
            [chosen.rollouts[i].trained_tokens for i in rows],
            self.settings.normalisation or "token" if by_token else "completion",
            self.longest,
        )
        weight_of = dict(zip(rows, weights, strict=True))
        tokens = sum(map(len, weights))
        watched = UpdateMetrics()
        for row in rows_of(
            learner.policy, self._sequences, budget, among=self._places(rows), together=self._together, setting=BUDGET
        ):
            parts = [self._parts[place] for place in row.indices]
            seen = watched if row.counts else UpdateMetrics()
            read = read_policy(learner, row.sequences, parts, self.readings, objective.divergence)
            indices, said = self._wholes(row.indices, read)
            log_prob, batch = token_batch(
                chosen, indices, self.advantage, said, self.old, self.reference, self.progress, self.marked
            )
            if objective.level == "pair":
                batch = replace(batch, pairs=to_device(pairs_of(chosen, indices), log_prob.device))
            loss = _reduced(objective, log_prob, batch, [weight_of[i] for i in indices], seen)
            if bonus := objective.entropy_bonus:
                loss = loss + entropy_term(batch.entropy, bonus, tokens)
            row.backward(loss)
            seen.add({"entropy": said.entropy})
            seen.add_loss(loss)
        return watched.over(learner.ranks)

    def _longest_unit(self, rows: Sequence[int]) -> int:
        labels, places = self._together, self._places(rows)
        return longest_unit(self._sequences.take(places), None if labels is None else [labels[i] for i in places])

    def _places(self, rows: Sequence[int]) -> list[int]:
        """Return the sequences of the completions at `rows`."""
        return [place for row in rows for place in self._sequences_of[row]]

    def _wholes(self, indices: Sequence[int], said: PolicyOutputs) -> tuple[list[int], PolicyOutputs]:
        """Return the completions of a row's sequences, and the log-probs and entropies of their tokens, with an
        episode's parts concatenated."""
        if len(self._parts) == len(self.chosen.rollouts):
            return list(indices), said
        wholes, order = wholes_of_row(indices, self._owners)
        lengths = [self._parts[index].trained_tokens for index in indices]

        def ordered(values: Tensor | None) -> Tensor | None:
            if values is None:
                return None
            rows = values.split(lengths)
            return torch.cat([rows[place] for place in order])

        log_prob, entropy = ordered(said.log_prob), ordered(said.entropy)
        assert log_prob is not None and entropy is not None, "they are said of every token"
        return wholes, PolicyOutputs(log_prob, entropy, ordered(said.divergence), ordered(said.contrast_gap))

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


def _reduced(
    objective: Objective, log_prob: Tensor, batch: TokenBatch, weights: list[Tensor], watched: UpdateMetrics
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
    watched.add(watch)
    return (weight * losses).sum()
