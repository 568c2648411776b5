"""Likelihood of a pleased user's follow-up after a completion, minus a displeased one's (FLR, paper 342).

    l(f) = mean over the tokens of f of log p(f_t | prompt, completion, f_<t)
    value = mean over pleased f of l(f) - mean over displeased f of l(f)                 arXiv 2409.13948

Completions need no labels: the likely reaction of a user shows the quality. p is the recipe's judge, which may be any
language model; one trained on conversations in which users react works better. Because of the mean over tokens and over
phrases, long phrases and larger sets do not count more. A completion that was cut gets the least value of its round,
because users do not respond to an unfinished answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Limits, Reward
from models.method.rollout import Rollout
from models.method.truncation import worst_where_cut
from models.parts.rewards.judges.judge_score import OF_JUDGES
from models.reward_models.judges.question import check_template, fill


def follow_up_value(likelihoods: Sequence[float], pleased: int) -> float:
    """Return the mean log-likelihood of the pleased phrases minus that of the displeased ones, nats per token.

    The first `pleased` of the phrases are pleased.
    """
    positive, negative = likelihoods[:pleased], likelihoods[pleased:]
    return sum(positive) / len(positive) - sum(negative) / len(negative)


@part("follow_up")
class FollowUp(Reward):
    """Likelihood of follow-ups of pleased users minus that of displeased ones."""

    needs_judge = True
    needs_likelihoods = True
    template: str = "{prompt} solution {completion} user"
    """Text before the user's words, with the placeholders {prompt} and {completion}."""
    pleased: tuple[str, ...] = ("thanks that is right", "great this helps me", "yes now it is clear")
    """Phrases of pleased users."""
    displeased: tuple[str, ...] = ("no that is wrong", "this does not help me", "please look at it again")
    """Phrases of displeased users."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        check_template(self.template, {"prompt", "completion"}, f"rewards.{self.label}.template")
        for key, phrases in (("pleased", self.pleased), ("displeased", self.displeased)):
            if not phrases or not all(text.strip() for text in phrases):
                raise UserError(f"rewards.{self.label}.{key}: there must be sayings, none of them empty")

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values, nats per token, [completions]; NaN if a text is too long to be read."""
        prompts = [fill(self.template, {"prompt": each.problem.prompt, "completion": each.text}) for each in rollouts]
        rows = resources.required_judge().likelihoods(prompts, (*self.pleased, *self.displeased))
        values = [float("nan") if row is None else follow_up_value(row, len(self.pleased)) for row in rows]
        return worst_where_cut(torch.tensor(values), rollouts)
