"""SQL queries as text: extraction of the query from a completion, and its tokens.

Queries need not be valid: text that cannot be parsed has tokens too, and can therefore be close to another query.
Every function accepts any text, never raises on it, and takes time linear in its length.
"""

from __future__ import annotations

import re
from itertools import pairwise

from models.answers.marked_answers import without_reasoning

_BLOCK = re.compile(r"^[ \t]*```[ \t]*(?:(?:sql|sqlite)[ \t]*)?\r?\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE | re.I)
_TAG = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL | re.IGNORECASE)
_MARKED = re.compile(r"####\s*(?=(?:select|with|values)\b)", re.IGNORECASE)
_TOKEN = re.compile(
    r"--[^\n]*"  # a comment
    r"|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z)"
    r"|'(?:[^']|'')*(?:'|\Z)"  # a string
    r'|"(?P<double>[^"]*)(?:"|\Z)|`(?P<back>[^`]*)(?:`|\Z)|\[(?P<square>[^\]]*)(?:\]|\Z)'  # a quoted name
    r"|[0-9]+(?:\.[0-9]+)?|\w+|<>|<=|>=|!=|==|\|\||[^\s\w]"
)
_SAME = {"<>": "!=", "==": "="}


def written_query(completion: str) -> str:
    """Return the query of a completion, without the semicolon at its end.

    It is searched within the last `<answer>`: the last block of code there, else the text after the last `####` that a
    query follows, or after the last one, else all of it. Text in reasoning tags is not read.
    """
    text = completion = without_reasoning(completion)
    for match in _TAG.finditer(completion):
        text = match[1]
    blocks: list[str] = _BLOCK.findall(text)
    if blocks:
        text = blocks[-1]
    elif "####" in text:
        marked = max((match.end() for match in _MARKED.finditer(text)), default=text.rfind("####") + len("####"))
        text = text[marked:].partition("####")[0]
    return text.strip().rstrip("; \t\r\n")


def tokens_of(query: str) -> list[str]:
    """Return the tokens of a query in order: lower case except within strings, no comments, no quotes around names."""
    tokens = []
    for match in _TOKEN.finditer(query):
        sign = match[0]
        if sign.startswith(("--", "/*")):
            continue
        if sign.startswith("'"):
            tokens.append(sign)
            continue
        name = next((part for part in match.groups() if part is not None), sign)
        tokens.append(_SAME.get(name, name).casefold())
    return tokens


def orders(tokens: list[str]) -> bool:
    """Return whether a query sets the order of its rows, outside of all brackets."""
    depth = 0
    for sign, following in pairwise(tokens):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if depth == 0 and (sign, following) == ("order", "by"):
            return True
    return False
