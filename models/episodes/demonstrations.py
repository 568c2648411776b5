"""Demonstrations of several turns, as the policy is fine-tuned on them: a sequence for every turn of its own.

    prompt | turn 1                                     the sign U+241E stands between the turns of the text
    prompt | turn 1, what was heard | turn 2

The tokens are those that the episode has when it is played: every turn is encoded by itself and ends with the end
token, and the bridge stands between. No token of prompt and environment carries loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from models.datasets.task_sets.drawing import TURNS
from models.learner.packing import Sequences
from models.text.bridge import Role, bridge_of
from models.text.encoding import Codec

TOGETHER = 4096
"""Demonstrations that are encoded together."""


def in_turns(codec: Codec, role: Role, rows: Iterable[tuple[Sequence[int], str]], longest: int) -> Sequences:
    """A sequence for every turn of the policy, [turns].

    Args:
        codec: the policy's tokenizer.
        role: who the environment is in a chat template.
        rows: encoded prompt and text of each demonstration.
        longest: tokens that a sequence may have; a longer one, and what follows it, is left out.

    Raises:
        UserError: the chat template cannot be continued.
    """
    bridge = bridge_of(codec, role)
    prompts: list[Sequence[int]] = []
    completions: list[Sequence[int]] = []
    listed = list(rows)
    for first in range(0, len(listed), TOGETHER):
        some = [(prompt, text.split(TURNS)) for prompt, text in listed[first : first + TOGETHER]]
        own = iter(codec.completions([turn for _, turns in some for turn in turns[::2]]))
        heard = iter(bridge.ids([turn for _, turns in some for turn in turns[1::2]]))
        for prompt, turns in some:
            history = tuple(prompt)
            pieces = [tuple(next(heard if number % 2 else own)) for number in range(len(turns))]
            for number, ids in enumerate(pieces):
                if number % 2 == 0 and len(history) + len(ids) <= longest:
                    prompts.append(history)
                    completions.append(ids)
                history += ids
    return Sequences(prompts, completions, nested=True)
