"""How likely a pleased user's words are after a completion, against a displeased one's (FLR, paper 342).

    l(f) = mean over the tokens of f of log p(f_t | prompt, completion, f_<t)
    value = mean over pleased f of l(f) - mean over displeased f of l(f)                 arXiv 2409.13948

Nobody labels a completion: what people would say next tells what they make of it. p is the recipe's judge, any language
model, the better for having seen talks in which users react. The mean over tokens and sayings keeps long ones and many
of one kind from counting more. A completion that was cut is worth no more than the worst of its round: one who is not
finished is not answered.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.errors import UserError
from models.judges.question import check_template, fill
from models.loop.limits import Limits
from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.truncation import worst_where_cut
from models.loop.world import World
from models.parts import part
from models.rewards.judge_score import OF_JUDGES


def follow_up_value(likelihoods: Sequence[float], pleased: int) -> float:
    """The value from the log-likelihood of each saying, the first `pleased` of which are pleased, nats a token."""
    said, other = likelihoods[:pleased], likelihoods[pleased:]
    return sum(said) / len(said) - sum(other) / len(other)


@part("follow_up")
class FollowUp(Reward):
    """Likelihood of what pleased users say next, less that of what displeased ones do."""

    needs_judge = True
    needs_likelihoods = True
    template: str = "{prompt} solution {completion} user"
    """What stands before the user's words, with the places {prompt} and {completion}."""
    pleased: tuple[str, ...] = ("thanks that is right", "great this helps me", "yes now it is clear")
    """What pleased users say."""
    displeased: tuple[str, ...] = ("no that is wrong", "this does not help me", "please look at it again")
    """What displeased ones say."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        check_template(self.template, {"prompt", "completion"}, f"rewards.{self.label}.template")
        for key, sayings in (("pleased", self.pleased), ("displeased", self.displeased)):
            if not sayings or not all(text.strip() for text in sayings):
                raise UserError(f"rewards.{self.label}.{key}: there must be sayings, none of them empty")

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values, nats a token, [completions]; NaN of what is too long to be read."""
        talks = [fill(self.template, {"prompt": each.problem.prompt, "completion": each.text}) for each in rollouts]
        rows = world.asked_judge().likelihoods(talks, (*self.pleased, *self.displeased))
        values = [float("nan") if row is None else follow_up_value(row, len(self.pleased)) for row in rows]
        return worst_where_cut(torch.tensor(values), rollouts)
