"""The first wrong step in a working of the built-in arithmetic, and the right one.

    Start with 7 . Add 5 . Take away 3 .      7 + 5 = 12 ; 12 - 3 = 8 ; #### 8
                                              -----+++++   ----------               12 - 3 = 9

A critic by program, as Text2Grad (paper 3) has them in addition to human ones: it works the problem itself. Steps
before the first difference are praised, that one is blamed, and the steps after it get no feedback. If steps are
missing, the next of them is named and no character is blamed. A prompt that is not one of these problems gets no words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from models.datasets.arithmetic import ArithmeticProblem, Operation, work
from models.method.attempt import Attempt
from models.method.feedback import Feedback, Remark, RemarkSpan
from models.method.registry import part

LONGEST = 100_000
"""Characters of an answer that are read."""
_STEP = re.compile(r"[^;]+")
_PROMPT = re.compile(r"Start with (-?\d{1,9}) \.((?: (?:Add|Take away) \d{1,9} \.| Double it \.){1,64})")
_OPERATION = re.compile(r"(Add|Take away) (\d{1,9})|Double it")


def read_problem(prompt: str) -> ArithmeticProblem | None:
    """Parse the problem in a prompt; None: it is not one of the built-in ones."""
    read = _PROMPT.fullmatch(prompt.strip()) if len(prompt) <= LONGEST else None
    if read is None:
        return None
    names = {"Add": "add", "Take away": "take_away"}
    operations = [
        Operation("double", 2) if not word else Operation(names[word], int(number))  # type: ignore[arg-type]
        for word, number in _OPERATION.findall(read[2])
    ]
    return ArithmeticProblem(int(read[1]), tuple(operations))


@part("working")
class WorkingFeedback(Feedback):
    """The first wrong step of a working, and the right one."""

    sound: str = "Every step is right."
    """Feedback on a working without a fault."""
    flawed: str = "Step {number} should be: {step}"
    """Feedback on any other; `{number}` and `{step}` are replaced by the place of the first wrong step, from 1, and by
    the right step."""

    def __call__(self, attempts: Sequence[Attempt]) -> list[Remark]:
        """Return feedback on each attempt, [attempts]."""
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


def _span(step: re.Match[str], sign: int) -> RemarkSpan:
    return RemarkSpan(step.start(), step.end(), 1 if sign > 0 else -1)
