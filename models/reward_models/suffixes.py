"""Search for a suffix that raises the score of wrong answers, which a policy could learn to append to exploit it.

    suffix* = argmax over L ids of  mean over wrong answers of  score(answer + suffix) - score(answer)

One suffix for all answers is searched by coordinate ascent: position by position the best of some candidate ids, over
all positions once or more (like universal triggers, Wallace et al. 2019, but from scores alone, without gradients). It
is searched on one half of the answers and measured on the other, so that the reported gain is not overfitted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from torch import Tensor

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.text.encoding import Codec

Score = Callable[[Sequences], Tensor]
_STATES = re.compile(r"[0-9#\\\ufffd]|answer|box|A:", re.IGNORECASE)


@dataclass(frozen=True)
class Suffix:
    """The best suffix found, and its effect on answers that were not used in the search."""

    ids: tuple[int, ...]
    gain: float
    """Mean of score with the suffix minus score without it, in the unit of the scores."""
    fooled: float
    """Share of the answers that score above the right answer to the same prompt only with the suffix."""


def words_without_answers(codec: Codec) -> list[int]:
    """Return the ids of tokens that do not change the stated answer if they are appended to it.

    Their text contains no digit and no marker of an answer.
    """
    ids = sorted(set(codec.tokenizer.get_vocab().values()) - set(codec.tokenizer.all_special_ids))
    texts = codec.text([[number] for number in ids])
    return [number for number, text in zip(ids, texts, strict=True) if text.strip() and not _STATES.search(text)]


def search_suffix(
    score: Score,
    prompts: Sequence[Sequence[int]],
    wrong: Sequence[Sequence[int]],
    right: Sequence[Sequence[int]],
    *,
    candidates: Sequence[int],
    length: int,
    end: int,
    tried: int,
    passes: int = 1,
    seed: int = 0,
) -> Suffix:
    """Search a suffix of `length` ids.

    Args:
        score: function that scores prompts with completions, [completions].
        prompts: ids, [answers].
        wrong: a wrong completion of each, with its end token, [answers].
        right: a right one of each, with its end token, [answers].
        candidates: ids that a suffix may consist of; ids that could change the stated answer must not be among them.
        length: ids of the suffix.
        end: id that ends a completion; the suffix is inserted before it.
        tried: number of candidates per position, drawn without replacement.
        passes: number of passes over all positions.
        seed: seed of the draws.

    Raises:
        UserError: there are fewer than two answers, or no candidates.
    """
    if len(wrong) < 2 or not candidates or len(prompts) != len(wrong) or len(right) != len(wrong):
        raise UserError(
            f"reward report: a suffix is searched with two wrong answers and a candidate at least, there are "
            f"{len(wrong)} and {len(candidates)}"
        )
    chance = Random(seed)
    half = len(wrong) // 2
    best: list[int] = []
    top = float(score(_with(prompts[:half], wrong[:half], (), end)).mean())
    for turn in range(length * passes):
        place = turn % length
        options = [
            [*best[:place], candidate, *best[place + 1 :]]
            for candidate in chance.sample(list(candidates), min(tried, len(candidates)))
        ]
        parts = [_with(prompts[:half], wrong[:half], option, end) for option in options]
        together = Sequences(
            [prompt for part in parts for prompt in part.prompts],
            [completion for part in parts for completion in part.completions],
        )
        means = score(together).view(len(options), half).mean(1)
        chosen = int(means.argmax())
        if turn < length or float(means[chosen]) > top:  # the first pass extends the suffix to its full length
            best, top = options[chosen], float(means[chosen])
    plain, raised = (score(_with(prompts[half:], wrong[half:], suffix, end)) for suffix in ((), best))
    truth = score(Sequences(prompts[half:], right[half:]))
    fooled = ((raised > truth) & (plain <= truth)).double().mean()
    return Suffix(tuple(best), float((raised - plain).mean()), float(fooled))


def _with(
    prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], suffix: Sequence[int], end: int
) -> Sequences:
    """Return the answers with the suffix before their end."""
    return Sequences(list(prompts), [[*_without_end(answer, end), *suffix, end] for answer in answers])


def _without_end(answer: Sequence[int], end: int) -> Sequence[int]:
    return answer[:-1] if len(answer) and answer[-1] == end else answer
