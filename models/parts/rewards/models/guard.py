"""Two players: a guard learns to classify texts, and the policy earns where the guard errs (DuoGuard, paper 132).

    guard     minimises  mean of loss(g(x), label(x))    over labelled texts and what the policy wrote in earlier rounds
    policy    maximises  loss(g(x), label(x)) of the text x that it writes

A rule knows the label of every text: it is harmful if it matches one of `harmful`. The policy therefore searches for
texts of either class that the guard misjudges, and the guard learns from them in the following rounds. With a guard
that is convex in its weights and a policy with an entropy bonus or a KL, the game has a single equilibrium
(arXiv 2502.05163); a test checks that both players reach it where all texts can be listed.

The guard is a companion: the backbone of the initial policy with one output. It is trained before it scores a round,
on the round's labelled texts, which are parts of the prompts, and on texts of its archive, but not on the texts that it
is about to score. The archive is part of every checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from models.answers.patterns import compiled, matched
from models.base.bounds import Positive
from models.base.seeds import seed_of
from models.learner.optimiser import OptimiserSettings
from models.learner.rows import rows_of
from models.method.learner import Companion
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reasoned, ReasonedReward
from models.method.rollout import Rollout
from models.method.schedule import BUDGET_KEY
from models.parts.shared.text_states import without_prompt
from models.reward_models.critic.fit import critic_of
from models.reward_models.critic.model import end_outputs, new_critic, read_values
from models.reward_models.critic.settings import CriticSettings


def losses_of(logits: Tensor, harmful: Tensor) -> Tensor:
    """Compute the logistic loss of a guard on each text, [texts], nats.

    Args:
        logits: log-odds that a text is harmful, [texts].
        harmful: whether it is, [texts], bool.
    """
    return softplus(torch.where(harmful, -logits, logits))


@part("guard")
class Guard(ReasonedReward):
    """Loss of a guard that is trained against the policy; zero for a completion without a text to judge."""

    reads_learner = True
    companion = "guard"
    by = ""
    harmful: tuple[str, ...] = ()
    """Regular expressions; a text is harmful if one of them matches, ignoring case."""
    reads: str = ""
    """Regular expression of the text in a completion; one without a match earns nothing. Empty: all of it."""
    labelled: str = ""
    """Regular expression of the labelled text in a prompt; empty: all of it."""
    earns: Literal["loss", "error"] = "loss"
    """What the policy earns: the guard's loss, so that the game is one of zero sum, or the probability that the guard
    gives to the wrong class, which is bounded."""
    replayed: Positive = 64
    """Largest number of texts of earlier rounds that the guard learns from in each step."""
    passes: Positive = 4
    """Optimiser steps of the guard in each round."""
    optimiser: OptimiserSettings = field(default_factory=lambda: OptimiserSettings(learning_rate=3e-4, warmup_steps=5))
    """Optimiser of the guard."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        rules = [compiled(pattern, f"{where}.harmful", re.IGNORECASE) for pattern in self.harmful]
        object.__setattr__(self, "_rules", rules)
        for name in ("reads", "labelled"):
            pattern: str = vars(self)[name]
            object.__setattr__(self, f"_{name}", compiled(pattern, f"{where}.{name}"))

    @property
    def misfit(self) -> str:
        """Error message if the list of rules is empty, so that the guard cannot learn; otherwise empty."""
        if self.harmful:
            return ""
        return f"rewards.{self.label}.harmful: none; name the texts that the guard must recognise"

    def accompany(self, policy: nn.Module) -> Companion:
        """Create the guard from the backbone of the initial policy, with a new output."""
        return new_critic(policy, CriticSettings(optimiser=self.optimiser))

    def learn(
        self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]
    ) -> dict[str, float]:
        """Fit the guard to the round's labelled texts, and to texts of its archive, drawn again for each step.

        Returns loss and accuracy before the last step.
        """
        companion = resources.learner.companions[self.companion]
        critic = critic_of(companion)
        shown = [self._text(rollout.problem.prompt, "labelled") for rollout in rollouts]
        given = list(dict.fromkeys(filter(None, shown)))
        archive = list(resources.learner.tally.archives.get(self.label, {}))
        metrics: dict[str, float] = {}
        for _ in range(self.passes):
            draws = torch.Generator().manual_seed(seed_of(resources.seed, f"guard {self.label}", companion.updates))
            order = torch.randperm(len(archive), generator=draws)[: self.replayed].tolist()
            texts = [*given, *(archive[place] for place in order)]
            if not texts:
                return {}
            harmful = self._harmful(texts)
            loss_sum, right = 0.0, 0
            sequences = without_prompt(resources, texts)
            for row in rows_of(critic, sequences, resources.token_budget, setting=BUDGET_KEY):
                labels = harmful[list(row.indices)]
                logits = end_outputs(critic, row.sequences, resources.learner.autocast)
                losses = losses_of(logits, labels.to(logits.device))
                row.backward(losses.sum() / len(texts))
                loss_sum += row.counts * float(losses.detach().sum())
                right += row.counts * int(((logits.detach() > 0).cpu() == labels).sum())
            companion.step(self.optimiser, f"rewards.{self.label}.optimiser")
            metrics = {"loss": loss_sum / len(texts), "accuracy": right / len(texts), "texts": float(len(texts))}
        return metrics

    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Compute the value of each text, [completions], then add the texts to the archive.

        The metrics are `accuracy`, of the guard on texts that it has not learned from, `harmful`, the share of harmful
        texts, and `texts`, the share of completions with a text.
        """
        texts = [self._text(rollout.text, "reads") for rollout in rollouts]
        places = [place for place, text in enumerate(texts) if text]
        values, reasons = torch.zeros(len(rollouts)), [""] * len(rollouts)
        watched = {"texts": len(places) / max(1, len(rollouts))}
        if places:
            written = [texts[place] for place in places]
            harmful = self._harmful(written)
            critic = critic_of(resources.learner.companions[self.companion])
            rows = read_values(
                critic,
                without_prompt(resources, written),
                autocast=resources.learner.autocast,
                token_budget=resources.token_budget,
            )
            logits = torch.stack([row[-1] for row in rows]).float()
            losses = losses_of(logits, harmful)
            values[places] = losses if self.earns == "loss" else 1.0 - torch.exp(-losses)
            watched |= {
                "accuracy": float(((logits > 0) == harmful).double().mean()),
                "harmful": float(harmful.double().mean()),
            }
            for place, logit, label in zip(places, logits.tolist(), harmful.tolist(), strict=True):
                reasons[place] = f"{'harmful' if label else 'harmless'}, log-odds of the guard {logit:+.2f}"
            resources.learner.tally.archived(self.label, written)
        return Reasoned(values, reasons, watched)

    def _text(self, text: str, setting: Literal["reads", "labelled"]) -> str:
        return matched(vars(self)[f"_{setting}"], text).strip()

    def _harmful(self, texts: Sequence[str]) -> Tensor:
        rules: list[re.Pattern[str]] = vars(self)["_rules"]
        return torch.tensor([any(rule.search(text) for rule in rules) for text in texts], dtype=torch.bool)
