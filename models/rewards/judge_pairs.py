"""Comparisons by a generative judge among the completions of a prompt, each pair in both orders.

    value_i = mean over the rivals j of i of the judge's preference for i over j, in [0, 1]

A completion meets the next `rivals` of its group, and so twice as many others or all of them. Whatever the judge owes
to the place cancels in the mean over both orders (`models.judges.pairs`); how much that is, is watched: with
`rewards/LABEL/first_place` above one half the judge prefers what stands first. Comparisons between equal texts are not
asked: they are 1/2. One that cannot be read is left out; a completion that has none left has no value.

Self-reference (paper 278): the judge answers the prompt first (`own`) and holds both completions against that; with
`by_likelihood` a verdict counts by how sure of its words the judge is, so that the preference has a strength.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from models.bounds import Positive
from models.judges.judge import GenerativeJudge
from models.judges.pairs import Compared, Pair, compare
from models.judges.question import COMPARE, check_template, fill
from models.loop.limits import Limits
from models.loop.reward_forms import JudgedReward, Reasoned
from models.loop.rollout import Rollout, groups_of
from models.parts import part
from models.rewards.judge_score import OF_JUDGES, Votes


@part("judge_pairs")
class JudgePairs(JudgedReward):
    """Share of comparisons won in the judge's eyes."""

    template: str = COMPARE
    """What the judge is asked, with the places {prompt}, {first}, {second} and, where wanted, {principles} and
    {reference}. It answers first, second or neither."""
    principles: str = ""
    """What is to be better, where the template has a place for it."""
    own: str = ""
    """What the judge is asked before, with the place {prompt}: its likeliest answer is the template's {reference}.
    Empty: nothing, and there is no such place."""
    by_likelihood: bool = False
    """A verdict counts by how likely its words are to the judge; fully where a server does not tell."""
    rivals: Positive = 1
    """Of each completion, beside those whose rival it is itself."""
    votes: Votes = 1
    """Answers in each order."""
    swap: bool = True
    """Ask in both orders."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        needed = {"prompt", "first", "second", *(["reference"] if self.own else [])}
        check_template(self.template, needed, f"rewards.{self.label}.template", frozenset({"principles"}))
        if self.own:
            check_template(self.own, {"prompt"}, f"rewards.{self.label}.own")

    def judged(self, judge: GenerativeJudge, rollouts: Sequence[Rollout], seed: int) -> Reasoned:
        """Values in [0, 1], [completions]; NaN where no comparison can be read, 1/2 of one that is alone."""
        places = rivals_of(groups_of(rollouts).tolist(), self.rivals)
        asked = [(i, j) for i, j in places if rollouts[i].text != rollouts[j].text]
        own = self._own(judge, [rollouts[i].problem.prompt for i, _ in asked])
        pairs = [
            Pair(
                rollouts[i].problem.prompt,
                rollouts[i].text,
                rollouts[j].text,
                {"principles": self.principles, "reference": reference},
            )
            for (i, j), reference in zip(asked, own, strict=True)
        ]
        compared = compare(judge, self.template, pairs, self.votes, swap=self.swap, by_likelihood=self.by_likelihood)
        made = dict(zip(asked, compared, strict=True))
        won: list[list[float]] = [[] for _ in rollouts]
        reasons = [""] * len(rollouts)
        alone = set(range(len(rollouts))) - {place for pair in places for place in pair}
        for i, j in places:
            preference = made[i, j].preference if (i, j) in made else 0.5
            if preference is None:
                continue
            won[i].append(preference)
            won[j].append(1.0 - preference)
            for place in (i, j):
                reasons[place] = reasons[place] or (made[i, j].answers[0].text if (i, j) in made else "")
        values = [
            sum(mine) / len(mine) if mine else 0.5 if place in alone else float("nan") for place, mine in enumerate(won)
        ]
        return Reasoned(torch.tensor(values), reasons, watched_of(list(made.values())))

    def _own(self, judge: GenerativeJudge, prompts: Sequence[str]) -> list[str]:
        """The judge's own answer to each prompt; empty where it is not asked for one."""
        if not self.own:
            return [""] * len(prompts)
        answers = judge.ask([fill(self.own, {"prompt": prompt}) for prompt in prompts], greedy=True)
        return [said[0].text for said in answers]


def rivals_of(groups: Sequence[int], rivals: int) -> list[tuple[int, int]]:
    """Pairs of places that are compared: each completion with the next `rivals` of its group, no pair twice.

    Args:
        groups: the group of each completion.
        rivals: at most; a group has no more than it has others.
    """
    members: dict[int, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    pairs: dict[frozenset[int], tuple[int, int]] = {}
    for held in members.values():
        for at, place in enumerate(held):
            for step in range(1, min(rivals, len(held) - 1) + 1):
                other = held[(at + step) % len(held)]
                pairs.setdefault(frozenset((place, other)), (place, other))
    return list(pairs.values())


def watched_of(made: Sequence[Compared]) -> dict[str, float]:
    """Share of answers without a verdict, and how far the first place wins where both orders were read."""
    answers = sum(len(each.answers) for each in made)
    watched = {"unread": sum(each.unread for each in made) / max(1, answers)}
    if places := [each.place for each in made if each.place is not None]:
        watched["first_place"] = sum(places) / len(places)
    return watched
