"""Share of the items of a checklist that a completion meets; a judge writes and checks it (ACE-RL, paper 262).

An instruction is split into its own constraints, and the quality of a completion is the share of them that it meets.

    items = the judge's list for the prompt, or those of the recipe
    value = (items that hold) / (items),         an item holds if more than half of its readable votes are yes

Each item is a question of its own, so that one large question becomes several small ones. The sample tables list, as
the reason, which items hold. An item without a verdict does not hold; otherwise unreadable verdicts would raise the
reward. A completion has no value if the judge wrote no list for its prompt, or if none of its items has a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from models.base.bounds import Positive
from models.base.errors import UserError
from models.method.judge import GenerativeJudge
from models.method.registry import part
from models.method.reward import JudgedReward, Limits, Reasoned
from models.method.rollout import Rollout
from models.parts.rewards.judges.judge_score import OF_JUDGES, Votes
from models.reward_models.judges.question import LIST, TICK, check_template, fill
from models.reward_models.judges.verdict import ITEM, holds, listed


@part("checklist")
class Checklist(JudgedReward):
    """Share of the prompt's requirements that a completion meets, according to the judge."""

    lists: str = LIST
    """Template of the question for the list, asked once per prompt, with the placeholder {prompt}: the judge answers
    #### and the items, with semicolons between."""
    items: tuple[str, ...] = ()
    """Items for every prompt; if given, the judge writes no lists."""
    template: str = TICK
    """Template of the question about each item, with the placeholders {item}, {completion} and, optionally, {prompt}.
    The judge answers yes or no."""
    votes: Votes = 1
    """Votes on each item."""
    most: Positive = 16
    """Maximum number of items of a list; further ones are dropped."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        check_template(self.template, {"item", "completion"}, f"{where}.template", frozenset({"prompt"}))
        check_template(self.lists, {"prompt"}, f"{where}.lists")
        if wrong := [place for place, item in enumerate(self.items) if not item.strip() or len(item) > ITEM]:
            raise UserError(f"{where}.items.{wrong[0]}: an item says something, in at most {ITEM} characters")

    def judged(self, judge: GenerativeJudge, rollouts: Sequence[Rollout], seed: int) -> Reasoned:
        """Return values in [0, 1], [completions]; NaN if nothing can be read."""
        lists = self._listed(judge, [rollout.problem.prompt for rollout in rollouts])
        checks = [(place, item) for place, rollout in enumerate(rollouts) for item in lists[rollout.problem.prompt]]
        questions = [
            fill(
                self.template,
                {"prompt": rollouts[place].problem.prompt, "item": item, "completion": rollouts[place].text},
            )
            for place, item in checks
        ]
        marks: list[list[bool | None]] = [[] for _ in rollouts]
        reasons: list[list[str]] = [[] for _ in rollouts]
        unread = 0
        for (place, item), answers in zip(checks, judge.ask(questions, self.votes), strict=True):
            share = holds(answers)
            unread += share is None
            marks[place].append(None if share is None else share > 0.5)
            reasons[place].append(f"{'?' if share is None else 'yes' if share > 0.5 else 'no'}: {item}")
        values = [float("nan") if set(row) <= {None} else row.count(True) / len(row) for row in marks]
        metrics = {
            "unread": unread / max(1, len(checks)),
            "unlisted": sum(not items for items in lists.values()) / max(1, len(lists)),
            "items": len(checks) / max(1, len(rollouts)),
        }
        return Reasoned(torch.tensor(values), [" ; ".join(lines) for lines in reasons], metrics)

    def _listed(self, judge: GenerativeJudge, prompts: Sequence[str]) -> dict[str, Sequence[str]]:
        """Return the items of each prompt; none if the judge wrote no list."""
        distinct = list(dict.fromkeys(prompts))
        if self.items:
            return dict.fromkeys(distinct, self.items)
        answers = judge.ask([fill(self.lists, {"prompt": prompt}) for prompt in distinct], greedy=True)
        return {prompt: listed(replies[0], self.most) or () for prompt, replies in zip(distinct, answers, strict=True)}
