"""Pairwise comparisons by a generative judge among a prompt's completions, each pair in both orders (paper 278).

    value_i = mean over the rivals j of i of the judge's preference for i over j, in [0, 1]

Each completion is compared with the next `rivals` of its group, so it takes part in twice as many comparisons, or meets
the whole group. Position bias cancels in the mean over both orders (`models.reward_models.judges.pairs`). It is
reported: if `rewards/LABEL/first_place` is above one half, the judge prefers the completion shown first. Equal texts
are not compared: their preference is 1/2. A comparison that cannot be read is left out; a completion without any other
comparison has no value.

Self-reference (paper 278): the judge answers the prompt first (`own`) and compares both completions with that answer.
With `by_likelihood` a verdict is weighted by the judge's confidence in its words, so that preferences have a strength.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from models.base.bounds import Positive
from models.method.judge import GenerativeJudge
from models.method.registry import part
from models.method.reward import JudgedReward, Limits, Reasoned
from models.method.rollout import Rollout, groups_of
from models.parts.rewards.judges.judge_score import OF_JUDGES, Votes
from models.reward_models.judges.pairs import CompletionPair, PairComparison, compare
from models.reward_models.judges.question import COMPARE, check_template, fill


@part("judge_pairs")
class JudgePairs(JudgedReward):
    """Share of comparisons won, according to the judge."""

    template: str = COMPARE
    """Template of the question, with the placeholders {prompt}, {first}, {second} and, optionally, {principles} and
    {reference}. The judge answers first, second or neither."""
    principles: str = ""
    """Criterion of the comparison, for the template's placeholder {principles}."""
    own: str = ""
    """Template of a question that comes first, with the placeholder {prompt}. The judge's most likely answer replaces
    {reference} in `template`. Empty: nothing comes first, and `template` must not contain {reference}."""
    by_likelihood: bool = False
    """Whether a verdict is weighted by the likelihood of its words under the judge; weight 1 if a server does not
    return log-probs."""
    rivals: Positive = 1
    """Number of rivals that each completion is compared with, in addition to those that have it as a rival."""
    votes: Votes = 1
    """Votes in each order."""
    swap: bool = True
    """Whether to ask in both orders."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        needed = {"prompt", "first", "second", *(["reference"] if self.own else [])}
        check_template(self.template, needed, f"rewards.{self.label}.template", frozenset({"principles"}))
        if self.own:
            check_template(self.own, {"prompt"}, f"rewards.{self.label}.own")

    def judged(self, judge: GenerativeJudge, rollouts: Sequence[Rollout], seed: int) -> Reasoned:
        """Return values in [0, 1], [completions]; NaN if no comparison can be read, 1/2 without rivals."""
        places = rivals_of(groups_of(rollouts).tolist(), self.rivals)
        unequal_pairs = [(i, j) for i, j in places if rollouts[i].text != rollouts[j].text]
        own = self._own(judge, [rollouts[i].problem.prompt for i, _ in unequal_pairs])
        pairs = [
            CompletionPair(
                rollouts[i].problem.prompt,
                rollouts[i].text,
                rollouts[j].text,
                {"principles": self.principles, "reference": reference},
            )
            for (i, j), reference in zip(unequal_pairs, own, strict=True)
        ]
        comparisons = compare(judge, self.template, pairs, self.votes, swap=self.swap, by_likelihood=self.by_likelihood)
        comparison_of = dict(zip(unequal_pairs, comparisons, strict=True))
        won: list[list[float]] = [[] for _ in rollouts]
        reasons = [""] * len(rollouts)
        unpaired = set(range(len(rollouts))) - {place for pair in places for place in pair}
        for i, j in places:
            preference = comparison_of[i, j].preference if (i, j) in comparison_of else 0.5
            if preference is None:
                continue
            won[i].append(preference)
            won[j].append(1.0 - preference)
            for place in (i, j):
                reasons[place] = reasons[place] or (
                    comparison_of[i, j].answers[0].text if (i, j) in comparison_of else ""
                )
        values = [
            sum(mine) / len(mine) if mine else 0.5 if place in unpaired else float("nan")
            for place, mine in enumerate(won)
        ]
        return Reasoned(torch.tensor(values), reasons, comparison_metrics(list(comparison_of.values())))

    def _own(self, judge: GenerativeJudge, prompts: Sequence[str]) -> list[str]:
        """Return the judge's own answer to each prompt; empty texts if `own` is empty."""
        if not self.own:
            return [""] * len(prompts)
        answers = judge.ask([fill(self.own, {"prompt": prompt}) for prompt in prompts], greedy=True)
        return [replies[0].text for replies in answers]


def rivals_of(groups: Sequence[int], rivals: int) -> list[tuple[int, int]]:
    """Return the index pairs to compare: each completion with the next `rivals` of its group, no pair twice.

    Args:
        groups: the group of each completion.
        rivals: maximum number; a smaller group has fewer.
    """
    members: dict[int, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    pairs: dict[frozenset[int], tuple[int, int]] = {}
    for indices in members.values():
        for at, place in enumerate(indices):
            for step in range(1, min(rivals, len(indices) - 1) + 1):
                other = indices[(at + step) % len(indices)]
                pairs.setdefault(frozenset((place, other)), (place, other))
    return list(pairs.values())


def comparison_metrics(comparisons: Sequence[PairComparison]) -> dict[str, float]:
    """Return the metrics of comparisons: the share of answers without a verdict, and the mean value of the first place.

    The second is left out if no comparison was read in both orders.
    """
    answers = sum(len(each.answers) for each in comparisons)
    metrics = {"unread": sum(each.unread for each in comparisons) / max(1, answers)}
    if places := [each.place for each in comparisons if each.place is not None]:
        metrics["first_place"] = sum(places) / len(places)
    return metrics
