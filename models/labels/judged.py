"""Labels of steps by a judge that is asked in several ways, and checked by the right answer (AURORA, paper 343).

    forward    share of yes over all wordings and votes, which do not know the answer              right above one half
    reverse    share of yes of a wording that knows the answer: does the step lead there?          right above one half
    y_k        1 or 0 where the two say the same, up to the first 0; else nobody knows

Wordings err in different places, so that their majority errs less than each of them; who knows where a solution must
end errs in other places still. Behind a wrong step nothing is labelled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.bounds import Share
from models.errors import UserError
from models.judges.question import PLAIN, REVERSE, STEP, check_template
from models.judges.steps import ask_of_steps, said_of_steps
from models.parts import part
from models.reward_model.solutions import Bench, Labels, Solution

_LEAST: frozenset[str] = frozenset({"prompt", "step"})


@part("judged")
class Judged(Labels):
    """What a judge says of each step in several wordings, where it says the same once it knows the answer."""

    needs_judge = True
    templates: Annotated[tuple[str, ...], Field(min_length=1)] = (STEP, PLAIN)
    """Wordings of the question, with the places {prompt}, {step} and, where wanted, {before}. The judge answers yes or
    no."""
    reverse: str = REVERSE
    """The question that knows the right {answer}, with the same places; empty: nobody checks."""
    votes: Annotated[int, Field(ge=1, le=64)] = 1
    """Answers to each question."""
    unread: Share | None = None
    """Label of a step about which no verdict can be read in any wording; null: none."""

    def __post_init__(self) -> None:
        where, optional = "reward_model.process.labels", frozenset({"before"})
        if not self.templates:
            raise UserError(f"{where}.templates: there is none")
        for number, template in enumerate(self.templates):
            check_template(template, {*_LEAST}, f"{where}.templates.{number}", optional)
        if self.reverse:
            check_template(self.reverse, {*_LEAST, "answer"}, f"{where}.reverse", optional)

    def label(self, bench: Bench, solutions: Sequence[Solution]) -> list[Tensor]:
        """One, zero or NaN for each step, [solutions] tensors of [steps]."""
        said: list[Mapping[str, str]] = []
        for each in solutions:
            steps = said_of_steps(bench.codec, each.problem.prompt, each.completion, each.ends, bench.marks)
            said += [places | {"answer": each.problem.answer} for places in steps]
        judge = bench.asked_judge()
        ways = [ask_of_steps(judge, template, said, self.votes) for template in self.templates]
        forward = [_majority(shares) for shares in zip(*ways, strict=True)]
        labels = forward
        if self.reverse:
            backward = [_majority([share]) for share in ask_of_steps(judge, self.reverse, said, self.votes)]
            labels = [ahead if ahead == back else math.nan for ahead, back in zip(forward, backward, strict=True)]
        if self.unread is not None:
            silent = [all(share is None for share in shares) for shares in zip(*ways, strict=True)]
            labels = [self.unread if nothing else label for nothing, label in zip(silent, labels, strict=True)]
        flat = iter(labels)
        return [torch.tensor(up_to_first_wrong([next(flat) for _ in each.ends])) for each in solutions]


def _majority(shares: Sequence[float | None]) -> float:
    """One where the mean of the shares that are known is above one half, zero where it is below, else NaN."""
    known = [share for share in shares if share is not None]
    mean = sum(known) / len(known) if known else 0.5
    return math.nan if mean == 0.5 else float(mean > 0.5)


def up_to_first_wrong(labels: Sequence[float]) -> list[float]:
    """The labels up to the first zero, NaN behind it, [steps]."""
    first = next((step for step, label in enumerate(labels) if label == 0.0), len(labels))
    return [label if step <= first else math.nan for step, label in enumerate(labels)]
