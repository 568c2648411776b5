"""Rule-based reward: one if a completion names the right option or class, zero otherwise, and none for its form.

Multiple choice (AlphaMed, paper 243, arXiv 2505.17952): the stated answer is an option's label, as `B`, `(b)`, `option
B` or `B) 12`. Labels of classes (GenCLS++, paper 59, arXiv 2504.19898): the whole completion is the label. A completion
that names no option, or two, is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.answers.answers import expected_answer, extract_answer
from models.answers.exact import marked
from models.answers.marked_answers import without_reasoning
from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.text.signs import plain_signs

LONGEST = 400
"""Maximum length of a stated answer, characters; a longer one names no option."""


@part("choice")
class Choice(Reward):
    """Whether the option or class that a completion names is the problem's."""

    needs_answers = True
    verifies = True
    labels: tuple[str, ...] = tuple("ABCDEFGHIJ")
    """Labels of the options, or names of the classes, ignoring case."""
    reads: Literal["answer", "whole", "last"] = "answer"
    """Text that the label is read from: the answer that a completion states, in which the option's words may follow the
    label; the whole completion; or its last word, whether or not a working precedes it."""
    worth: dict[str, PositiveFloat] = field(default_factory=dict)
    """Value of a right answer by label, for classes that matter more or are rare (AlphaDrive, paper 99); 1 for all
    others."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = {_plain(label): label for label in self.labels}
        if "" in known or not known or len(known) < len(self.labels):
            raise UserError(f"rewards.{self.label}.labels: {', '.join(map(repr, self.labels))} are not different names")
        if unknown := [label for label in self.worth if _plain(label) not in known]:
            raise UserError(f"rewards.{self.label}.worth: {unknown[0]!r} is none of its labels")
        object.__setattr__(self, "_worth", {_plain(label): value for label, value in self.worth.items()})
        names = "|".join(re.escape(label) for label in sorted(known, key=len, reverse=True))
        head = re.compile(rf"(?:(?:option|choice) )?(?:[(\[](?P<inside>{names})[)\]]|(?P<bare>{names})(?=[).:,]|$))")
        other = re.compile(rf"(?:^|[\s(\[,])({names})[).:\]]|(?:^|[,/&]|\band|\bor) ?({names})$")
        object.__setattr__(self, "_known", known)
        object.__setattr__(self, "_head", head)
        object.__setattr__(self, "_other", other)

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the worth of the right label, or zero, for each completion, [completions]."""
        attempts = [Attempt.of(rollout) for rollout in rollouts]
        worth: dict[str, float] = vars(self)["_worth"]
        values = [worth.get(_plain(expected_answer(attempt.problem.answer)), 1.0) for attempt in attempts]
        return torch.tensor([value * right for value, right in zip(values, self.right(attempts), strict=True)])

    def stated(self, problem: Problem) -> str:
        """Return the label in the form in which a completion states it."""
        return marked(problem.answer) if self.reads == "answer" else expected_answer(problem.answer)

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended and names the option or class of its problem, [attempts]."""
        return [self._is_right(attempt) for attempt in attempts]

    def _is_right(self, attempt: Attempt) -> bool:
        named = self._named(attempt.text) if attempt.finished else None
        return named is not None and named == _plain(expected_answer(attempt.problem.answer))

    def _named(self, text: str) -> str | None:
        """Return the label that `text` names, in lower case; None if it names none, or more than one."""
        stated = extract_answer(text) if self.reads == "answer" else without_reasoning(text)
        if self.reads == "last":
            stated = " ".join((stated or "").split()[-1:])
        if stated is None or len(stated) > LONGEST:
            return None
        plain_text = _plain(stated)
        if self.reads != "answer" or plain_text in vars(self)["_known"]:
            return plain_text if plain_text in vars(self)["_known"] else None
        match = vars(self)["_head"].match(plain_text)
        if match is None:
            return None
        named = str(match["inside"] or match["bare"])
        rest = plain_text[match.end() :].lstrip(" ).:,]")
        others = {first or last for first, last in vars(self)["_other"].findall(rest)}
        return named if others <= {named} else None


def _plain(text: str) -> str:
    """Return the text in lower case, with single spaces, without emphasis, quotes or a final period."""
    return " ".join(plain_signs(text).split()).strip(" *_\"'`").rstrip(".").rstrip(" *_\"'`").casefold()
