"""Demonstrations of several turns for supervised fine-tuning, in which only the policy's turns carry loss.

    prompt | turn 1 | the answer | turn 2               the sign U+241E separates the turns of the text

The tokens are those of the same episode when it is played: every turn is encoded separately and ends with the end
token, and the bridge is between the turns. Tokens of the prompt and of the environment carry no loss. The gradient is
therefore that of every turn after its history, and the history is read once. If the first turn is empty, the
environment speaks first: its text follows the prompt on lines of its own.

Tokens may have different weights (TL-Training, paper 382): those of a turn that the environment answered with an error,
which should not be imitated, and those that define a call, which are its quoted names and values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from models.datasets.schema import TURNS
from models.learner.packing import Sequences
from models.learner.supervised import TokenCounts
from models.text.bridge import Role, bridge_of
from models.text.encoding import Codec

TOGETHER = 4096
"""Demonstrations that are encoded together."""
ERROR = "error:"
"""Beginning of an environment's answer to a failed action."""
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


def in_turns(
    codec: Codec,
    role: Role,
    rows: Iterable[tuple[Sequence[int], str]],
    longest: int,
    counts: TokenCounts | None = None,
) -> Sequences:
    """Encode each demonstration as one sequence, if a turn of it has a weight above zero, [demonstrations].

    Args:
        codec: the policy's tokenizer.
        role: role of the environment in a chat template.
        rows: encoded prompt and text of each demonstration.
        longest: maximum number of tokens of a sequence; the turn that would exceed it, and all later ones, are left
            out.
        counts: weights of tokens; None: all equal.

    Raises:
        UserError: the chat template cannot be continued.
    """
    bridge, counts = bridge_of(codec, role), counts or TokenCounts()
    sequences: list[tuple[Sequence[int], tuple[int, ...], tuple[float, ...]]] = []
    demonstrations = list(rows)
    for first in range(0, len(demonstrations), TOGETHER):
        batch = [
            _move_opening(codec, prompt, text.split(TURNS)) for prompt, text in demonstrations[first : first + TOGETHER]
        ]
        policy_ids = iter(codec.completions([turn for _, turns in batch for turn in turns[::2]]))
        environment_ids = iter(bridge.ids([turn for _, turns in batch for turn in turns[1::2]]))
        for prompt, turns in batch:
            pieces = [tuple(next(environment_ids if number % 2 else policy_ids)) for number in range(len(turns))]
            ids: tuple[int, ...] = ()
            weights: tuple[float, ...] = ()
            for number in range(0, len(turns), 2):
                between = pieces[number - 1] if number else ()
                if len(prompt) + len(ids) + len(between) + len(pieces[number]) > longest:
                    break
                ids += between + pieces[number]
                failed = number + 1 < len(turns) and turns[number + 1].startswith(ERROR)
                weights += (0.0,) * len(between) + _weights_of_turn(
                    codec, turns[number], pieces[number], counts, failed
                )
            if any(weights):
                sequences.append((prompt, ids, weights))
    prompts, completions, token_weights = ([row[place] for row in sequences] for place in range(3))
    return Sequences(prompts, completions, weights=token_weights)  # type: ignore[arg-type]


def _move_opening(codec: Codec, prompt: Sequence[int], turns: list[str]) -> tuple[Sequence[int], list[str]]:
    """Return a prompt including the environment's text before the first turn, and the turns from then on."""
    if turns[0] or len(turns) == 1:
        return prompt, turns
    (opening,) = codec.inside([f"\n{turns[1]}\n"])
    return (*prompt, *opening), turns[2:]


def _weights_of_turn(
    codec: Codec, text: str, ids: tuple[int, ...], counts: TokenCounts, failed: bool
) -> tuple[float, ...]:
    """Return the loss weight of each token of a turn, [tokens of it]."""
    if failed:
        return (counts.erroneous,) * len(ids)
    if counts.key == 1.0:
        return (1.0,) * len(ids)
    spans = [match.span(1) for match in _QUOTED.finditer(text)]
    ends = [len(prefix) for prefix in codec.text([ids[:count] for count in range(1, len(ids) + 1)])]
    return tuple(
        counts.key if any(start < high and low < stop for low, high in spans) else 1.0
        for start, stop in zip([0, *ends], ends, strict=False)
    )
