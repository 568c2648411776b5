"""Detection of the ends of sentences, which are not the periods of names or abbreviations.

Dr. Smith    the U.S. Navy    Harry S. Truman    J. R. R. Tolkien    No. 5    Acme Inc. of Ohio      no end
B. Because it is larger    the U.S. It is    4.2. So                                                 an end
"""

from __future__ import annotations

import re

_END = re.compile(r"[.!?;](?=\s|$)|[。｡！？；]|\n")
_FULL_STOP = re.compile(r"(?<=[^\s.])[.!?](?=\s|$)|[。！？]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_NEXT = re.compile(r"[ \t]+([^\W_]+)(\.?)")
_TITLES = frozenset(
    "Dr dr Mr mr Mrs mrs Ms ms Prof prof Rev Hon Gen Col Capt Lt Sgt Maj Gov Sen Rep Pres St Ste Mt Ft".split()
)
_CLOSING = frozenset("Jr Sr Inc Ltd Co Corp Bros vs approx ca".split())
_NUMBERED = frozenset("No no Nos Fig Eq Vol Ch Sec p pp".split())
_ACRONYM = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_BEGIN = frozenset(
    "a an the it this that these those there here he she they we you i in on at of as so if then thus hence therefore "
    "because since which who but however note let thank thanks hope is are was were has have can will my our".split()
)
"""Words that begin a sentence, or a remark, more often than they belong to a name."""
_LABELS = frozenset("option choice answer".split())
_LAST_LABEL = "J"
_LOOK_BACK = 40


def sentence_end(text: str, begin: int, end: int) -> int:
    """Return the index at which the sentence that begins at `begin` ends, at most `end`."""
    for match in _END.finditer(text, begin, end):
        if match[0] != "." or not _belongs(text, begin, match.start(), end):
            return match.start()
    return end


def is_sentence(text: str) -> bool:
    """Return whether a text is at least one whole sentence, and not a name, number or expression."""
    for match in _FULL_STOP.finditer(text):
        before = text[: match.start()]
        if match[0] == "." and _belongs(text, 0, match.start(), len(text)):
            continue
        if len(before.split()) >= 4 and len(_WORD.findall(before)) >= 3:
            return True
    return False


def _belongs(text: str, begin: int, period: int, end: int) -> bool:
    """Return whether the period at a place belongs to the word before it, and the sentence continues."""
    words = text[max(begin, period - _LOOK_BACK) : period].split()
    following = _NEXT.match(text, period + 1, end)
    if not words or following is None:
        return False
    word, next_word = words[-1].lstrip("(\"'*"), following[1]
    if word in _NUMBERED:
        return next_word[0].isdecimal()
    if word in _TITLES:
        return True
    if next_word.casefold() in _BEGIN:
        return False
    if word in _CLOSING or _ACRONYM.fullmatch(word):
        return True
    return len(word) == 1 and word.isupper() and next_word[0].isupper() and _is_initial(words[:-1], word, following)


def _is_initial(before: list[str], letter: str, following: re.Match[str]) -> bool:
    """Return whether a capital letter is part of a name, and not the label of an option."""
    if len(following[1]) == 1 and following[2]:
        return True
    if not before:
        return letter > _LAST_LABEL
    return before[-1][0].isupper() and before[-1].casefold() not in _LABELS
