"""What a judge's answer says, read strictly: a critique, and behind it the verdict as a final answer is stated.

    7 + 5 = 12 , 12 12 right ; 12 - 3 = 9 , 8 9 wrong ; #### 1        the score 1
    ... Therefore the better answer is \\boxed{first}    a choice

The verdict is read as the answer of a solution is (`models.text.answers`: `#### V`, a box, `the answer is V`): the last
plausible mark counts, so a critique may quote how a completion states its answer. A score is a plain decimal number
within its bounds, a choice one of the words that were offered; anything else, and an answer that was cut, is no
verdict. Never raises, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from models.judges.judge import Answer
from models.text.answers import extract_answer
from models.text.signs import plain_signs

YES, NO = "yes", "no"
"""Words of a verdict on whether something is so."""
RIGHT, WRONG = ("right", "correct"), ("wrong", "incorrect")
"""Last words of what is said of a step."""
ITEM = 500
"""Most characters of an item of a list."""

_NUMBER = re.compile(r"[-+]?[0-9]{1,9}(?:\.[0-9]{1,9})?")
_SAID = re.compile(r"[;\n]")
_RANK = re.compile(r"\s*(?:>|,|\s)\s*")


def verdict(answer: Answer) -> str | None:
    """The verdict as it is written, or None where there is none."""
    if not answer.finished:
        return None
    stated = extract_answer(answer.text)
    return None if stated is None else plain_signs(stated)


def score(answer: Answer, lowest: float, highest: float) -> float | None:
    """The score as a share of the range, in [0, 1]; None where there is none."""
    said = verdict(answer)
    if said is None or not _NUMBER.fullmatch(said):
        return None
    value = float(said)
    return (value - lowest) / (highest - lowest) if lowest <= value <= highest else None


def choice(answer: Answer, words: Sequence[str]) -> int | None:
    """Which of `words` is chosen, without regard to case; None where none is."""
    said = verdict(answer)
    plain = None if said is None else said.casefold()
    return next((place for place, word in enumerate(words) if word.casefold() == plain), None)


def judged_steps(answer: Answer) -> list[bool]:
    """Whether steps are right, as far as a critique says so, in their order, [judged]: between semicolons or line
    breaks, whatever ends with one of the words for it. The steps behind these are not judged; an answer that was cut
    judges none."""
    if not answer.finished:
        return []
    said = (part.split()[-1:] for part in _SAID.split(answer.text))
    words = [word.strip(".,:!*").casefold() for last in said for word in last]
    return [word in RIGHT for word in words if word in RIGHT + WRONG]


def holds(answers: Sequence[Answer]) -> float | None:
    """Share of the answers that say yes, of those that say yes or no; None where none does."""
    chosen = [place for answer in answers if (place := choice(answer, (YES, NO))) is not None]
    return chosen.count(0) / len(chosen) if chosen else None


def listed(answer: Answer, most: int) -> list[str] | None:
    """The items of a list, distinct, at most `most`; None where it is none.

    Written in a line with semicolons between: `#### it is polite ; it names a date`.
    """
    said = verdict(answer)
    listed = list(dict.fromkeys(item for part in (said or "").split(";") if (item := part.strip())))
    return listed[:most] if listed and max(map(len, listed)) <= ITEM else None


def ranking(answer: Answer, count: int) -> list[int] | None:
    """Places of `count` completions from the best on, from 0; None where it is no ranking of them all.

    Written as their numbers from 1, in order: `2 1 3`, `2 > 1 > 3` or `2, 1, 3`.
    """
    said = verdict(answer)
    if said is None or len(said) > 16 * count:
        return None
    numbers = [word for word in _RANK.split(said) if word]
    if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in numbers):
        return None
    places = [int(word) - 1 for word in numbers]
    return places if sorted(places) == list(range(count)) else None
