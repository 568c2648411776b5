"""Score of a completion by a generative judge, which writes a critique first (LLM-as-a-judge, arXiv 2306.05685).

    value = mean over the votes of (score - lowest) / (highest - lowest),   of those that can be read

The judge is the recipe's (`judge:`): a small model that was trained on `judging`, or a model of a real size behind an
address, with a template that describes the task in words. A verdict is parsed strictly
(`models.reward_models.judges.verdict`). A completion without a readable vote has no value: it gets `limits.value` and
counts in `rewards/LABEL/failures`. The share of answers without a verdict is `rewards/LABEL/unread`. This is the
paper's variant with single scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field

from models.base.bounds import Number
from models.base.errors import UserError
from models.method.judge import GenerativeJudge
from models.method.registry import part
from models.method.reward import JudgedReward, Limits, Reasoned
from models.method.rollout import Rollout
from models.reward_models.judges.question import SCORE, check_template, fill
from models.reward_models.judges.verdict import score

OF_JUDGES = Limits(seconds=600.0, retries=0)
"""Limits of rewards by judges. No retries: a judge repeats its answer, and requests to a server have retries."""
Votes = Annotated[int, Field(ge=1, le=64)]


@part("judge_score")
class JudgeScore(JudgedReward):
    """A score by the judge, with its critique as the reason."""

    template: str = SCORE
    """Template of the question, with the placeholders {prompt}, {completion} and, optionally, {principles}; the small
    judges of the data set `judging` were trained on the default."""
    principles: str = ""
    """Criterion of the score, for the template's placeholder {principles}."""
    lowest: Number = 0.0
    """Lowest score."""
    highest: Number = 9.0
    """Highest score."""
    votes: Votes = 1
    """Votes on each question."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lowest < self.highest:
            raise UserError(f"rewards.{self.label}: lowest is {self.lowest:g}, not below highest, {self.highest:g}")
        check_template(
            self.template, {"prompt", "completion"}, f"rewards.{self.label}.template", frozenset({"principles"})
        )

    def judged(self, judge: GenerativeJudge, rollouts: Sequence[Rollout], seed: int) -> Reasoned:
        """Return values in [0, 1], [completions]; NaN if no vote can be read.

        The reason is the first readable answer.
        """
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
