"""Demonstrations of several turns, as the policy is fine-tuned on them: a sequence each, of which its turns count.

    prompt | turn 1 | what was heard | turn 2           the sign U+241E stands between the turns of the text

The tokens are those that the episode has when it is played: every turn is encoded by itself and ends with the end
token, and the bridge stands between. No token of prompt and environment carries loss, so the gradient is that of every
turn by itself behind its history, which is read once. Where the first turn is empty the environment speaks first, as on
lines of its own behind the prompt.

Tokens may count more or less than others (TL-Training, paper 382): those of a turn that the environment answered by an
error, which nobody should imitate, and those that make a call what it is, its quoted names and values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from models.datasets.task_sets.drawing import TURNS
from models.learner.packing import Sequences
from models.learner.supervised import TokenCounts
from models.text.bridge import Role, bridge_of
from models.text.encoding import Codec

TOGETHER = 4096
"""Demonstrations that are encoded together."""
ERROR = "error:"
"""What an environment's answer to a failed action begins with."""
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


def in_turns(
    codec: Codec,
    role: Role,
    rows: Iterable[tuple[Sequence[int], str]],
    longest: int,
    counts: TokenCounts | None = None,
) -> Sequences:
    """A sequence for every demonstration in which a turn counts, [demonstrations].

    Args:
        codec: the policy's tokenizer.
        role: who the environment is in a chat template.
        rows: encoded prompt and text of each demonstration.
        longest: tokens that a sequence may have; the turn that would make it longer, and what follows, is left out.
        counts: what tokens count; None: all as much.

    Raises:
        UserError: the chat template cannot be continued.
    """
    bridge, counts = bridge_of(codec, role), counts or TokenCounts()
    made: list[tuple[Sequence[int], tuple[int, ...], tuple[float, ...]]] = []
    listed = list(rows)
    for first in range(0, len(listed), TOGETHER):
        some = [_opened(codec, prompt, text.split(TURNS)) for prompt, text in listed[first : first + TOGETHER]]
        own = iter(codec.completions([turn for _, turns in some for turn in turns[::2]]))
        heard = iter(bridge.ids([turn for _, turns in some for turn in turns[1::2]]))
        for prompt, turns in some:
            pieces = [tuple(next(heard if number % 2 else own)) for number in range(len(turns))]
            ids: tuple[int, ...] = ()
            weights: tuple[float, ...] = ()
            for number in range(0, len(turns), 2):
                between = pieces[number - 1] if number else ()
                if len(prompt) + len(ids) + len(between) + len(pieces[number]) > longest:
                    break
                ids += between + pieces[number]
                failed = number + 1 < len(turns) and turns[number + 1].startswith(ERROR)
                weights += (0.0,) * len(between) + _of_turn(codec, turns[number], pieces[number], counts, failed)
            if any(weights):
                made.append((prompt, ids, weights))
    prompts, completions, counted = ([row[place] for row in made] for place in range(3))
    return Sequences(prompts, completions, weights=counted)  # type: ignore[arg-type]


def _opened(codec: Codec, prompt: Sequence[int], turns: list[str]) -> tuple[Sequence[int], list[str]]:
    """A prompt with what the environment says before the first turn, and the turns from then on."""
    if turns[0] or len(turns) == 1:
        return prompt, turns
    (opening,) = codec.inside([f"\n{turns[1]}\n"])
    return (*prompt, *opening), turns[2:]


def _of_turn(codec: Codec, text: str, ids: tuple[int, ...], counts: TokenCounts, failed: bool) -> tuple[float, ...]:
    """What each token of a turn counts, [tokens of it]."""
    if failed:
        return (counts.erroneous,) * len(ids)
    if counts.key == 1.0:
        return (1.0,) * len(ids)
    spans = [match.span(1) for match in _QUOTED.finditer(text)]
    ends = [len(before) for before in codec.text([ids[:count] for count in range(1, len(ids) + 1)])]
    return tuple(
        counts.key if any(start < high and low < stop for low, high in spans) else 1.0
        for start, stop in zip([0, *ends], ends, strict=False)
    )
