"""Which step of a working of the built-in arithmetic is the first that is wrong, and what it should be.

    Start with 7 . Add 5 . Take away 3 .      7 + 5 = 12 ; 12 - 3 = 8 ; #### 8
                                              -----+++++   ----------               12 - 3 = 9

A critic by program, as Text2Grad (paper 3) has them beside human ones: it works the problem itself. Steps before the
first that differs are praised, that one is blamed, and nothing is said of what follows from it. Where steps are missing
the next of them is named and no character is blamed. A prompt that is none of these problems gets no word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from models.datasets.arithmetic import Operation, Problem, work
from models.loop.attempt import Attempt
from models.loop.feedback import Feedback, Remark, Span
from models.parts import part

LONGEST = 100_000
"""Characters of an answer that are looked at."""
_STEP = re.compile(r"[^;]+")
_PROMPT = re.compile(r"Start with (-?\d{1,9}) \.((?: (?:Add|Take away) \d{1,9} \.| Double it \.){1,64})")
_OPERATION = re.compile(r"(Add|Take away) (\d{1,9})|Double it")


def read_problem(prompt: str) -> Problem | None:
    """The problem that a prompt asks; None: it is none of the built-in ones."""
    read = _PROMPT.fullmatch(prompt.strip()) if len(prompt) <= LONGEST else None
    if read is None:
        return None
    names = {"Add": "add", "Take away": "take_away"}
    operations = [
        Operation("double", 2) if not word else Operation(names[word], int(number))  # type: ignore[arg-type]
        for word, number in _OPERATION.findall(read[2])
    ]
    return Problem(int(read[1]), tuple(operations))


@part("working")
class Working(Feedback):
    """The first wrong step of a working, and how it goes."""

    sound: str = "Every step is right."
    """What is said of a working without a fault."""
    flawed: str = "Step {number} should be: {step}"
    """What is said of any other; `{number}` and `{step}` are replaced by the place of the first wrong step, from 1, and
    by what it should be."""

    def __call__(self, attempts: Sequence[Attempt]) -> list[Remark]:
        """What is said of each attempt, [attempts]."""
        return [self._remark(attempt) for attempt in attempts]

    def _remark(self, attempt: Attempt) -> Remark:
        problem = read_problem(attempt.problem.prompt)
        if problem is None:
            return Remark("")
        wanted = work(problem).text.split(" ; ")
        written = list(_STEP.finditer(attempt.text[:LONGEST]))
        same = 0
        while same < min(len(wanted), len(written)) and " ".join(written[same][0].split()) == wanted[same]:
            same += 1
        spans = [_span(step, 1) for step in written[:same]]
        if same == len(wanted) == len(written):
            return Remark(self.sound, tuple(spans))
        if same < len(written):
            spans.append(_span(written[same], -1))
        number, step = min(same, len(wanted) - 1), wanted[min(same, len(wanted) - 1)]
        text = self.flawed.replace("{number}", str(number + 1)).replace("{step}", step)
        return Remark(text, tuple(spans))


def _span(step: re.Match[str], sign: int) -> Span:
    return Span(step.start(), step.end(), 1 if sign > 0 else -1)
