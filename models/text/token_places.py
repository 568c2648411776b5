"""Where in a text its tokens stand, for texts that were sampled as tokens and never encoded."""

from __future__ import annotations

from collections.abc import Sequence

from models.text.encoding import Codec

REACH = 16
"""Characters behind the last known place that a token is looked for, beyond its own length."""


def token_places(codec: Codec, completions: Sequence[Sequence[int]], texts: Sequence[str]) -> list[list[range]]:
    """The characters of each token, [completions][tokens of it]; an empty range of one that has none of its own.

    A token's text by itself is found behind that of the token before it, which takes time linear in the text. An end
    token and a part of a character have no characters.

    Args:
        codec: of the tokens.
        completions: token ids, [completions] of [tokens of it].
        texts: what they say, [completions].
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
