"""Beam search over the steps of a turn by a scorer (arXiv 2408.03314, 2502.06703; paper 281).

    beginnings  N = width * expansions first steps are drawn
    keep        the `width` distinct beginnings of highest value
    expand      each that has not ended gets `expansions` next steps; those that have ended stay as they are
    turn        the whole one of highest value when all kept ones have ended

A step ends with a token whose text holds one of `marks`. Beginnings with the same tokens count once. The last of
`steps` is drawn to the end of the turn. The paper keeps N/M of N beginnings, with M = 4 expansions of each, and scores
with a process model; here any scorer may be set. With one beginning there is nothing to choose, and the turn is the
policy's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, not_greedy
from models.agents.turn_beginning import Beginning, check_marks, step_ends
from models.agents.turn_scorer import Scorer, ScorerSettings
from models.base.bounds import Temperature
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part
from models.method.steps import MARKS


@part("beam")
class Beam(Strategy):
    """Beginnings of a turn that are kept by value, step by step."""

    source = SourcePaper(
        281,
        "Can 1B LLM Surpass 405B LLM? Rethinking Compute-Optimal Test-Time Scaling (arXiv 2502.06703)",
        family="inference-time-search",
    )
    width: Annotated[int, Field(ge=1, le=256)] = 2
    """Number of beginnings that are kept after each step."""
    expansions: Annotated[int, Field(ge=1, le=256)] = 4
    """Next steps that are drawn for each kept beginning. The paper draws four."""
    steps: Annotated[int, Field(ge=1, le=256)] = 16
    """Maximum number of steps; the last is drawn to the end of the turn."""
    marks: Annotated[tuple[str, ...], Field(min_length=1, max_length=16)] = MARKS
    """Texts that end a step if a token's text holds one of them."""
    temperature: Temperature = 1.0
    """Temperature of the steps if the turn would be greedy, because greedy steps are all the same."""
    scorer: Scorer = ScorerSettings()
    """Scorer of beginnings and whole turns. The paper uses a process model."""

    def __post_init__(self) -> None:
        if self.scorer.name == "none":
            raise UserError("strategy.scorer: beam needs a scorer, such as process_model")
        check_marks(self.marks)

    @property
    def _drawn(self) -> int:
        return self.width * self.expansions

    @property
    def most_calls(self) -> int:
        """The steps of all beginnings, and their scores by the policy itself."""
        return self._drawn * self.steps * (1 + self.scorer.calls)

    def at_budget(self, answers: int) -> Beam:
        """Return the strategy with `answers` beginnings after each step, or the next lower multiple of expansions."""
        expansions = min(self.expansions, answers)
        return replace(self, expansions=expansions, width=answers // expansions)

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests].

        Raises:
            UserError: no token's text holds a mark, or the scorer's model is not open.
        """
        if self._drawn == 1:
            return policy.draft(requests, drawing)
        marked = step_ends(policy, self.marks)
        sampling = not_greedy(drawing, self.temperature)
        beams = [[Beginning()] for _ in requests]
        values = [[0.0] for _ in requests]
        for step in range(self.steps):
            if all(beginning.over for beam in beams for beginning in beam):
                break
            pools = self._expanded(policy, requests, beams, sampling, step, marked)
            beams, values = self._kept(policy, requests, pools)
        turns = []
        for beam, own in zip(beams, values, strict=True):
            best = max(range(len(beam)), key=lambda place: (beam[place].finished, own[place], -place))
            turns.append(Generated(beam[best].tokens, None, beam[best].finished))
        return turns

    def _expanded(
        self,
        policy: CountedPolicy,
        requests: Sequence[CompletionRequest],
        beams: Sequence[Sequence[Beginning]],
        sampling: TokenSampling,
        step: int,
        marked: Sequence[int],
    ) -> list[list[Beginning]]:
        """Return the beginnings of each turn after one more step, [requests], distinct ones; ended ones stay."""
        last, first = step == self.steps - 1, step == 0
        begun: list[tuple[int, Beginning, CompletionRequest]] = []
        for number, (request, beam) in enumerate(zip(requests, beams, strict=True)):
            call = step * self._drawn
            for beginning in beam:
                for _ in range(0 if beginning.over else self._drawn if first else self.expansions):
                    next_step = beginning.next_step(request, call, marked, last=last)
                    begun.append((number, beginning, next_step))
                    call += 1
        pools: list[dict[tuple[int, ...], Beginning]] = [
            {beginning.tokens: beginning for beginning in beam if beginning.over} for beam in beams
        ]
        drawn = policy.draft([request for _, _, request in begun], sampling)
        for (number, beginning, _), generated in zip(begun, drawn, strict=True):
            extended = beginning.extended(generated, requests[number], policy.ends, last=last)
            pools[number].setdefault(extended.tokens, extended)
        return [list(pool.values()) for pool in pools]

    def _kept(
        self,
        policy: CountedPolicy,
        requests: Sequence[CompletionRequest],
        pools: Sequence[Sequence[Beginning]],
    ) -> tuple[list[list[Beginning]], list[list[float]]]:
        """Return the `width` beginnings of highest value of each turn, and their values, [requests]."""
        rows = policy.value_rows(self.scorer, requests, [[beginning.tokens for beginning in pool] for pool in pools])
        beams, values = [], []
        for pool, own in zip(pools, rows, strict=True):
            # A beginning that was cut can never become a turn that ended by itself, so it is kept last.
            order = sorted(
                range(len(pool)), key=lambda place: (pool[place].over and not pool[place].finished, -own[place])
            )[: self.width]
            beams.append([pool[place] for place in order])
            values.append([own[place] for place in order])
        return beams, values
