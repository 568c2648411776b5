"""Strategies of an evaluation: how each turn of a policy is made from several answers, none of which is trained on.

A strategy stands between whoever wants a turn (episodes, or an evaluation in one turn) and the engine, as an engine
itself. So it works in every environment, turn by turn, and what it asks meanwhile is no part of the episode:

    history | turn 1 | environment | turn 2        what is measured
    history | draft | "find problems" | ...        what the strategy asks for turn 1, and forgets

Which of the texts that were drawn becomes the turn is all that it decides; ids that were sampled are never encoded
again. How many calls a turn takes at most is said before, and held.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from models.engine.engine import Ask, Drawing, Engine, Generated
from models.parts import Part
from models.seeds import call_seed
from models.text.bridge import Bridge, bridge_of
from models.text.encoding import Codec


class Source(NamedTuple):
    """The paper that a strategy comes from."""

    id: int | None
    """Its number in the catalogue of source papers."""
    title: str
    family: str = "agents"


class Strategy(Part):
    """How a turn is made. Named by `rewardflow evaluate --strategy`; its settings stand under `strategy.`."""

    slot = "strategy"

    @property
    def source(self) -> Source | None:
        """The paper that it comes from; None: there is none."""
        return None

    @property
    def extra_tokens(self) -> int:
        """Tokens beyond prompt and episode that it asks an engine to have room for."""
        return 0

    @property
    def partners(self) -> tuple[str, ...]:
        """Versions, NAME/VERSION, or model folders that the policy is measured beside, each in turn."""
        return ()

    @property
    @abstractmethod
    def most_calls(self) -> int:
        """Completions and scores of given texts that one turn takes at most."""

    @abstractmethod
    def turns(self, policy: Consulted, asks: Sequence[Ask], drawing: Drawing) -> list[Generated]:
        """The turn of each ask, [asks].

        Args:
            policy: answers; what it is asked is counted.
            asks: histories; what comes of each hangs on it alone, and its seed.
            drawing: how a turn is drawn by a policy that uses no strategy.

        Raises:
            UserError: the strategy is none for this environment.
        """


@dataclass
class Spent:
    """What an evaluation took."""

    turns: int = 0
    """Turns that were wanted."""
    calls: int = 0
    """Completions and scores of given texts."""
    read: int = 0
    """Tokens of what was asked, histories included, however often."""
    written: int = 0
    """Tokens of the completions."""
    no_room: int = 0
    """Calls that were left out, as the engine has no room for what they ask."""

    def metrics(self) -> dict[str, float]:
        """By name, for a run."""
        each = max(self.turns, 1)
        return {
            "strategy/turns": float(self.turns),
            "strategy/calls": float(self.calls),
            "strategy/calls_a_turn": self.calls / each,
            "strategy/tokens_read": float(self.read),
            "strategy/tokens_written": float(self.written),
            "strategy/no_room": float(self.no_room),
        }


class Consulted:
    """A policy as a strategy asks it: what it is asked is counted, and refused beyond what the strategy may ask.

    Args:
        engine: runs the policy.
        codec: the policy's tokenizer.
        room: tokens that a question and its answer may have together.
    """

    def __init__(self, engine: Engine, codec: Codec, room: int) -> None:
        self.spent = Spent()
        self.vocabulary = engine.vocabulary
        self._engine, self._codec, self._room, self._left = engine, codec, room, 0

    def begin(self, turns: int, calls: int) -> None:
        """So many turns are wanted, for which so many calls may be made."""
        self.spent.turns += turns
        self._left = calls

    def draft(self, asks: Sequence[Ask], drawing: Drawing) -> list[Generated]:
        """A completion of each ask as it stands, [asks]: what the policy says without a strategy."""
        self._count(len(asks), (ask.prompt for ask in asks))
        made = self._engine.each(asks, drawing)
        self.spent.written += sum(len(generated.tokens) for generated in made)
        return made

    def answer(self, asks: Sequence[Ask], drawing: Drawing) -> list[Generated | None]:
        """A completion of each ask, [asks], cut where the room ends; None where there is none."""
        fits = [self.fits(ask.prompt) for ask in asks]
        asked = [
            replace(ask, max_tokens=min(ask.max_tokens, self._room - len(ask.prompt)))
            for ask, fit in zip(asks, fits, strict=True)
            if fit
        ]
        made = iter(self.draft(asked, drawing) if asked else [])
        return [next(made) if fit else None for fit in fits]

    def fits(self, prompt: Sequence[int], tokens: int = 1) -> bool:
        """Whether there is room for so many tokens behind a prompt; where there is not, that is counted."""
        fits = len(prompt) + tokens <= self._room
        self.spent.no_room += not fits
        return fits

    def score(self, prompts: Sequence[Sequence[int]], given: Sequence[Sequence[int]]) -> list[float]:
        """Log-prob of each given text behind its prompt at temperature 1, [texts], nats; minus infinity where there is
        no room for it."""
        rows = list(zip(prompts, given, strict=True))
        fits = [len(prompt) + len(ids) <= self._room for prompt, ids in rows]
        chosen = [row for row, fit in zip(rows, fits, strict=True) if fit]
        self.spent.no_room += len(rows) - len(chosen)
        self._count(len(chosen), ([*prompt, *ids] for prompt, ids in chosen))
        scored = iter(
            self._engine.score([prompt for prompt, _ in chosen], [ids for _, ids in chosen]) if chosen else []
        )
        return [sum(next(scored)) if fit else float("-inf") for fit in fits]

    def said(self, history: Sequence[int], reply: Sequence[int], words: str) -> tuple[int, ...]:
        """Ids of a history in which the policy replied and somebody then says `words`, up to the next reply.

        Args:
            history: up to where a reply begins.
            reply: sampled ids; empty: the policy said nothing.
            words: what it is told.

        Raises:
            UserError: the chat template cannot be continued.
        """
        end = () if reply and reply[-1] in self._codec.ends else (self._codec.end,)
        (ids,) = self._bridge.ids([words])
        return (*history, *reply, *end, *ids)

    def ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Whole turns that say `texts`, with the token that ends a turn, [texts]."""
        return [tuple(ids) for ids in self._codec.completions(texts)]

    def texts(self, made: Sequence[Generated | None]) -> list[str]:
        """What completions say, [completions]; empty for those that did not end: half an answer is nobody's word."""
        whole = [generated.tokens if generated is not None and generated.finished else () for generated in made]
        return self._codec.text(whole)

    @cached_property
    def _bridge(self) -> Bridge:
        return bridge_of(self._codec)

    def _count(self, calls: int, read: Iterable[Sequence[int]]) -> None:
        self._left -= calls
        if self._left < 0:
            raise RuntimeError("a strategy asks more often than it says that it does")
        self.spent.calls += calls
        self.spent.read += sum(map(len, read))


def again(ask: Ask, call: int, prompt: Sequence[int] | None = None) -> Ask:
    """The `call`-th completion that a turn takes, with a seed of its own; the turn's own at the first.

    Args:
        ask: the turn's.
        call: from 0.
        prompt: what is asked; None: as the turn's.
    """
    return replace(ask, prompt=ask.prompt if prompt is None else prompt, seed=call_seed(ask.seed, call))


class Strategic(Engine):
    """A policy with a strategy, as an engine that evaluations draw turns from.

    Args:
        engine: runs the policy; not closed with this one.
        codec: the policy's tokenizer.
        strategy: makes the turns.
        room: tokens that a question and its answer may have together.
    """

    def __init__(self, engine: Engine, codec: Codec, strategy: Strategy, room: int) -> None:
        self.dtype, self.vocabulary, self.longest = engine.dtype, engine.vocabulary, engine.longest
        self.policy = Consulted(engine, codec, room)
        self._engine, self._strategy = engine, strategy

    def each(self, asks: Sequence[Ask], drawing: Drawing) -> list[Generated]:
        """See `Engine.each`; without log-probs, as what is said is chosen, not drawn token by token."""
        if drawing.log_probs:
            raise ValueError("a strategy has no log-probs: nothing is trained on what it says")
        self.policy.begin(len(asks), self._strategy.most_calls * len(asks))
        return self._strategy.turns(self.policy, asks, drawing)

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`: the policy's own."""
        return self._engine.score(prompts, completions)

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        """See `Engine.load`."""
        self._engine.load(weights, version)

    def close(self) -> None:
        """Nothing: the engine behind it is another's."""
