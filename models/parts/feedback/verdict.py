"""Verdict on an answer in words, with the true answer (Critique-GRPO, paper 11: indicative critiques).

    The solution is wrong, the answer is 42.

The whole answer is praised, or the whole answer is blamed.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.answers.exact import by_answer
from models.method.attempt import Attempt
from models.method.feedback import Feedback, Remark, RemarkSpan
from models.method.registry import part


@part("verdict")
class VerdictFeedback(Feedback):
    """Right or wrong, by the problem's answer."""

    needs_answers = True
    right: str = "The solution is right, the answer is {answer}."
    """Feedback on a right answer; `{answer}` is replaced by the problem's, if it occurs."""
    wrong: str = "The solution is wrong, the answer is {answer}."
    """Feedback on any other answer, including one that was cut."""

    def __call__(self, attempts: Sequence[Attempt]) -> list[Remark]:
        """Return feedback on each attempt, [attempts]."""
        return [
            Remark(
                (self.right if sound else self.wrong).replace("{answer}", attempt.problem.answer),
                (RemarkSpan(0, len(attempt.text), 1 if sound else -1),) if attempt.text else (),
            )
            for attempt, sound in zip(attempts, by_answer(attempts), strict=True)
        ]
