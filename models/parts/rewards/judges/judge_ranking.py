"""Rank of a completion among those of its prompt, by a judge under a stated principle (RewardAnything, paper 53).

    value_i = mean over the lists with i of (L - place of i) / (L - 1),   1 for the best of L, 0 for the last

The judge ranks several completions in one question under a principle. The principle is a text of the recipe: another
text gives another reward, by the same judge. Votes come in twos: the first shuffles a group and cuts it into lists of
`at_a_time`, the second reads the same lists in reverse, so that neither the place in a list nor its other members
decide. Position bias is reported (`rewards/LABEL/first_place`: the mean value of the first place, one half without
bias). Equal texts appear in a list once and share their value. A completion has no value if none of its lists has a
verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated

import torch
from pydantic import Field

from models.method.judge import GenerativeJudge, vote_seed
from models.method.registry import part
from models.method.reward import JudgedReward, Limits, Reasoned
from models.method.rollout import Rollout
from models.parts.rewards.judges.judge_score import OF_JUDGES, Votes
from models.reward_models.judges.question import RANK, check_template, fill, numbered
from models.reward_models.judges.verdict import ranking


@part("judge_ranking")
class JudgeRanking(JudgedReward):
    """Rank of a completion in the judge's rankings."""

    principles: str = "correct"
    """Criterion of the ranking, in words; the small judges of the data set `comparing` know correct and concise."""
    template: str = RANK
    """Template of the question, with the placeholders {prompt}, {completions} and {principles}. The judge answers with
    the numbers of the completions from best to worst, such as 2 > 1 > 3."""
    at_a_time: Annotated[int, Field(ge=2, le=64)] = 3
    """Completions per list, if a group has so many different ones."""
    votes: Votes = 2
    """Minimum number of rankings per completion. With an even number every list is read in both orders."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        needed = {"prompt", "completions", *(["principles"] if self.principles else [])}
        check_template(self.template, needed, f"rewards.{self.label}.template")

    def judged(self, judge: GenerativeJudge, rollouts: Sequence[Rollout], seed: int) -> Reasoned:
        """Return values in [0, 1], [completions]; NaN if no ranking can be read, 1/2 if all texts are equal."""
        texts: dict[int, dict[str, None]] = {}
        prompts: dict[int, str] = {}
        for rollout in rollouts:
            texts.setdefault(rollout.group, {})[rollout.text] = None
            prompts[rollout.group] = rollout.problem.prompt
        lists = [
            (group, some[:: -1 if vote % 2 else 1])
            for group, distinct in texts.items()
            for vote in range(self.votes)
            for some in lists_of(list(distinct), self.at_a_time, vote_seed(seed, prompts[group], vote // 2))
        ]
        questions = [
            fill(
                self.template,
                {"prompt": prompts[group], "completions": numbered(some), "principles": self.principles},
            )
            for group, some in lists
        ]
        worth: dict[tuple[int, str], list[float]] = {}
        reasons: dict[tuple[int, str], str] = {}
        first, unread = [], 0
        for (group, some), (answer,) in zip(lists, judge.ask(questions), strict=True):
            places = ranking(answer, len(some))
            if places is None:
                unread += 1
                continue
            for rank, place in enumerate(places):
                value = 1.0 - rank / (len(some) - 1)
                worth.setdefault((group, some[place]), []).append(value)
                reasons.setdefault((group, some[place]), answer.text)
                if place == 0:
                    first.append(value)
        values = []
        for rollout in rollouts:
            held = worth.get((rollout.group, rollout.text), [])
            alone = 0.5 if len(texts[rollout.group]) == 1 else float("nan")
            values.append(sum(held) / len(held) if held else alone)
        watched = {"unread": unread / max(1, len(lists))}
        if first:
            watched["first_place"] = sum(first) / len(first)
        return Reasoned(torch.tensor(values), [reasons.get((each.group, each.text), "") for each in rollouts], watched)


def lists_of(texts: Sequence[str], at_a_time: int, seed: int) -> list[list[str]]:
    """Cut texts into shuffled lists of `at_a_time`, to be ranked.

    Each text is in at least one list and in no list twice; a single text gives no list. The last list is filled up with
    texts of the first one.
    """
    size = min(at_a_time, len(texts))
    if size < 2:
        return []
    shuffled = list(texts)
    Random(seed).shuffle(shuffled)
    lists = [shuffled[at : at + size] for at in range(0, len(shuffled), size)]
    lists[-1] += shuffled[: size - len(lists[-1])]
    return lists
