"""Positions of tokens in a text, for texts that were sampled as tokens and never encoded."""

from __future__ import annotations

from collections.abc import Sequence

from models.text.encoding import Codec

REACH = 16
"""Characters after the last known position in which a token is searched, in addition to its own length."""


def token_places(codec: Codec, completions: Sequence[Sequence[int]], texts: Sequence[str]) -> list[list[range]]:
    """Return the range of characters of each token in its text, [completions][tokens of it]; empty if it has none.

    The text of a single token is searched after that of the token before it, which takes time linear in the text. An
    end token and a part of a character have no characters.

    Args:
        codec: codec of the tokens.
        completions: token ids, [completions] of [tokens of it].
        texts: texts of the completions, [completions].
    """
    known = sorted({token for ids in completions for token in ids})
    pieces = dict(zip(known, (text.strip() for text in codec.text([[token] for token in known])), strict=True))
    placed = []
    for ids, text in zip(completions, texts, strict=True):
        at, row = 0, []
        for token in ids:
            piece = pieces[token]
            place = text.find(piece, at, at + len(piece) + REACH) if piece else -1
            start = at if place < 0 else place
            at = start + (len(piece) if place >= 0 else 0)
            row.append(range(start, at))
        placed.append(row)
    return placed
