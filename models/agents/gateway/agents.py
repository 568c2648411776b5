"""Episodes of agent programs, which call the policy over OpenAI's protocol and return a result.

    wave     every running program sends a request, or ends; then the engine generates for all requests

A program is used without changes. Its calls are recorded as ids and become chains (`models.agents.gateway.calls`). The
seed of a call depends on the run, the round, the problem and its own ids, so a program that repeats its requests draws
the same completions. A program that crashes or hangs ends its own episode only.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from queue import Empty
from typing import Any

import torch

from models.agents.gateway.calls import Chain, RecordedCall, chains
from models.agents.gateway.conversation import BadRequest, prompt_of
from models.agents.gateway.runners import (
    Function,
    ProgramFailed,
    ProgramProcess,
    ProgramReport,
    Running,
    Task,
    outcome_of,
)
from models.agents.gateway.server import Gateway, PendingRequest, ProgramEnd, Refused, completion
from models.answers.answers import same_answer
from models.base.errors import shortened
from models.base.source_code import SourceCode
from models.base.user_code.contain import restored
from models.engines.engine import CompletionRequest, Engine, Generated, Sampling, requests_of
from models.method.environment import Environment, EnvironmentEpisode
from models.method.episode import Cut, Episode, EpisodeLimits
from models.method.problem import Problem
from models.text.encoding import Codec

_LOG = logging.getLogger("rewardflow.episodes")

MOST_CHOICES = 64
"""Maximum number of completions that a call may request (`n`)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ProgramEpisode(Episode):
    """The episode of a program; `tokens` and `turns` are those of its chains, one after the other."""

    chains: tuple[Chain, ...]


@dataclass(frozen=True, kw_only=True)
class AgentPrograms(Environment):
    """A user's own program for each episode."""

    name = "program"
    command: tuple[str, ...]
    """The program and its arguments; empty if it is a function."""
    source: SourceCode | None = None
    """The file of the function `run`, if the program is one."""
    side_by_side: int
    """Number of programs that run concurrently."""
    shows_answer: bool
    """Whether a program is given the problem's answer, so that it can compute its reward."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Raise a TypeError, because a program requests turns itself and cannot be stepped."""
        raise TypeError("a program asks the policy itself")

    def drive(
        self, engine: Engine, codec: Codec, limits: EpisodeLimits, problems: Sequence[Problem], sampling: Sampling,
        seed: int,
    ) -> list[list[Episode]]:  # fmt: skip
        """Run `sampling.samples` programs for each problem, [problems][G]. See `models.agents.play.play.play`."""
        asks = requests_of([problem.tokens for problem in problems], sampling, seed)
        sessions = [
            _Session(str(place), problems[place // sampling.samples], ask.seed, limits, sampling)
            for place, ask in enumerate(asks)
        ]
        kept = nullcontext() if self.source is None else restored(str(self.source.file), engine_works=True)
        with Gateway() as gateway, kept:
            _Round(self, gateway, engine, codec, sampling).run(sessions)
        made: list[Episode] = [session.episode() for session in sessions]
        return [made[at : at + sampling.samples] for at in range(0, len(made), sampling.samples)]

    def start(self, gateway: Gateway, session: str, task: Task) -> Running:
        """Start a program."""

        def ended(result: Any) -> None:
            gateway.events.put(ProgramEnd(session, result))

        if self.source is not None:
            run, file = vars(self.source.load())["run"], str(self.source.file)
            return Function(run, task, gateway.address, gateway.key(session), ended, file)
        return ProgramProcess(self.command, task, gateway.address, gateway.key(session), ended)


@dataclass(eq=False)
class _Session:
    """An open episode."""

    key: str
    problem: Problem
    seed: int
    limits: EpisodeLimits
    sampling: Sampling
    calls: list[RecordedCall] = field(default_factory=list)
    waiting: list[PendingRequest] = field(default_factory=list)
    running: Running | None = None
    over: bool = False
    cut: Cut = ""
    outcome: ProgramReport = field(default_factory=ProgramReport)
    due: float = 0.0
    """Monotonic time after which a program that neither sends a request nor ends counts as stuck, seconds."""
    asked: int = 0
    """Completions that were requested and not refused."""

    def heard(self) -> None:
        """Restart the time limit, after a start or an answer."""
        self.due = time.monotonic() + self.limits.seconds

    def end(self, cut: Cut = "") -> None:
        """End the episode and refuse its waiting requests; nothing more is drawn for it."""
        self.over, self.cut = True, cut or self.cut
        for asked in self.waiting:
            asked.answer(Refused(403, "the episode is over", "episode_over"))
        self.waiting.clear()
        if self.running is not None:
            self.running.stop()

    def refuse(self, asked: PendingRequest, error: Refused, cut: Cut = "") -> None:
        """Refuse a request; the program may continue without it."""
        self.cut = self.cut or cut
        asked.answer(error)
        self.heard()

    def episode(self) -> ProgramEpisode:
        """Return the finished episode."""
        made = chains(self.calls)
        if made:
            last = made[-1].turns[-1]._replace(reward=self.outcome.reward)
            made = [*made[:-1], replace(made[-1], turns=(*made[-1].turns[:-1], last))]
        offsets = [sum(len(chain.tokens) for chain in made[:place]) for place in range(len(made))]
        known = [chain.log_probs for chain in made if chain.log_probs is not None]
        solved = self.outcome.solved
        if solved is None and self.outcome.answer is not None:
            solved = same_answer(self.outcome.answer, self.problem.answer)
        return ProgramEpisode(
            tokens=tuple(token for chain in made for token in chain.tokens),
            log_probs=torch.cat(known) if known and len(known) == len(made) else None,
            turns=tuple(
                turn._replace(start=turn.start + at, stop=turn.stop + at, reward=0.0 if place else turn.reward)
                for place, (at, chain) in enumerate(zip(offsets, made, strict=True))
                for turn in chain.turns
            ),
            text="\n".join(call.text for call in self.calls),
            cut=self.cut,
            solved=solved,
            chains=tuple(made),
        )


@dataclass(frozen=True, eq=False)
class _Wanted:
    """A request that can be drawn."""

    session: _Session
    asked: PendingRequest
    prompt: tuple[int, ...]
    said: tuple[tuple[str, str], ...]
    count: int
    room: int
    own_limit: bool
    """Whether the limit of tokens is the program's own."""

    def asks(self) -> list[CompletionRequest]:
        """Return its completions as asks; a repeated prompt of an episode gets another seed each time."""
        made = []
        for number in range(self.count):
            again = sum(call.prompt == self.prompt for call in self.session.calls) + number
            text = f"{self.session.seed} call {again} {','.join(map(str, self.prompt))}"
            digest = hashlib.sha256(text.encode()).digest()
            made.append(CompletionRequest(self.prompt, int.from_bytes(digest[:8], "big") >> 1, self.room))
        return made


class _Round:
    """The programs of a call of `drive`."""

    def __init__(
        self, programs: AgentPrograms, gateway: Gateway, engine: Engine, codec: Codec, sampling: Sampling
    ) -> None:
        self._programs, self._gateway = programs, gateway
        self._engine, self._codec, self._sampling = engine, codec, sampling

    def run(self, sessions: Sequence[_Session]) -> None:
        """Run all sessions until they are over."""
        by_key, left, running = {session.key: session for session in sessions}, deque(sessions), list[_Session]()
        try:
            while left or running:
                while left and len(running) < self._programs.side_by_side:
                    running.append(self._begin(left.popleft()))
                while any(not session.over and not session.waiting for session in running):
                    self._listen(by_key, running)
                running = [session for session in running if not session.over]
                self._draw(running)
        finally:
            for session in sessions:
                session.end()

    def _begin(self, session: _Session) -> _Session:
        problem = session.problem
        task = {"id": problem.id, "prompt": problem.prompt, "level": problem.level}
        if self._programs.shows_answer:
            task["answer"] = problem.answer
        try:
            session.running = self._programs.start(self._gateway, session.key, task)
        except OSError as error:
            self._fail(session, f"it cannot be started ({error.strerror})")
        session.heard()
        return session

    def _listen(self, by_key: Mapping[str, _Session], running: Sequence[_Session]) -> None:
        """Take a request or a result of a program; end those that have taken too long."""
        silent = [session for session in running if not session.over and not session.waiting]
        try:
            event = self._gateway.events.get(timeout=max(0.0, min(s.due for s in silent) - time.monotonic()))
        except Empty:
            for session in silent:
                if session.due <= time.monotonic():
                    session.end("time")
            return
        asking = by_key.get(event.session)
        if isinstance(event, PendingRequest):
            if asking is None or asking.over or asking.running is None:
                event.answer(Refused(403, "the episode is over", "episode_over"))
            else:
                asking.waiting.append(event)
        elif asking is not None and not asking.over:
            try:
                if isinstance(event.result, ProgramFailed):
                    raise event.result
                asking.outcome = outcome_of(event.result)
                asking.end()
            except ProgramFailed as error:
                self._fail(asking, str(error))

    def _fail(self, session: _Session, why: str) -> None:
        said = shortened(self._gateway.hidden(why), 300)
        _LOG.warning("a program failed, and with it one episode (problem %s: %s)", session.problem.id, said)
        session.end("error")

    def _draw(self, running: Sequence[_Session]) -> None:
        """Answer all waiting requests."""
        wanted: list[_Wanted] = []
        for session in running:
            waiting, session.waiting = session.waiting, []
            for asked in waiting:
                if (made := self._wanted(session, asked)) is not None:
                    wanted.append(made)
        if not wanted:
            return
        rows = iter(self._engine.each([ask for want in wanted for ask in want.asks()], self._sampling))
        for want in wanted:
            self._answer(want, [next(rows) for _ in range(want.count)])

    def _wanted(self, session: _Session, asked: PendingRequest) -> _Wanted | None:
        limits, longest = session.limits, self._sampling.max_tokens
        try:
            ids, said = prompt_of(self._codec, asked.body, session.calls)
            count = _whole(asked.body, "n", 1, MOST_CHOICES)
            most = _whole(asked.body, "max_completion_tokens", _whole(asked.body, "max_tokens", longest))
        except BadRequest as error:
            session.refuse(asked, Refused(400, str(error)))
            return None
        if session.asked + count > limits.turns:
            session.refuse(asked, Refused(403, f"an episode has {limits.turns} calls", "turns"), "turns")
            return None
        room = min(limits.turn_tokens or longest, longest, len(session.problem.tokens) + longest - len(ids))
        if room < 1:
            refused = Refused(400, "the conversation has no room left", "context_length_exceeded")
            session.refuse(asked, refused, "tokens")
            return None
        session.asked += count
        return _Wanted(session, asked, tuple(ids), said, count, min(room, most), most < room)

    def _answer(self, want: _Wanted, made: Sequence[Generated]) -> None:
        session = want.session
        texts = self._codec.text([generated.tokens for generated in made])
        for generated, text in zip(made, texts, strict=True):
            session.calls.append(
                RecordedCall(want.prompt, generated.tokens, generated.log_probs, text, generated.finished, want.said)
            )
            if not generated.finished and not want.own_limit:
                session.cut = session.cut or "tokens"
        choices = [(text, generated.finished) for text, generated in zip(texts, made, strict=True)]
        session.heard()
        drawn = sum(len(generated.tokens) for generated in made)
        want.asked.answer(completion(want.asked.chat, choices, len(want.prompt), drawn))


def _whole(body: Mapping[str, Any], key: str, default: int, most: int | None = None) -> int:
    value = body.get(key)
    if value is None:
        return default
    if type(value) is not int or value < 1 or (most is not None and value > most):
        raise BadRequest(f"{key}: a whole number from 1{f' to {most}' if most else ''} is wanted")
    return value
