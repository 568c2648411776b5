"""Turns drawn step by step, in which a step that was written before is drawn again (AtomThink; paper 379).

    step       the policy's next step, up to a token whose text holds one of `marks`
    repeated   a step with the text of an earlier one of the turn is drawn again, at most `redraws` times
    warmer     redraw k is drawn at temperature + k * `warmer`
    ends       at the policy's own end, or after `steps` steps; the last is drawn to the end of the turn

A repeated step adds nothing and begins a loop, of which greedy answers of small models have many. A turn without a
repeated step has the tokens of the policy's own greedy turn. If every redraw repeats a step, the last one is kept.

The code of AtomThink (read) compares the characters of a step with those of the step before, raises the temperature by
0.1 for the rest of the turn, and asks for a short answer at the end; none of this is done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field, NonNegativeFloat

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy
from models.agents.turn_beginning import Beginning, check_marks, step_ends
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part
from models.method.steps import MARKS


@part("atomic_steps")
class AtomicSteps(Strategy):
    """The policy's turn, in which repeated steps are drawn again."""

    source = SourcePaper(
        379,
        "Can Atomic Step Decomposition Enhance the Self-structured Reasoning of Multimodal Large Models? "
        "(arXiv 2503.06252)",
        family="inference-time-search",
    )
    redraws: Annotated[int, Field(ge=0, le=64)] = 3
    """Maximum number of times that a repeated step is drawn again."""
    warmer: NonNegativeFloat = 0.4
    """Rise of the temperature with each redraw."""
    steps: Annotated[int, Field(ge=1, le=256)] = 16
    """Maximum number of steps; the last is drawn to the end of the turn."""
    marks: Annotated[tuple[str, ...], Field(min_length=1, max_length=16)] = MARKS
    """Texts that end a step if a token's text holds one of them."""

    def __post_init__(self) -> None:
        check_marks(self.marks)

    @property
    def most_calls(self) -> int:
        """Every step, drawn as often as possible."""
        return self.steps * (1 + self.redraws)

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests].

        Raises:
            UserError: no token's text holds a mark.
        """
        marked = step_ends(policy, self.marks)
        around = "".join(self.marks) + " \t\n"
        turns = [Beginning() for _ in requests]
        known: list[set[str]] = [set() for _ in requests]
        for step in range(self.steps):
            last = step == self.steps - 1
            left = [number for number, turn in enumerate(turns) if not turn.over]
            for redraw in range(self.redraws + 1):
                if not left:
                    break
                call = step * (1 + self.redraws) + redraw
                warmer = replace(drawing, temperature=drawing.temperature + redraw * self.warmer)
                asked = [turns[number].next_step(requests[number], call, marked, last=last) for number in left]
                drawn = policy.draft(asked, warmer)
                repeated = []
                for number, generated, text in zip(left, drawn, policy.texts(drawn), strict=True):
                    text = text.strip(around)
                    if text in known[number] and redraw < self.redraws:
                        repeated.append(number)
                        continue
                    known[number] |= {text} - {""}
                    turns[number] = turns[number].extended(generated, requests[number], policy.ends, last=last)
                left = repeated
        return [Generated(turn.tokens, None, turn.finished) for turn in turns]
