"""Recorded calls of an agent program, and their arrangement as a tree that is cut into chains.

    call 1   prompt            -> ids 1
    call 2   prompt ids 1 reply  -> ids 2          continues call 1
    call 3   prompt ids 1 other  -> ids 3          continues call 1 too: a branch
    call 4   another prompt    -> ids 4            begins by itself

A call whose prompt begins with all ids of an earlier one has its history, so the calls of an episode are a tree. The
tree is cut into chains, each from the point at which it leaves the earlier ones: every call is trained on once, and the
learner reads shared histories once (`models.learner.histories`). Only ids are compared; nothing is encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.method.episode import Turn
from models.text.rendering import ChatMessage


@dataclass(frozen=True, eq=False)
class RecordedCall:
    """A call of a program, with its prompt, as ids and as messages, and its completion."""

    prompt: tuple[int, ...]
    """Token ids, [tokens]."""
    tokens: tuple[int, ...]
    """Token ids that were drawn, including the end token if it was reached, [tokens]."""
    log_probs: Tensor | None
    """Log-prob of each drawn token, [tokens], nats; None if not requested."""
    text: str
    """Text of the drawn tokens; a stop text that ended them is part of it."""
    finished: bool
    """Whether it ended by itself or at a stop text; a call that was cut is not continued."""
    messages: tuple[ChatMessage, ...]
    """The conversation; for a plain completion one message of the role `text`, empty if the prompt was ids."""
    reply: ChatMessage | None = None
    """The message that the program received; None for a plain completion."""
    tools: str = ""
    """Tools of the request, see `ProgramRequest.tools_text`."""

    @property
    def whole(self) -> tuple[int, ...]:
        """Prompt and completion, [tokens]."""
        return (*self.prompt, *self.tokens)


@dataclass(frozen=True, eq=False)
class Chain:
    """Calls that continue one another, without the tokens that other chains hold already."""

    prompt: tuple[int, ...]
    """Tokens before the first of them, [tokens]."""
    history: int
    """Tokens at the prompt's end that another chain holds, calls included; 0 if it begins by itself."""
    tokens: tuple[int, ...]
    """All tokens after the prompt, [tokens]; the last is the policy's."""
    log_probs: Tensor | None
    """Log-probs, zero for the program's tokens, [tokens], nats; None if not requested."""
    turns: tuple[Turn, ...]
    """The calls."""


def parents(calls: Sequence[RecordedCall]) -> list[int | None]:
    """Return the index of the earlier call that each call continues, the longest one; None for a new start, [calls]."""
    parent_of: list[int | None] = []
    for number, call in enumerate(calls):
        earlier = [
            place for place, other in enumerate(calls[:number]) if call.prompt[: len(other.whole)] == other.whole
        ]
        parent_of.append(max(earlier, key=lambda place: len(calls[place].whole), default=None))
    return parent_of


def chains(calls: Sequence[RecordedCall]) -> list[Chain]:
    """Arrange the calls of an episode in chains, each call in exactly one.

    The first call that continues another extends its chain, and any other begins a branch there.

    Args:
        calls: calls in the order in which they were made.
    """
    parent_of = parents(calls)
    members: list[list[int]] = []
    chain_of: dict[int, int] = {}
    for number, parent in enumerate(parent_of):
        if parent is not None and members[chain_of[parent]][-1] == parent:
            chain_of[number] = chain_of[parent]
            members[chain_of[parent]].append(number)
        else:
            chain_of[number] = len(members)
            members.append([number])
    return [_chain([calls[place] for place in chain], _history(calls, parent_of, chain[0])) for chain in members]


def _history(calls: Sequence[RecordedCall], parent_of: Sequence[int | None], first: int) -> int:
    root = first
    while (parent := parent_of[root]) is not None:
        root = parent
    return len(calls[first].prompt) - len(calls[root].prompt) if root != first else 0


def _chain(calls: Sequence[RecordedCall], history: int) -> Chain:
    start, turns, log_probs, at = len(calls[0].prompt), [], [], len(calls[0].prompt)
    whole = calls[-1].whole
    for call in calls:
        log_probs.append(torch.zeros(len(call.prompt) - at))
        if call.log_probs is not None:
            log_probs.append(call.log_probs)
        at = len(call.whole)
        turns.append(Turn(len(call.prompt) - start, at - start, text=call.text))
    has_log_probs = all(call.log_probs is not None for call in calls)
    return Chain(calls[0].prompt, history, whole[start:], torch.cat(log_probs) if has_log_probs else None, tuple(turns))
