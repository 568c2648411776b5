"""Replacement of variants of a character by one: digits, signs, spaces, quotation marks, accents.

    ５ ٥ ५ 𝟓        5             ：，．（）         :,.()          ٫ ٬ ٪       . , %
    − – －          -             “ ” « »            "              é as e + ´  é as one character

Invisible marks (direction, joiners, soft hyphens) are dropped. A superscript is not changed: 5² is not 52.
"""

from __future__ import annotations

import unicodedata

LONGEST = 4096
"""Characters up to which accents are composed: a run of accents takes time quadratic in its length."""

_LAST_DIGIT = 0x1FBF9
_HIDDEN = "\u00ad\u061c\u200b\u200c\u200d\u200e\u200f\u2060\u2066\u2067\u2068\u2069\u202a\u202b\u202c\u202d\u202e\ufeff"
SIGNS: dict[int, str] = {
    **{ord(digit): str(int(digit)) for digit in map(chr, range(0x80, _LAST_DIGIT + 1)) if digit.isdecimal()},
    **{0xFF01 + offset: chr(0x21 + offset) for offset in range(94)},
    **dict.fromkeys(map(ord, _HIDDEN), ""),
    **dict.fromkeys(map(ord, "−‐‑‒–﹣－"), "-"),
    **dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f\u3000"), " "),
    **dict.fromkeys(map(ord, "‘’‚‛"), "'"),
    **dict.fromkeys(map(ord, "“”„‟«»"), '"'),
    **{ord(given): read for given, read in zip("⁄∕٫٬٪،؛؟。｡、﹐﹕", "//.,%,;?..,,:", strict=True)},
}
"""Character -> the text that replaces it."""
MARKERS = {ord(given): read for given, read in zip("＃：＝＜＞｛｝＼", "#:=<>{}\\", strict=True)}
"""Full-width characters that mark an answer, replaced one for one, so that positions in a text do not change."""


def plain_signs(text: str) -> str:
    """Replace the variants of each sign by one, drop invisible marks and compose accents."""
    return text if text.isascii() else composed(text.translate(SIGNS))


def composed(text: str) -> str:
    """Compose the accents of a text (NFC), unless it is longer than `LONGEST`."""
    return text if text.isascii() or len(text) > LONGEST else unicodedata.normalize("NFC", text)
