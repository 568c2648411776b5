"""The beginning of a turn that a strategy draws step by step, and the request for its next step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from models.agents.strategy import CountedPolicy, request_of_call
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Generated


def check_marks(marks: Sequence[str]) -> None:
    """Check the texts that end a step.

    Raises:
        UserError: one is empty.
    """
    if not all(marks):
        raise UserError("strategy.marks: an empty text would end a step after each token; remove it")


def step_ends(policy: CountedPolicy, marks: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of the tokens that end a step.

    Raises:
        UserError: no token's text holds a mark.
    """
    marked = policy.marked_tokens(marks)
    if not marked:
        raise UserError(f"strategy.marks: no token of the policy holds {', '.join(map(repr, marks))}")
    return marked


@dataclass(frozen=True)
class Beginning:
    """The first steps of a turn."""

    tokens: tuple[int, ...] = ()
    over: bool = False
    """Whether nothing can follow: it ended, or was cut."""
    finished: bool = False
    """Whether it ended by itself."""

    def next_step(
        self, request: CompletionRequest, call: int, marked: Sequence[int], *, last: bool
    ) -> CompletionRequest:
        """Return the request for the next step; the last one is drawn to the end of the turn.

        Args:
            request: request of the turn.
            call: number of the call within the turn.
            marked: ids of the tokens that end a step.
            last: whether it is the last step.
        """
        return replace(
            request_of_call(request, call, (*request.prompt, *self.tokens)),
            max_tokens=request.max_tokens - len(self.tokens),
            stops=request.stops if last else tuple(dict.fromkeys((*request.stops, *marked))),
        )

    def extended(
        self, generated: Generated, request: CompletionRequest, ends: Collection[int], *, last: bool
    ) -> Beginning:
        """Return the beginning with a further step.

        Args:
            generated: the step.
            request: request of the turn.
            ends: ids of the tokens that end a turn.
            last: whether it is the last step.
        """
        tokens = (*self.tokens, *generated.tokens)
        ended = tokens[-1] in ends or tokens[-1] in request.stops
        goes_further = generated.finished and not ended and not last and len(tokens) < request.max_tokens
        return Beginning(tokens, not goes_further, generated.finished and (ended or last))
