"""Strict parsing of a judge's answer: a critique, followed by the verdict in the form of a final answer.

    7 + 5 = 12 , 12 12 right ; 12 - 3 = 9 , 8 9 wrong ; #### 1        the score 1
    ... Therefore the better answer is \\boxed{first}    a choice

The verdict is read like the answer of a solution (`models.answers.answers`: `#### V`, a box, `the answer is V`): the
last plausible mark counts, so a critique may quote how a completion states its answer. A score is a plain decimal
number within its bounds, a choice is one of the offered words. Anything else, and an answer that was cut, has no
verdict. The functions never raise, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from models.answers.answers import extract_answer
from models.method.judge import Answer
from models.text.signs import plain_signs

YES, NO = "yes", "no"
"""Verdicts of a yes-or-no question."""
RIGHT, WRONG = ("right", "correct"), ("wrong", "incorrect")
"""Last words of a judgement of a step."""
ITEM = 500
"""Maximum length of an item of a list, characters."""

_NUMBER = re.compile(r"[-+]?[0-9]{1,9}(?:\.[0-9]{1,9})?")
_SEPARATOR = re.compile(r"[;\n]")
_RANK = re.compile(r"\s*(?:>|,|\s)\s*")


def verdict(answer: Answer) -> str | None:
    """Return the verdict as written, or None if there is none."""
    if not answer.finished:
        return None
    stated = extract_answer(answer.text)
    return None if stated is None else plain_signs(stated)


def score(answer: Answer, lowest: float, highest: float) -> float | None:
    """Return the score as a share of the range, in [0, 1]; None if there is none."""
    stated = verdict(answer)
    if stated is None or not _NUMBER.fullmatch(stated):
        return None
    value = float(stated)
    return (value - lowest) / (highest - lowest) if lowest <= value <= highest else None


def choice(answer: Answer, words: Sequence[str]) -> int | None:
    """Return the index of the chosen one of `words`, ignoring case; None if none is chosen."""
    stated = verdict(answer)
    plain = None if stated is None else stated.casefold()
    return next((place for place, word in enumerate(words) if word.casefold() == plain), None)


def judged_steps(answer: Answer) -> list[bool]:
    """Return whether each judged step is right, in order, [judged].

    A judgement is a part between semicolons or line breaks that ends with one of the words for it. Later steps are not
    judged; an answer that was cut judges none.
    """
    if not answer.finished:
        return []
    last_words = (part.split()[-1:] for part in _SEPARATOR.split(answer.text))
    words = [word.strip(".,:!*").casefold() for last in last_words for word in last]
    return [word in RIGHT for word in words if word in RIGHT + WRONG]


def holds(answers: Sequence[Answer]) -> float | None:
    """Return the share of yes among the readable answers to a yes-or-no question; None if none is readable."""
    chosen = [place for answer in answers if (place := choice(answer, (YES, NO))) is not None]
    return chosen.count(0) / len(chosen) if chosen else None


def listed(answer: Answer, most: int) -> list[str] | None:
    """Return the distinct items of a list, at most `most`; None if there are none, or if one is too long.

    They are written on one line with semicolons between: `#### it is polite ; it names a date`.
    """
    stated = verdict(answer)
    items = list(dict.fromkeys(item for part in (stated or "").split(";") if (item := part.strip())))
    return items[:most] if items and max(map(len, items)) <= ITEM else None


def ranking(answer: Answer, count: int) -> list[int] | None:
    """Return the indices of `count` completions from best to worst, from 0; None unless the verdict ranks all.

    They are written as their numbers from 1, in order: `2 1 3`, `2 > 1 > 3` or `2, 1, 3`.
    """
    stated = verdict(answer)
    if stated is None or len(stated) > 16 * count:
        return None
    numbers = [word for word in _RANK.split(stated) if word]
    if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in numbers):
        return None
    places = [int(word) - 1 for word in numbers]
    return places if sorted(places) == list(range(count)) else None
