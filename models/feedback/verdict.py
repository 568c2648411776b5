"""Whether an answer is right, in words, with the true answer beside it (Critique-GRPO, paper 11: indicative critiques).

    The solution is wrong, the answer is 42.

All of an answer is praised, or all of it is blamed.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.loop.attempt import Attempt
from models.loop.feedback import Feedback, Remark, Span
from models.parts import part
from models.rewards.exact_answer import by_answer


@part("verdict")
class Verdict(Feedback):
    """Right or wrong, by the problem's answer."""

    needs_answers = True
    right: str = "The solution is right, the answer is {answer}."
    """What is said of a right answer; `{answer}` is replaced by the problem's, where it stands."""
    wrong: str = "The solution is wrong, the answer is {answer}."
    """What is said of any other, one that was cut too."""

    def __call__(self, attempts: Sequence[Attempt]) -> list[Remark]:
        """What is said of each attempt, [attempts]."""
        return [
            Remark(
                (self.right if sound else self.wrong).replace("{answer}", attempt.problem.answer),
                (Span(0, len(attempt.text), 1 if sound else -1),) if attempt.text else (),
            )
            for attempt, sound in zip(attempts, by_answer(attempts), strict=True)
        ]
