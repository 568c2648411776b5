"""Hints of the policy, and solutions under them: the turn that most solutions agree with (RLAD, paper 268).

    history | asks | hint 1        history | gives hint 1 | solution 1, 3, 5, ...
    history | asks | hint 2        history | gives hint 2 | solution 2, 4, 6, ...

The budget of solutions is the same for any number of hints, so that breadth (many hints) and depth (many solutions of a
hint) can be compared; `hints: 0` is a plain vote. A hint that did not end, or that is empty, is left out: the solution
then reads the history alone. Ties go to the solution that came first. The paper (arXiv 2510.02263) compares the two at
test time with a model of 1.7B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from models.agents.play.preparation import check_form, filled
from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, not_greedy, request_of_call
from models.answers.ballot import winner
from models.base.bounds import Count, Temperature
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part


@part("hints")
class Hints(Strategy):
    """The vote of solutions that were written under hints of the policy itself."""

    source = SourcePaper(
        268, "RLAD: Training LLMs to Discover Abstractions for Solving Reasoning Problems (arXiv 2510.02263)",
        "exploration",
    )  # fmt: skip
    hints: Annotated[int, Field(ge=0, le=1024)] = 2
    """Number of hints; 0: none, and the solutions read the history alone."""
    solutions: Annotated[int, Field(ge=1, le=1024)] = 4
    """Number of solutions in all, in turn under each hint; not less than `hints`."""
    asks: str = "Write a hint for this problem."
    """Text that the policy reads before it writes a hint; as in the environment that it was trained in."""
    gives: str = "Hint: {prepared}"
    """Text that the policy reads before it solves; `{prepared}` is the hint."""
    temperature: Temperature = 1.0
    """Temperature of hints and solutions if the turn would be greedy, because greedy ones are all the same."""
    extra_tokens: Count = 256
    """Tokens in addition to prompt and episode that the engine needs room for: the texts and a hint."""

    def __post_init__(self) -> None:
        check_form(self.gives, ("prepared",), "strategy.gives")
        if self.hints > self.solutions:
            raise UserError(
                f"strategy.hints is {self.hints}, but strategy.solutions is {self.solutions}: a hint would have no "
                "solution; lower hints or raise solutions"
            )

    @property
    def most_calls(self) -> int:
        """A call per hint and per solution, and the policy's own turn if they do not fit."""
        return self.hints + self.solutions + 1

    def at_budget(self, answers: int) -> Hints:
        """Return the strategy with `answers` solutions, and with no more hints than these."""
        return replace(self, solutions=answers, hints=min(self.hints, answers))

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests]."""
        sampling = not_greedy(drawing, self.temperature) if self.hints + self.solutions > 1 else drawing
        histories = self._histories(policy, requests, sampling)
        calls = [
            request_of_call(request, number, own[number % len(own)])
            for request, own in zip(requests, histories, strict=True)
            for number in range(self.solutions)
        ]
        made = policy.answer(calls, sampling)
        texts = policy.texts(made)
        chosen: dict[int, Generated] = {}
        for place in range(len(requests)):
            first = place * self.solutions
            best = made[first + winner(texts[first : first + self.solutions])]
            if best is not None:
                chosen[place] = best
        missing = [place for place in range(len(requests)) if place not in chosen]
        drafts = policy.draft([requests[place] for place in missing], drawing) if missing else []
        chosen |= dict(zip(missing, drafts, strict=True))
        return [chosen[place] for place in range(len(requests))]

    def _histories(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], sampling: TokenSampling
    ) -> list[list[tuple[int, ...]]]:
        """Return what the solutions of each request read, one for each hint, [requests][hints, at least 1]."""
        if not self.hints:
            return [[tuple(request.prompt)] for request in requests]
        asks = self._lines(policy, [self.asks])[0] if self.asks else ()
        calls = [
            request_of_call(request, self.solutions + number, (*request.prompt, *asks))
            for request in requests
            for number in range(self.hints)
        ]
        hints = [text.strip() for text in policy.texts(policy.answer(calls, sampling))]
        given = self._lines(policy, [filled(self.gives, {"prepared": hint}) for hint in hints])
        rows = [
            (*calls[place].prompt[: len(calls[place].prompt) - len(asks)], *(ids if hint else ()))
            for place, (hint, ids) in enumerate(zip(hints, given, strict=True))
        ]
        return [rows[at : at + self.hints] for at in range(0, len(rows), self.hints)]

    def _lines(self, policy: CountedPolicy, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Encode texts on lines of their own, as an environment's first text, [texts]."""
        return [ids[:-1] for ids in policy.ids([f"\n{text}\n" for text in texts])]
