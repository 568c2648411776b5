"""Labels of steps by a judge that answers several wordings and is checked with the right answer (AURORA, paper 343).

    forward    share of yes over all wordings and votes, without the answer                        right above one half
    reverse    share of yes of a wording with the answer: does the step lead there?                right above one half
    y_k        1 or 0 if the two agree, up to the first 0; else unknown

Wordings err in different places, so the majority errs less than each of them. A judge that knows the right answer errs
in other places again. No step after a wrong one is labelled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.base.bounds import Share
from models.base.errors import UserError
from models.method.registry import part
from models.reward_models.judges.question import PLAIN, REVERSE, STEP, check_template
from models.reward_models.judges.steps import ask_of_steps, step_placeholders
from models.reward_models.solutions import LabellingTools, Labels, Solution

_LEAST: frozenset[str] = frozenset({"prompt", "step"})


@part("judged")
class JudgedLabels(Labels):
    """A judge's verdict on each step in several wordings, if the judge agrees with it given the answer."""

    needs_judge = True
    templates: Annotated[tuple[str, ...], Field(min_length=1)] = (STEP, PLAIN)
    """Wordings of the question, with the placeholders {prompt}, {step} and, optionally, {before}. The judge answers yes
    or no."""
    reverse: str = REVERSE
    """Question that contains the right {answer}, with the same placeholders; empty: not checked."""
    votes: Annotated[int, Field(ge=1, le=64)] = 1
    """Answers per question."""
    unread: Share | None = None
    """Label of a step without a readable verdict in any wording; null: none."""

    def __post_init__(self) -> None:
        where, optional = "reward_model.process.labels", frozenset({"before"})
        if not self.templates:
            raise UserError(f"{where}.templates: there is none")
        for number, template in enumerate(self.templates):
            check_template(template, {*_LEAST}, f"{where}.templates.{number}", optional)
        if self.reverse:
            check_template(self.reverse, {*_LEAST, "answer"}, f"{where}.reverse", optional)

    def label(self, bench: LabellingTools, solutions: Sequence[Solution]) -> list[Tensor]:
        """Return one, zero, `unread` or NaN for each step, [solutions] tensors of [steps]."""
        placeholders: list[Mapping[str, str]] = []
        for each in solutions:
            steps = step_placeholders(bench.codec, each.problem.prompt, each.completion, each.ends, bench.marks)
            placeholders += [values | {"answer": each.problem.answer} for values in steps]
        judge = bench.required_judge()
        shares_by_template = [ask_of_steps(judge, template, placeholders, self.votes) for template in self.templates]
        forward = [_majority(shares) for shares in zip(*shares_by_template, strict=True)]
        labels = forward
        if self.reverse:
            backward = [_majority([share]) for share in ask_of_steps(judge, self.reverse, placeholders, self.votes)]
            labels = [ahead if ahead == back else math.nan for ahead, back in zip(forward, backward, strict=True)]
        if self.unread is not None:
            unreadable = [all(share is None for share in shares) for shares in zip(*shares_by_template, strict=True)]
            labels = [
                self.unread if is_unreadable else label for is_unreadable, label in zip(unreadable, labels, strict=True)
            ]
        flat = iter(labels)
        return [torch.tensor(up_to_first_wrong([next(flat) for _ in each.ends])) for each in solutions]


def _majority(shares: Sequence[float | None]) -> float:
    """Return one if the mean of the known shares is above one half, zero if it is below, else NaN."""
    known = [share for share in shares if share is not None]
    mean = sum(known) / len(known) if known else 0.5
    return math.nan if mean == 0.5 else float(mean > 0.5)


def up_to_first_wrong(labels: Sequence[float]) -> list[float]:
    """Keep the labels up to the first zero; NaN after it, [steps]."""
    first = next((step for step, label in enumerate(labels) if label == 0.0), len(labels))
    return [label if step <= first else math.nan for step, label in enumerate(labels)]
