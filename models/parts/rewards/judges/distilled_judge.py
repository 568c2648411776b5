"""A judge labels a part of each round, and a cheap model of its labels values every completion (ONI, paper 31).

    labels   share `labelled` of the round's distinct completions gets the judge's value v(x); all labels are kept
    table    value(x) = v(x) if x has a label, else 0
    classifier   value(x) = sigmoid(f(x)),  f minimises  -v log sigmoid(f) - (1 - v) log sigmoid(-f)
    ranker       value(x) = sigmoid(f(x)),  f minimises  -log sigmoid(f(x) - f(y))  over pairs with v(x) > v(y)

A judge is too slow to read every completion. The labels that it gives while the policy learns are distilled into a
model that values all of them, and that is added to the reward of the task. With a table and `labelled: 1` the value is
that of `judge_score`.

f is a companion: the backbone of the initial policy with one output. It learns before it values a round, from the
labels of earlier rounds only, as if the judge answered while the next round is sampled. The labels are part of every
checkpoint. A verdict that cannot be read gives none, and the judge may be asked again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from models.base.bounds import Positive
from models.base.seeds import seed_of
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.learner.rows import rows_of
from models.method.learner import Companion
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reasoned
from models.method.rollout import Rollout
from models.method.schedule import BUDGET_KEY
from models.parts.rewards.judges.judge_score import JudgeScore
from models.reward_models.critic.fit import critic_of
from models.reward_models.critic.model import end_outputs, new_critic, read_values
from models.reward_models.critic.settings import CriticSettings

Pair = tuple[str, str]
"""Prompt and completion, as texts."""


def label_loss(scores: Tensor, values: Tensor) -> Tensor:
    """Compute the mean cross-entropy of a classifier's log-odds, [texts], with labels in [0, 1], [texts]; nats."""
    return binary_cross_entropy_with_logits(scores, values)


def rank_loss(scores: Tensor, values: Tensor) -> Tensor:
    """Compute the mean Bradley-Terry loss over all pairs with different values, nats; zero if there is none.

    Args:
        scores: outputs of the ranker, [texts].
        values: the judge's values, [texts].
    """
    better = values[:, None] > values[None, :]
    losses = softplus(scores[None, :] - scores[:, None])
    return losses[better].sum() / max(1, int(better.sum()))


@part("distilled_judge")
class DistilledJudge(JudgeScore):
    """Value by a table, a classifier or a ranker of the judge's scores, which are asked for a part of each round."""

    by = ""
    kind: Literal["table", "classifier", "ranker"] = "classifier"
    """Model of the labels: a table of the texts that have one, a classifier, or a ranker of pairs."""
    labelled: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Share of the round's distinct completions that the judge is asked about, if they have no label."""
    replayed: Positive = 64
    """Largest number of labels that the companion learns from in each step."""
    passes: Positive = 4
    """Optimiser steps of the companion in each round."""
    optimiser: OptimiserSettings = field(default_factory=lambda: OptimiserSettings(learning_rate=3e-4, warmup_steps=5))
    """Optimiser of the companion."""

    @property
    def reads_learner(self) -> bool:
        """Whether it reads the companion's values."""
        return self.kind != "table"

    @property
    def companion(self) -> str:
        """Name of the model of the labels; a table has none."""
        return "" if self.kind == "table" else "distilled_judge"

    def accompany(self, policy: nn.Module) -> Companion | None:
        """Create the companion from the backbone of the initial policy, with a new output; None for a table."""
        return None if self.kind == "table" else new_critic(policy, CriticSettings(optimiser=self.optimiser))

    def learn(
        self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]
    ) -> dict[str, float]:
        """Fit the companion to labels of earlier rounds, drawn again for each step. Returns the last step's loss."""
        known = self._known(resources)
        if not known:
            return {}
        companion = resources.learner.companions[self.companion]
        critic = critic_of(companion)
        critic.eval()
        loss_of = label_loss if self.kind == "classifier" else rank_loss
        loss = torch.zeros(())
        for _ in range(self.passes):
            draws = torch.Generator().manual_seed(seed_of(resources.seed, f"labels {self.label}", companion.updates))
            order = torch.randperm(len(known), generator=draws)[: self.replayed].tolist()
            sequences = _sequences(resources, [known[place][0] for place in order])
            values = torch.tensor([known[place][1] for place in order])
            scores = self._scores(resources, sequences).requires_grad_()
            loss = loss_of(scores, values)
            (slopes,) = torch.autograd.grad(loss, scores)  # a pair's texts may be in different rows
            for row in rows_of(critic, sequences, resources.token_budget, setting=BUDGET_KEY):
                outputs = end_outputs(critic, row.sequences, resources.learner.autocast)
                row.backward((outputs * slopes[list(row.indices)].to(outputs)).sum())
            companion.step(self.optimiser, f"rewards.{self.label}.optimiser", loss.detach())
        return {"loss": float(loss.detach()), "labels": float(len(known))}

    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Compute the value of each completion, [completions], after the judge labelled a part of them.

        The metrics are `asked`, the number of questions, `unread`, the share of them without a verdict, `labelled`, the
        share of completions with a label, and `error`, the mean absolute difference between the companion's values and
        the labels of this call, which it has not learned from.
        """
        pairs = [(rollout.problem.prompt, rollout.text) for rollout in rollouts]
        if self.kind == "table":
            fresh, reasons = self._ask(resources, rollouts)
        else:
            fresh, reasons = resources.learner.ranks.from_first(lambda: self._ask(resources, rollouts))
        labels = resources.learner.tally.labels.setdefault(self.label, {})
        read = {pair: value for pair, value in fresh.items() if math.isfinite(value)}
        for (prompt, text), value in read.items():
            labels.setdefault(prompt, {})[text] = value
        known = [labels.get(prompt, {}).get(text) for prompt, text in pairs]
        watched = {
            "asked": float(len(fresh)),
            "unread": 1.0 - len(read) / max(1, len(fresh)),
            "labelled": sum(value is not None for value in known) / max(1, len(pairs)),
        }
        if self.kind == "table":
            values = torch.tensor([0.0 if value is None else value for value in known])
        else:
            values = torch.sigmoid(self._scores(resources, _sequences(resources, pairs)))
            gaps = [abs(float(values[place]) - read[pair]) for place, pair in enumerate(pairs) if pair in read]
            if gaps:
                watched["error"] = sum(gaps) / len(gaps)
        return Reasoned(values, [reasons.get(pair, "") for pair in pairs], watched)

    def _ask(self, resources: RunResources, rollouts: Sequence[Rollout]) -> tuple[dict[Pair, float], dict[Pair, str]]:
        """Ask the judge about distinct completions without a label. Returns their values, NaN if unread, and reasons.

        At most the share `labelled` of the distinct completions is asked about; which of them is drawn by seed.
        """
        distinct = {(rollout.problem.prompt, rollout.text): rollout for rollout in rollouts}
        labels = resources.learner.tally.labels.get(self.label, {})
        new = [pair for pair in distinct if pair[1] not in labels.get(pair[0], {})]
        seed = seed_of(resources.seed, f"asked {self.label}", resources.learner.tally.completions)
        order = torch.randperm(len(new), generator=torch.Generator().manual_seed(seed))
        chosen = [new[place] for place in sorted(order[: math.ceil(self.labelled * len(distinct))].tolist())]
        if not chosen:
            return {}, {}
        made = self.judged(resources.required_judge(), [distinct[pair] for pair in chosen], resources.seed)
        return (
            dict(zip(chosen, made.values.tolist(), strict=True)),
            dict(zip(chosen, made.reasons, strict=True)),
        )

    def _known(self, resources: RunResources) -> list[tuple[Pair, float]]:
        """Return all labels: prompt and completion, and the judge's value."""
        labels = resources.learner.tally.labels.get(self.label, {})
        return [((prompt, text), value) for prompt, texts in labels.items() for text, value in texts.items()]

    def _scores(self, resources: RunResources, sequences: Sequences) -> Tensor:
        """Return the companion's output at the end of each completion, without gradient, [completions], float32."""
        rows = read_values(
            critic_of(resources.learner.companions[self.companion]),
            sequences,
            autocast=resources.learner.autocast,
            token_budget=resources.token_budget,
        )
        return torch.stack([row[-1] for row in rows]).float() if rows else torch.zeros(0)


def _sequences(resources: RunResources, pairs: Sequence[Pair]) -> Sequences:
    """Encode prompts and completions as texts, each completion with its end token, [completions]."""
    prompts = resources.codec.unwrapped([prompt for prompt, _ in pairs])
    completions = resources.codec.completions([text for _, text in pairs])
    return Sequences([tuple(ids) for ids in prompts], [tuple(ids) for ids in completions])
