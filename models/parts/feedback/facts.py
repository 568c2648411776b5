"""The facts of a description that are wrong, and those that are missing, by the problem's answer (papers 28 and 33).

    wrong red square topleft missing blue circle bottomright

A fact is a name of the description, as the reward `label_set` reads it. The feedback names the changes that
are needed, like a critic who sees the picture. The spans of wrong facts are criticised, those of right ones praised.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.answers.answers import expected_answer
from models.answers.listed import names_in, spans_of_names
from models.method.attempt import Attempt
from models.method.feedback import Feedback, Remark, RemarkSpan
from models.method.registry import part


@part("facts")
class FactsFeedback(Feedback):
    """Wrong and missing facts of a description."""

    needs_answers = True
    sound: str = "right"
    """Feedback on a description with all facts and no other."""
    wrong: str = "wrong {facts}"
    """Feedback on wrong facts; `{facts}` is replaced by them."""
    missing: str = "missing {facts}"
    """Feedback on missing facts, after that on wrong ones."""
    between: str = " ; "
    """Text between two facts."""

    def __call__(self, attempts: Sequence[Attempt]) -> list[Remark]:
        """Return feedback on each attempt, [attempts]."""
        return [self._remark(attempt) for attempt in attempts]

    def _remark(self, attempt: Attempt) -> Remark:
        expected, stated = names_in(expected_answer(attempt.problem.answer)), names_in(attempt.text)
        wrong = [name for name in dict.fromkeys(stated) if name not in expected]
        missing = [name for name in dict.fromkeys(expected) if name not in stated]
        parts = [(self.wrong, wrong), (self.missing, missing)]
        words = [text.replace("{facts}", self.between.join(names)) for text, names in parts if names]
        spans = [
            RemarkSpan(start, end, 1 if name in expected else -1) for start, end, name in spans_of_names(attempt.text)
        ]
        return Remark(" ".join(words) or self.sound, tuple(spans))
