"""What a generative judge thinks of a completion: it writes a critique and ends with a score.

    value = mean over the votes of (score - lowest) / (highest - lowest),   of those that can be read

The judge is the recipe's (`judge:`): a small model that was trained here on `judging`, or one of a real size behind an
address, whose template says in its own words what is wanted. A verdict is read strictly (`models.judges.verdict`). A
completion none of whose votes can be read has no value: it counts as `limits.value` and in `rewards/LABEL/failures`;
the share of answers without a verdict is `rewards/LABEL/unread`. LLM-as-a-judge with single scores: arXiv 2306.05685.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field

from models.bounds import Number
from models.errors import UserError
from models.judges.judge import GenerativeJudge
from models.judges.question import SCORE, check_template, fill
from models.judges.verdict import score
from models.loop.limits import Limits
from models.loop.reward_forms import JudgedReward, Reasoned
from models.loop.rollout import Rollout
from models.parts import part

OF_JUDGES = Limits(seconds=600.0, retries=0)
"""A judge that is asked again says the same again, and a server is asked several times as it is."""
Votes = Annotated[int, Field(ge=1, le=64)]


@part("judge_score")
class JudgeScore(JudgedReward):
    """A score by the judge, its critique the reason."""

    template: str = SCORE
    """What the judge is asked, with the places {prompt}, {completion} and, where wanted, {principles}; the default is
    what the small judges of the data set `judging` were trained on."""
    principles: str = ""
    """What the score is to go by, where the template has a place for it."""
    lowest: Number = 0.0
    """Least score."""
    highest: Number = 9.0
    """Largest score."""
    votes: Votes = 1
    """Answers to each question."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lowest < self.highest:
            raise UserError(f"rewards.{self.label}: lowest is {self.lowest:g}, not below highest, {self.highest:g}")
        check_template(
            self.template, {"prompt", "completion"}, f"rewards.{self.label}.template", frozenset({"principles"})
        )

    def judged(self, judge: GenerativeJudge, rollouts: Sequence[Rollout], seed: int) -> Reasoned:
        """Values in [0, 1], [completions]; NaN where no vote can be read. The reason is the first that can."""
        questions = [
            fill(
                self.template,
                {"prompt": rollout.problem.prompt, "completion": rollout.text, "principles": self.principles},
            )
            for rollout in rollouts
        ]
        values, reasons, unread = [], [], 0
        for answers in judge.ask(questions, self.votes):
            scores = [(score(answer, self.lowest, self.highest), answer.text) for answer in answers]
            read = [(value, text) for value, text in scores if value is not None]
            unread += len(scores) - len(read)
            values.append(sum(value for value, _ in read) / len(read) if read else float("nan"))
            reasons.append(read[0][1] if read else "")
        share = unread / max(1, self.votes * len(rollouts))
        return Reasoned(torch.tensor(values), reasons, {"unread": share})
