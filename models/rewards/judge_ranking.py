"""Completions of a prompt ranked together by a judge under a principle (RewardAnything, paper 53).

    value_i = mean over the lists that hold i of (L - place of i) / (L - 1),   1 for the best of L, 0 for the last

A judge that is told what counts ranks what it sees in one question, and the principle is a text of the recipe: another
text is another reward, by the same judge. The votes come by twos: the first of two shuffles a group anew and cuts it
into lists of `at_a_time`, the second reads the same lists from the end, so that neither the place in a list nor its
company rules. What the first place wins beyond its share is watched (`rewards/LABEL/first_place`: the mean value of
what stands first, one half without bias). Equal texts stand in a list once and share their value. A completion that no
list with a verdict holds has no value.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated

import torch
from pydantic import Field

from models.judges.judge import GenerativeJudge, vote_seed
from models.judges.question import RANK, check_template, fill, numbered
from models.judges.verdict import ranking
from models.loop.limits import Limits
from models.loop.reward_forms import JudgedReward, Reasoned
from models.loop.rollout import Rollout
from models.parts import part
from models.rewards.judge_score import OF_JUDGES, Votes


@part("judge_ranking")
class JudgeRanking(JudgedReward):
    """Place in the judge's rankings."""

    principles: str = "correct"
    """What is to be better, in words; the small judges of the data set `comparing` know correct and concise."""
    template: str = RANK
    """What the judge is asked, with the places {prompt}, {completions} and {principles}. It answers with the numbers of
    the completions from the best on, such as 2 > 1 > 3."""
    at_a_time: Annotated[int, Field(ge=2, le=64)] = 3
    """Completions of a list, where a group has so many different ones."""
    votes: Votes = 2
    """Rankings that hold a completion, at least. With an even number every list is read in both orders."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        needed = {"prompt", "completions", *(["principles"] if self.principles else [])}
        check_template(self.template, needed, f"rewards.{self.label}.template")

    def judged(self, judge: GenerativeJudge, rollouts: Sequence[Rollout], seed: int) -> Reasoned:
        """Values in [0, 1], [completions]; NaN where no ranking can be read, 1/2 of one that has no other beside it."""
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
    """Texts in lists of `at_a_time`, shuffled: each text in one of them at least, none in one twice; none of a text
    that is alone. The last list is filled up with texts that others hold."""
    size = min(at_a_time, len(texts))
    if size < 2:
        return []
    shuffled = list(texts)
    Random(seed).shuffle(shuffled)
    lists = [shuffled[at : at + size] for at in range(0, len(shuffled), size)]
    lists[-1] += shuffled[: size - len(lists[-1])]
    return lists
