"""The place of the final answer in a completion: the last plausible mark, of any kind.

    #### 42    \\boxed{42}    <answer>42</answer>    the answer is 42    answer: 42    A: 42    **Answer** and a line

Marks are compared by position. A later mark counts less than an earlier one only if it is likely something else:

    a heading       `#### Step 1` or `#### Explanation`: words after `####`, and text below it or a usual heading
    code            anything in a fenced block of code, such as the comment `#### load the file`
    a remark        `I hope this answer is helpful`, and any words after a phrase if there is also a number or a box

Such a mark is used only without a better one. Text in reasoning tags, such as `<think>`, is never used: up to a closing
tag without an opening one, as when the prompt opens it, and from an opening tag without a closing one.
Time is linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from models.text.sentences import sentence_end
from models.text.signs import MARKERS

_REMARK, _UNLIKELY, _WORDS, _PLAUSIBLE = range(4)
"""Kinds of marks by their likelihood of marking the answer, from the least likely."""

_REASONING = re.compile(
    r"<(/?)(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|scratchpad|analysis)>"
    r"|\[(/?)THINK\]|<\|(?:begin|(end))_of_thought\|>|◁(/?)think▷",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})", re.MULTILINE)
_HASHES = re.compile(r"#{4,}([^\n#]*(?:#(?!###)[^\n#]*)*)")
_BOX = re.compile(r"\\(?:boxed|fbox)[ \t]*(?:(\{)|[ \t]([^\s{}$\\.,;]+))")
_BRACE = re.compile(r"[{}]")
_TAG = re.compile(r"<(/?)(?:final[_-]?)?answer>", re.IGNORECASE)
_PHRASE = re.compile(
    r"\banswer[ \t*_\u200e\u200f]*(?:is\b|[:=])|答案[ \t*_]*(?:[是为為:=])"
    r"|^[ \t]*A:(?![^\n]*\n+[ \t]*B:)"
    r"|^[ \t]*[#*][#* \t_]*(?:(?:the|my|final|correct)[ \t]+)*(?:answer|result)[ \t*_#]*$",
    re.IGNORECASE | re.MULTILINE,
)
_BEFORE_PHRASE = re.compile(r"[\s:*_=\u200e\u200f]*")
_SAYS_WORDS = re.compile(r"[\s*_\"'“‘(]*(?:[0-9]{1,3}[.):][ \t]+)?(?:[^\W\d_]{2,}|[\u3040-\u9fff])")
_IS_HEADING = re.compile(
    r"[\s*_]*(?:[0-9]{1,3}[.):][ \t]+)?(?:step|part|case|explanation|check|verification|verify|conclusion|results?|"
    r"solution|answer|final|summary|notes?|reasoning|analysis|proof|example|working|method|approach|calculations?)\b",
    re.IGNORECASE,
)
_SAYS_NOTHING = re.compile(
    r"(?:(?:very|quite|also|now|indeed|not)[ \t]+)*(?:clear|clearly|helpful|useful|correct|right|wrong|incorrect|"
    r"reasonable|valid|given|shown|found|below|above|as follows|obtained|what|that|this|in)\b",
    re.IGNORECASE,
)
_LEADS_IN = re.compile(r"[\s*_]*(?:(?:the|my|final|correct|so|thus|hence|therefore)[\s,]+)*", re.IGNORECASE)
_TEXT = re.compile(r"\S")
_TEXT_BELOW = re.compile(r"\s*(?:</\w{1,20}>\s*|`{3,}\s*|~{3,}\s*)*\S")
_QUOTES = " \t>*-"
_LONGEST_LEAD = 80


class AnswerMark(NamedTuple):
    """A place that may state the final answer."""

    likely: int
    start: int
    """Beginning of the mark."""
    begin: int
    end: int
    """Beginning and end of the marked text."""


def final_mark(text: str) -> AnswerMark | None:
    """Return the mark of the final answer of a text; None without a mark.

    For a mark within another, as in `#### The answer is 4`, the start is that of the outer one.
    """
    marks = _marks(_seen(text))
    if len(marks) < 2:
        return marks[0] if marks else None
    best = max(marks)
    while inner := [each for each in marks if _leads_to(text, best, each)]:
        best = max(inner)
    return best._replace(start=min(each.start for each in marks if each is best or each.begin <= best.start < each.end))


def without_reasoning(text: str) -> str:
    """Return the text with blanks for the text in reasoning tags, at unchanged positions."""
    if "<" not in text and "[" not in text and "◁" not in text:
        return text
    hidden: list[tuple[int, int]] = []
    shown, opened, nested, seen = 0, -1, 0, False
    for tag in _REASONING.finditer(text):
        if not any(tag.groups()):
            if opened >= 0:
                nested += 1
            else:
                opened = tag.start()
        elif opened >= 0 or nested or not seen:
            hidden.append((opened if opened >= 0 else shown, tag.end()))
            nested = max(0, nested - 1) if opened < 0 else nested
            opened, shown = -1, tag.end()
        seen = True
    if opened >= 0:
        hidden.append((opened, len(text)))
    pieces, end = [], 0
    for start, stop in hidden:
        begins_line = not text[max(end, text.rfind("\n", end, start)) : start].strip()
        pieces += [text[end:start], ("\n" if begins_line else " ") * (stop - start)]
        end = stop
    return "".join([*pieces, text[end:]])


def _seen(text: str) -> str:
    """Return the text to search, at unchanged positions: without reasoning, and with one kind of each marking sign."""
    text = without_reasoning(text)
    return text if text.isascii() else text.translate(MARKERS)


def _marks(text: str) -> list[AnswerMark]:
    """Return all marks of a text without reasoning, unordered."""
    marks: list[AnswerMark] = []
    if "####" in text:
        marks += _hashes(text)
    if "\\boxed" in text or "\\fbox" in text:
        marks += _boxes(text)
    lower = text.lower()
    if "answer" in lower or "a:" in lower or "result" in lower or "答案" in lower:
        if "answer>" in lower:
            marks += _tags(text)
        marks += _phrases(text)
    if marks and ("```" in text or "~~~" in text):
        blocks = _blocks(text)
        marks = [
            mark._replace(likely=min(mark.likely, _UNLIKELY))
            if any(start <= mark.start < stop for start, stop in blocks)
            else mark
            for mark in marks
        ]
    return marks


def _hashes(text: str) -> list[AnswerMark]:
    marks: list[AnswerMark] = []
    end, begins = -1, 0
    for match in _HASHES.finditer(text):
        line = text.rfind("\n", max(0, end), match.start())
        first, (begin, end) = end < 0 or line >= 0, match.span(1)
        begins = line + 1 if first else begins
        stop = text.find("</", begin, end)
        stop = end if stop < 0 else stop
        if not _TEXT.search(text, begin, stop):
            while marks and marks[-1].start >= begins:  # a line that ends in a mark marks nothing
                marks.pop()
            continue
        likely = _PLAUSIBLE
        if _SAYS_WORDS.match(text, begin, stop):
            heads = first and not text[begins : match.start()].strip(_QUOTES) and _IS_HEADING.match(text, begin, stop)
            if heads or _TEXT_BELOW.match(text, stop):
                likely = _UNLIKELY
        marks.append(AnswerMark(likely, match.start(), begin, stop))
    return marks


def _boxes(text: str) -> list[AnswerMark]:
    boxes = list(_BOX.finditer(text))
    closed: dict[int, int] = {}
    opened: list[int] = []
    for brace in _BRACE.finditer(text, boxes[0].start()) if boxes else ():
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            closed[opened.pop()] = brace.start()
    spans = [(box.start(), *(box.span(2) if box[2] else (box.end(), closed.get(box.end() - 1, -1)))) for box in boxes]
    marks = [AnswerMark(_PLAUSIBLE, start, begin, end) for start, begin, end in spans if _TEXT.search(text, begin, end)]
    if spans and spans[-1][2] < 0:  # a last box that is never closed marks nothing, and no earlier mark is used instead
        marks.append(AnswerMark(_PLAUSIBLE, spans[-1][0], spans[-1][1], spans[-1][1]))
    return marks


def _tags(text: str) -> list[AnswerMark]:
    marks = []
    tags = list(_TAG.finditer(text))
    for number, tag in enumerate(tags):
        following = tags[number + 1] if number + 1 < len(tags) else None
        begin, end = tag.end(), len(text) if following is None else following.start()
        if tag[1] or not _TEXT.search(text, begin, end):
            continue
        closed = following is not None and following[1]
        words = not closed and _SAYS_WORDS.match(text, begin, end)
        marks.append(AnswerMark(_WORDS if words else _PLAUSIBLE, tag.start(), begin, end))
    return marks


def _phrases(text: str) -> list[AnswerMark]:
    marks = []
    phrases = list(_PHRASE.finditer(text))
    for number, phrase in enumerate(phrases):
        limit = phrases[number + 1].start() if number + 1 < len(phrases) else len(text)
        lead = _BEFORE_PHRASE.match(text, phrase.end(), limit)
        begin = phrase.end() if lead is None else lead.end()
        end = sentence_end(text, begin, limit)
        closing = text.find("</", begin, end)
        end = end if closing < 0 else closing
        if not _TEXT.search(text, begin, end):
            continue
        words = _SAYS_WORDS.match(text, begin, end)
        if words and "result" in phrase[0].lower():
            continue
        likely = _PLAUSIBLE if not words else _REMARK if _SAYS_NOTHING.match(text, begin, end) else _WORDS
        marks.append(AnswerMark(likely, phrase.start(), begin, end))
    return marks


def _leads_to(text: str, outer: AnswerMark, inner: AnswerMark) -> bool:
    """Return whether the text of a mark is another mark, as `the answer is Paris` after `####`."""
    inside = outer.begin <= inner.start < min(outer.end, outer.begin + _LONGEST_LEAD) and inner.likely >= _WORDS
    return inside and _LEADS_IN.fullmatch(text, outer.begin, inner.start) is not None


def _blocks(text: str) -> list[tuple[int, int]]:
    """Return the closed fenced blocks of code."""
    blocks, opened = [], None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[1].startswith(opened[1]):
            blocks.append((opened.start(), fence.end()))
            opened = None
    return blocks
