"""A checklist for each prompt, which a judge writes first, and the share of its items that the judge ticks.

Source: ACE-RL (paper 262): an instruction is taken apart into constraints of its own, and how good a completion is
becomes how many of them it meets.

    items = list of the judge for the prompt, or those of the recipe
    value = (items that hold) / (items),         held by more than half of the votes on it that can be read

Items are asked about one at a time, so that a small question stands in place of a large one. Those that hold and those
that do not are the reason in the sample tables. An item without a verdict does not hold, as else a completion would be
worth more by what no judge can read. A completion has no value where the judge wrote no list for its prompt, or none of
its items has a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from models.bounds import Positive
from models.errors import UserError
from models.judges.judge import GenerativeJudge
from models.judges.question import LIST, TICK, check_template, fill
from models.judges.verdict import ITEM, holds, listed
from models.loop.limits import Limits
from models.loop.reward_forms import JudgedReward, Reasoned
from models.loop.rollout import Rollout
from models.parts import part
from models.rewards.judge_score import OF_JUDGES, Votes


@part("checklist")
class Checklist(JudgedReward):
    """Share of what a prompt asks for that a completion has, in the judge's eyes."""

    lists: str = LIST
    """What the judge is asked once for a prompt, with the place {prompt}: it answers #### and the items, semicolons
    between."""
    items: tuple[str, ...] = ()
    """The items of every prompt, in place of those that the judge would write."""
    template: str = TICK
    """What the judge is asked about each item, with the places {item}, {completion} and, where wanted, {prompt}. It
    answers yes or no."""
    votes: Votes = 1
    """Answers about each item."""
    most: Positive = 16
    """Items of a list; further ones are left out."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        check_template(self.template, {"item", "completion"}, f"{where}.template", frozenset({"prompt"}))
        check_template(self.lists, {"prompt"}, f"{where}.lists")
        if wrong := [place for place, item in enumerate(self.items) if not item.strip() or len(item) > ITEM]:
            raise UserError(f"{where}.items.{wrong[0]}: an item says something, in at most {ITEM} characters")

    def judged(self, judge: GenerativeJudge, rollouts: Sequence[Rollout], seed: int) -> Reasoned:
        """Values in [0, 1], [completions]; NaN where nothing can be read."""
        lists = self._listed(judge, [rollout.problem.prompt for rollout in rollouts])
        asked = [(place, item) for place, rollout in enumerate(rollouts) for item in lists[rollout.problem.prompt]]
        questions = [
            fill(
                self.template,
                {"prompt": rollouts[place].problem.prompt, "item": item, "completion": rollouts[place].text},
            )
            for place, item in asked
        ]
        ticked: list[list[bool | None]] = [[] for _ in rollouts]
        reasons: list[list[str]] = [[] for _ in rollouts]
        unread = 0
        for (place, item), answers in zip(asked, judge.ask(questions, self.votes), strict=True):
            share = holds(answers)
            unread += share is None
            ticked[place].append(None if share is None else share > 0.5)
            reasons[place].append(f"{'?' if share is None else 'yes' if share > 0.5 else 'no'}: {item}")
        values = [float("nan") if set(held) <= {None} else held.count(True) / len(held) for held in ticked]
        watched = {
            "unread": unread / max(1, len(asked)),
            "unlisted": sum(not written for written in lists.values()) / max(1, len(lists)),
            "items": len(asked) / max(1, len(rollouts)),
        }
        return Reasoned(torch.tensor(values), [" ; ".join(said) for said in reasons], watched)

    def _listed(self, judge: GenerativeJudge, prompts: Sequence[str]) -> dict[str, Sequence[str]]:
        """The items of each prompt; none where the judge wrote no list."""
        distinct = list(dict.fromkeys(prompts))
        if self.items:
            return dict.fromkeys(distinct, self.items)
        answers = judge.ask([fill(self.lists, {"prompt": prompt}) for prompt in distinct], greedy=True)
        return {prompt: listed(said[0], self.most) or () for prompt, said in zip(distinct, answers, strict=True)}
