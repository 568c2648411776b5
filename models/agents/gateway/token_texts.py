"""Texts of a completion's tokens, one by one, and the token in which a stop text is completed.

The texts of all tokens together are the completion's text. A character of several tokens belongs to the last of them,
so each text is valid UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from models.text.encoding import Codec

_BROKEN = "\N{REPLACEMENT CHARACTER}"
"""Character that a tokenizer writes for an incomplete one."""


def token_texts(codec: Codec, tokens: Sequence[int]) -> list[str]:
    """Return the text of each token, [tokens]; together they are the completion's text (`Codec.text`)."""
    (whole,) = codec.text([tokens])
    texts = _by_pairs(codec, tokens)
    if _BROKEN in whole or "".join(texts) != whole:
        texts = _by_windows(codec, tokens)
        joined = "".join(texts)
        if not whole.startswith(joined):  # a decoder that rewrites earlier text
            texts = _by_prefixes(codec, tokens, whole)
            joined = "".join(texts)
        texts[-1] += whole[len(joined) :]
    return texts


def stop_ids(codec: Codec, stops: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of all tokens that contain a stop text, at which an engine can end a completion early."""
    if not stops:
        return ()
    return tuple(token for token, text in enumerate(codec.token_texts) if any(stop in text for stop in stops))


def cut_at_stop(texts: Sequence[str], stops: Sequence[str]) -> tuple[int, int] | None:
    """Return how much of a completion remains if it ends at the first stop text.

    Args:
        texts: texts of the tokens, see `token_texts`.
        stops: texts that end it; the first that is completed counts.

    Returns:
        Number of tokens, up to and including the one that completes the stop text, and length of the text before it.
        None if no stop text occurs.
    """
    whole = "".join(texts)
    places = [(at, at + len(stop)) for stop in stops if (at := whole.find(stop)) >= 0]
    if not places:
        return None
    first_end = min(end for _, end in places)
    ends = list(accumulate(map(len, texts)))
    count = next(number for number, end in enumerate(ends, start=1) if end >= first_end)
    return count, min(at for at, end in places if end <= ends[count - 1])


def between(texts: Sequence[str], start: int, stop: int) -> list[str]:
    """Return the parts of a text from `start` to `stop` by token, up to the token in which they end."""
    parts, at = [], 0
    for text in texts:
        if at >= stop:
            break
        parts.append(text[max(0, start - at) : max(0, stop - at)])
        at += len(text)
    return parts


def _by_pairs(codec: Codec, tokens: Sequence[int]) -> list[str]:
    """Return each token's text after the token before it; right if no character has several tokens."""
    pairs = codec.text([tokens[max(0, at - 1) : at + 1] for at in range(len(tokens))])
    before = codec.text([[], *([token] for token in tokens[:-1])])
    return [pair[len(text) :] for pair, text in zip(pairs, before, strict=True)]


def _by_windows(codec: Codec, tokens: Sequence[int]) -> list[str]:
    """Return the text that each token adds to the tokens since the last complete character."""
    texts, first, written = [], 0, 0
    for at in range(len(tokens)):
        before, now = codec.text([tokens[first:written], tokens[first : at + 1]])
        if len(now) > len(before) and not now.endswith(_BROKEN):
            texts.append(now[len(before) :])
            first, written = written, at + 1
        else:
            texts.append("")
    return texts


def _by_prefixes(codec: Codec, tokens: Sequence[int], whole: str) -> list[str]:
    """Return what each token adds to the text of the tokens before it, as far as later tokens do not change it."""
    texts, sent = [], 0
    for at in range(len(tokens)):
        (now,) = codec.text([tokens[: at + 1]])
        length = len(now) if whole.startswith(now) else sent
        texts.append(whole[sent : max(sent, length)])
        sent = max(sent, length)
    return texts
