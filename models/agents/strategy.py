"""Strategies of an evaluation: each turn of a policy is made from several answers, none of which is trained on.

A strategy is called between the caller that needs a turn (episodes, or an evaluation in one turn) and the engine, and
is itself an engine. It therefore works in every environment, turn by turn, and its own requests are not part of the
episode:

    history | turn 1 | environment | turn 2        what is measured
    history | draft | "find problems" | ...        requests of the strategy for turn 1, which are discarded

It only decides which of the sampled texts becomes the turn; sampled ids are never encoded again. The largest number of
calls per turn is declared in advance and enforced.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from models.agents.gateway.token_texts import stop_ids
from models.agents.turn_scorer import NO_SCORER, ScorerSettings, TurnScorer
from models.base.errors import UserError
from models.base.seeds import call_seed
from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling
from models.engines.voice import JointDecoding, complete_jointly
from models.method.registry import Part
from models.text.bridge import Bridge, bridge_of
from models.text.encoding import Codec


class SourcePaper(NamedTuple):
    """The source paper of a strategy."""

    id: int | None
    """Number of the paper in the catalogue of source papers."""
    title: str
    family: str = "agents"


class Strategy(Part):
    """Method that makes a turn, selected by `rewardflow evaluate --strategy`; its settings are under `strategy.`."""

    slot = "strategy"

    @property
    def source(self) -> SourcePaper | None:
        """Source paper; None if there is none."""
        return None

    @property
    def extra_tokens(self) -> int:
        """Tokens beyond prompt and episode that the engine needs room for."""
        return 0

    @property
    def partners(self) -> tuple[str, ...]:
        """Partners that the policy is measured with, each in turn: versions (NAME/VERSION) or model folders."""
        return ()

    @property
    def joint(self) -> bool:
        """Whether other models or terms choose each token together with the policy, which vLLM does not support."""
        return False

    @property
    def scorer(self) -> ScorerSettings:
        """Scorer of its turns; a setting, if the strategy needs one."""
        return NO_SCORER

    def at_budget(self, answers: int) -> Strategy | None:
        """Return the strategy with about `answers` answers per turn, for a sweep; None: it has no such setting."""
        return None

    @property
    @abstractmethod
    def most_calls(self) -> int:
        """Largest number of completions and scorings of given texts per turn."""

    @abstractmethod
    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests].

        Args:
            policy: generates the answers and counts the requests.
            requests: histories; the result for each depends only on the history and its seed.
            drawing: how a policy without a strategy draws a turn.

        Raises:
            UserError: the strategy does not support this environment.
        """


@dataclass
class Spent:
    """Counts of the calls and tokens that an evaluation used."""

    turns: int = 0
    """Requested turns."""
    calls: int = 0
    """Completions and scores of given texts."""
    read: int = 0
    """Tokens of the requests, histories included, counted for each request."""
    written: int = 0
    """Tokens of the completions."""
    no_room: int = 0
    """Calls that were skipped because the engine has no room for them."""
    scored: int = 0
    """Tokens that the scorer read, if it is another model than the policy."""
    seconds: float = 0.0
    """Wall time of the turns, seconds."""
    log_ratios: list[float] = field(default_factory=list)
    """Log-probs of turns as they were drawn, less those of the policy, if the strategy changes its distributions."""

    def metrics(self) -> dict[str, float]:
        """Return the counts by name, for the run's metrics."""
        each = max(self.turns, 1)
        gap = {"strategy/log_prob_gap": sum(self.log_ratios) / max(1, self.written)} if self.log_ratios else {}
        return gap | {
            "strategy/turns": float(self.turns),
            "strategy/calls": float(self.calls),
            "strategy/calls_a_turn": self.calls / each,
            "strategy/tokens_read": float(self.read),
            "strategy/tokens_written": float(self.written),
            "strategy/no_room": float(self.no_room),
            "strategy/tokens_scored": float(self.scored),
            "strategy/seconds": self.seconds,
        }


class CountedPolicy:
    """The policy that a strategy calls: requests are counted, and refused beyond the strategy's limit.

    Args:
        engine: runs the policy.
        codec: the policy's tokenizer.
        room: largest number of tokens of a prompt and its answer together.
        scorer: scores turns; None: only the likelihood is available.
    """

    def __init__(self, engine: Engine, codec: Codec, room: int, scorer: TurnScorer | None = None) -> None:
        self.spent = Spent()
        self.vocabulary = engine.vocabulary
        self.tokenizer = codec.tokenizer
        self._engine, self._codec, self._room, self._calls_left = engine, codec, room, 0
        self._scorer = scorer

    def begin(self, turns: int, calls: int) -> None:
        """Count `turns` new turns, and allow `calls` calls for all of them together."""
        self.spent.turns += turns
        self._calls_left = calls

    def draft(
        self, requests: Sequence[CompletionRequest], drawing: TokenSampling, joint: JointDecoding | None = None
    ) -> list[Generated]:
        """Generate a completion for each request as given, [requests]: the policy's turn without a strategy.

        Args:
            requests: as they are.
            drawing: how tokens are drawn.
            joint: models and terms that choose each token together with the policy; None: the policy alone.

        Raises:
            UserError: the engine does not decode together with other models.
        """
        self._count(len(requests), (request.prompt for request in requests))
        if joint is None:
            completions = self._engine.complete(requests, drawing)
        else:
            completions = complete_jointly(self._engine, requests, drawing, joint)
        self.spent.written += sum(len(generated.tokens) for generated in completions)
        return completions

    def answer(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated | None]:
        """Generate a completion for each request, [requests], cut to the room of the engine; None without room."""
        fits = [self.fits(request.prompt) for request in requests]
        fitting_requests = [
            replace(request, max_tokens=min(request.max_tokens, self._room - len(request.prompt)))
            for request, fit in zip(requests, fits, strict=True)
            if fit
        ]
        completions = iter(self.draft(fitting_requests, drawing) if fitting_requests else [])
        return [next(completions) if fit else None for fit in fits]

    def fits(self, prompt: Sequence[int], tokens: int = 1) -> bool:
        """Return whether `tokens` tokens fit after a prompt; if not, this is counted as `no_room`."""
        fits = len(prompt) + tokens <= self._room
        self.spent.no_room += not fits
        return fits

    def score(self, prompts: Sequence[Sequence[int]], given: Sequence[Sequence[int]]) -> list[float]:
        """Return the log-prob of each given text after its prompt at temperature 1, [texts], nats.

        It is minus infinity for a text without room.
        """
        rows = list(zip(prompts, given, strict=True))
        fits = [len(prompt) + len(ids) <= self._room for prompt, ids in rows]
        fitting_rows = [row for row, fit in zip(rows, fits, strict=True) if fit]
        self.spent.no_room += len(rows) - len(fitting_rows)
        self._count(len(fitting_rows), ([*prompt, *ids] for prompt, ids in fitting_rows))
        scored = iter(
            self._engine.score([prompt for prompt, _ in fitting_rows], [ids for _, ids in fitting_rows])
            if fitting_rows
            else []
        )
        return [sum(next(scored)) if fit else float("-inf") for fit in fits]

    def values(
        self, scorer: ScorerSettings, prompts: Sequence[Sequence[int]], turns: Sequence[Sequence[int]]
    ) -> list[float]:
        """Return the value of each turn after its history by `scorer`, [turns]; equal turns are scored once.

        Args:
            scorer: the strategy's scorer.
            prompts: ids of the histories, [turns].
            turns: ids of whole turns or of their beginnings, not empty, [turns].

        Raises:
            UserError: the scorer's model was not opened.
        """
        if scorer.name == "none":
            return [0.0] * len(turns)
        rows = [(tuple(prompt), tuple(turn)) for prompt, turn in zip(prompts, turns, strict=True)]
        distinct = list(dict.fromkeys(rows))
        of_prompts, of_turns = [prompt for prompt, _ in distinct], [turn for _, turn in distinct]
        if scorer.name == "likelihood":
            sums = self.score(of_prompts, of_turns)
            known = {row: total / len(row[1]) for row, total in zip(distinct, sums, strict=True)}
        elif self._scorer is None:
            raise UserError(f"strategy.scorer: the model of {scorer.name} is not open; name its folder as path")
        else:
            before = self._scorer.read
            known = dict(zip(distinct, self._scorer(of_prompts, of_turns) if distinct else [], strict=True))
            self.spent.scored += self._scorer.read - before
        return [known[row] for row in rows]

    def value_rows(
        self,
        scorer: ScorerSettings,
        requests: Sequence[CompletionRequest],
        rows: Sequence[Sequence[Sequence[int]]],
    ) -> list[list[float]]:
        """Return the values of several turns of each request, [requests][turns]; see `values`.

        Args:
            scorer: the strategy's scorer.
            requests: requests of the turns, whose prompts are the histories.
            rows: ids of the turns of each request, [requests][turns].
        """
        prompts = [request.prompt for request, turns in zip(requests, rows, strict=True) for _ in turns]
        flat = iter(self.values(scorer, prompts, [ids for turns in rows for ids in turns]))
        return [[next(flat) for _ in turns] for turns in rows]

    def marked_tokens(self, marks: Sequence[str]) -> tuple[int, ...]:
        """Return the ids of the tokens that end a step: those whose text holds one of `marks`, rising."""
        return stop_ids(self._codec, marks)

    @property
    def ends(self) -> tuple[int, ...]:
        """Ids of the tokens that end a turn."""
        return self._codec.ends

    def extended(self, history: Sequence[int], reply: Sequence[int], words: str) -> tuple[int, ...]:
        """Extend a history by the policy's reply and a message with `words`, up to the next reply, as ids.

        Args:
            history: ids up to the beginning of a reply.
            reply: sampled ids; empty: an empty reply.
            words: text of the message to the policy.

        Raises:
            UserError: the chat template cannot be continued.
        """
        end = () if reply and reply[-1] in self._codec.ends else (self._codec.end,)
        (ids,) = self._bridge.ids([words])
        return (*history, *reply, *end, *ids)

    def ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Encode texts as whole turns, including the token that ends a turn, [texts]."""
        return [tuple(ids) for ids in self._codec.completions(texts)]

    def texts(self, completions: Sequence[Generated | None]) -> list[str]:
        """Return the texts of completions, [completions]; empty for those that did not end.

        Half an answer is not used.
        """
        whole = [generated.tokens if generated is not None and generated.finished else () for generated in completions]
        return self._codec.text(whole)

    @cached_property
    def _bridge(self) -> Bridge:
        return bridge_of(self._codec)

    def _count(self, calls: int, read: Iterable[Sequence[int]]) -> None:
        self._calls_left -= calls
        if self._calls_left < 0:
            raise RuntimeError("a strategy asks more often than it declares")
        self.spent.calls += calls
        self.spent.read += sum(map(len, read))


def request_of_call(request: CompletionRequest, call: int, prompt: Sequence[int] | None = None) -> CompletionRequest:
    """Return the request for completion `call` of a turn, with a seed of its own; the first has the turn's seed.

    Args:
        request: the request of the turn.
        call: number of the call, from 0.
        prompt: prompt of the call; None: the prompt of the turn.
    """
    return replace(request, prompt=request.prompt if prompt is None else prompt, seed=call_seed(request.seed, call))


def not_greedy(drawing: TokenSampling, temperature: float) -> TokenSampling:
    """Return `drawing`; at `temperature` if it is greedy, because several greedy texts are all the same."""
    return drawing if drawing.temperature else replace(drawing, temperature=temperature)


def drafts_of(
    policy: CountedPolicy,
    requests: Sequence[CompletionRequest],
    drawing: TokenSampling,
    drafts: int,
    temperature: float,
) -> list[list[Generated]]:
    """Sample several drafts of each turn, [requests][drafts]; the first has the turn's seed.

    Args:
        policy: generates them.
        requests: requests of the turns.
        drawing: how a policy without a strategy draws a turn.
        drafts: number of drafts of each turn; a single one is the policy's own turn.
        temperature: temperature of several drafts if the turn would be greedy.
    """
    sampling = not_greedy(drawing, temperature) if drafts > 1 else drawing
    flat = policy.draft([request_of_call(request, call) for request in requests for call in range(drafts)], sampling)
    return [flat[at : at + drafts] for at in range(0, len(flat), drafts)]


class Strategic(Engine):
    """A policy with a strategy, as an engine that evaluations draw turns from.

    Args:
        engine: runs the policy; not closed with this one.
        codec: the policy's tokenizer.
        strategy: makes the turns.
        room: largest number of tokens of a prompt and its answer together.
        scorer: scores turns for the strategy; None: only the likelihood is available.
    """

    def __init__(
        self, engine: Engine, codec: Codec, strategy: Strategy, room: int, scorer: TurnScorer | None = None
    ) -> None:
        self.dtype, self.vocabulary, self.longest = engine.dtype, engine.vocabulary, engine.longest
        self.policy = CountedPolicy(engine, codec, room, scorer)
        self._engine, self._strategy = engine, strategy

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        """See `Engine.complete`; log-probs are not available, because turns are selected, not drawn token by token."""
        if drawing.log_probs:
            raise ValueError("a strategy has no log-probs: nothing is trained on its turns")
        self.policy.begin(len(requests), self._strategy.most_calls * len(requests))
        started = time.perf_counter()
        turns = self._strategy.turns(self.policy, requests, drawing)
        self.policy.spent.seconds += time.perf_counter() - started
        return turns

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`; scores are the policy's own."""
        return self._engine.score(prompts, completions)

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        """See `Engine.load`."""
        self._engine.load(weights, version)

    def close(self) -> None:
        """Do nothing: the wrapped engine is closed by its owner."""
