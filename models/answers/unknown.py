"""Share of a text that a tokenizer has no token for: it rises if texts change under a policy.

A token is unknown if it is the tokenizer's unknown token, a byte that a vocabulary falls back to (`<0x0A>`), or, in a
byte-level vocabulary, a part of a character that it never merged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_BROKEN = "\ufffd"
"""Decoded form of the bytes of a part of a character."""


def unknown_shares(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Compute the share of each row's tokens that are unknown, [rows]; 0 for an empty row."""
    unknown = {
        token
        for token in {token for row in rows for token in row if token >= 0}
        if stands_for_unknown(tokenizer, token)
    }
    return np.array([sum(token in unknown for token in row) / max(1, len(row)) for row in rows], dtype=np.float64)


def stands_for_unknown(tokenizer: PreTrainedTokenizerBase, token: int) -> bool:
    """Return whether a token only shows that the vocabulary has no whole token for the text."""
    if token == tokenizer.unk_token_id:
        return True
    written = str(tokenizer.convert_ids_to_tokens(token))
    if _BYTE.fullmatch(written):
        return True
    return _BROKEN in str(tokenizer.decode([token])) and _BROKEN not in written
