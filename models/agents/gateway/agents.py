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
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from queue import Empty
from typing import Any

import torch

from models.agents.gateway.answers import ProgramAnswer
from models.agents.gateway.calls import Chain, RecordedCall, chains
from models.agents.gateway.conversation import Conversations, Prompt
from models.agents.gateway.program_request import BadRequest, ProgramRequest, read_request
from models.agents.gateway.replies import reply_of
from models.agents.gateway.runners import (
    Function,
    ProgramFailed,
    ProgramProcess,
    ProgramReport,
    Running,
    Task,
    outcome_of,
)
from models.agents.gateway.server import Gateway, PendingRequest, ProgramEnd, Refused
from models.agents.gateway.token_texts import stop_ids
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

ARRIVAL_SECONDS = 0.005
"""Time in which further requests join a wave, after every running program has sent one: a program may send several at
once."""


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
        requests = requests_of([problem.tokens for problem in problems], sampling, seed)
        sessions = [
            _Session(str(place), problems[place // sampling.samples], request.seed, limits, sampling)
            for place, request in enumerate(requests)
        ]
        module_context = nullcontext() if self.source is None else restored(str(self.source.file), engine_works=True)
        with Gateway() as gateway, module_context:
            _Round(self, gateway, engine, codec, sampling).run(sessions)
        episodes: list[Episode] = [session.episode() for session in sessions]
        return [episodes[at : at + sampling.samples] for at in range(0, len(episodes), sampling.samples)]

    def start(self, gateway: Gateway, session: str, task: Task) -> Running:
        """Start a program."""

        def report_end(result: Any) -> None:
            gateway.events.put(ProgramEnd(session, result))

        if self.source is not None:
            run, file = vars(self.source.load())["run"], str(self.source.file)
            return Function(run, task, gateway.address, gateway.key(session), report_end, file)
        return ProgramProcess(self.command, task, gateway.address, gateway.key(session), report_end)


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
    deadline: float = 0.0
    """Monotonic time after which a program that neither sends a request nor ends counts as stuck, seconds."""
    requested: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """Completions that were requested and not refused, by their prompt."""

    def restart_time_limit(self) -> None:
        """Restart the time limit, after a start or an answer."""
        self.deadline = time.monotonic() + self.limits.seconds

    def end(self, cut: Cut = "") -> None:
        """End the episode and refuse its waiting requests; nothing more is drawn for it."""
        self.over, self.cut = True, cut or self.cut
        for request in self.waiting:
            request.answer(Refused(403, "the episode is over", "episode_over"))
        self.waiting.clear()
        if self.running is not None:
            self.running.stop()

    def refuse(self, request: PendingRequest, error: Refused, cut: Cut = "") -> None:
        """Refuse a request; the program may continue without it."""
        self.cut = self.cut or cut
        request.answer(error)
        self.restart_time_limit()

    def episode(self) -> ProgramEpisode:
        """Return the finished episode."""
        episode_chains = chains(self.calls)
        if episode_chains:
            last = episode_chains[-1].turns[-1]._replace(reward=self.outcome.reward)
            episode_chains = [
                *episode_chains[:-1],
                replace(episode_chains[-1], turns=(*episode_chains[-1].turns[:-1], last)),
            ]
        offsets = [sum(len(chain.tokens) for chain in episode_chains[:place]) for place in range(len(episode_chains))]
        log_probs = [chain.log_probs for chain in episode_chains if chain.log_probs is not None]
        solved = self.outcome.solved
        if solved is None and self.outcome.answer is not None:
            solved = same_answer(self.outcome.answer, self.problem.answer)
        return ProgramEpisode(
            tokens=tuple(token for chain in episode_chains for token in chain.tokens),
            log_probs=torch.cat(log_probs) if log_probs and len(log_probs) == len(episode_chains) else None,
            turns=tuple(
                turn._replace(start=turn.start + at, stop=turn.stop + at, reward=0.0 if place else turn.reward)
                for place, (at, chain) in enumerate(zip(offsets, episode_chains, strict=True))
                for turn in chain.turns
            ),
            text="\n".join(call.text for call in self.calls),
            cut=self.cut,
            solved=solved,
            chains=tuple(episode_chains),
        )


@dataclass(frozen=True, eq=False)
class _AcceptedRequest:
    """A request that can be drawn."""

    session: _Session
    pending: PendingRequest
    request: ProgramRequest
    prompt: Prompt
    draws: tuple[CompletionRequest, ...]
    """Its completions."""
    own_limit: bool
    """Whether the limit of tokens is the program's own."""


class _Round:
    """The programs of a call of `drive`."""

    def __init__(
        self, programs: AgentPrograms, gateway: Gateway, engine: Engine, codec: Codec, sampling: Sampling
    ) -> None:
        self._programs, self._gateway = programs, gateway
        self._engine, self._codec, self._sampling = engine, codec, sampling
        self._conversations = Conversations(codec)
        self._stop_ids: dict[tuple[str, ...], tuple[int, ...]] = {}

    def run(self, sessions: Sequence[_Session]) -> None:
        """Run all sessions until they are over."""
        by_key, remaining, running = {session.key: session for session in sessions}, deque(sessions), list[_Session]()
        try:
            while remaining or running:
                while remaining and len(running) < self._programs.side_by_side:
                    running.append(self._begin(remaining.popleft()))
                while any(not session.over and not session.waiting for session in running):
                    self._listen(by_key, running)
                while self._listen(by_key, running, ARRIVAL_SECONDS):
                    pass
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
        session.restart_time_limit()
        return session

    def _listen(
        self, by_key: Mapping[str, _Session], running: Sequence[_Session], seconds: float | None = None
    ) -> bool:
        """Take a request or a result of a program; end those that have taken too long.

        Args:
            by_key: all sessions.
            running: open sessions.
            seconds: longest wait; None: until the next program has taken too long.

        Returns:
            Whether there was an event.
        """
        silent = [session for session in running if not session.over and not session.waiting]
        if seconds is None:
            seconds = max(0.0, min(session.deadline for session in silent) - time.monotonic())
        try:
            event = self._gateway.events.get(timeout=seconds)
        except Empty:
            for session in silent:
                if session.deadline <= time.monotonic():
                    session.end("time")
            return False
        sender = by_key.get(event.session)
        if isinstance(event, PendingRequest):
            if sender is None or sender.over or sender.running is None:
                event.answer(Refused(403, "the episode is over", "episode_over"))
            else:
                sender.waiting.append(event)
        elif sender is not None and not sender.over:
            try:
                if isinstance(event.result, ProgramFailed):
                    raise event.result
                sender.outcome = outcome_of(event.result)
                sender.end()
            except ProgramFailed as error:
                self._fail(sender, str(error))
        return True

    def _fail(self, session: _Session, reason: str) -> None:
        message = shortened(self._gateway.hidden(reason), 300)
        _LOG.warning("a program failed, and with it one episode (problem %s: %s)", session.problem.id, message)
        session.end("error")

    def _draw(self, running: Sequence[_Session]) -> None:
        """Answer all waiting requests."""
        batch: list[_AcceptedRequest] = []
        for session in running:
            waiting, session.waiting = session.waiting, []
            for pending in sorted(waiting, key=lambda pending: pending.content):
                if (accepted := self._accept_request(session, pending)) is not None:
                    batch.append(accepted)
        if not batch:
            return
        sampling = self._sampling
        if any(item.request.log_probs for item in batch):
            sampling = replace(sampling, log_probs=True)
        rows = iter(self._engine.complete([draw for item in batch for draw in item.draws], sampling))
        for item in batch:
            self._answer(item, [next(rows) for _ in item.draws])

    def _accept_request(self, session: _Session, pending: PendingRequest) -> _AcceptedRequest | None:
        limits, longest = session.limits, self._sampling.max_tokens
        try:
            request = read_request(pending.body, chat=pending.chat)
            prompt = self._conversations.prompt(request, session.calls)
        except BadRequest as error:
            session.refuse(pending, Refused(400, str(error)))
            return None
        if session.requested.total() + request.count > limits.turns:
            session.refuse(pending, Refused(403, f"an episode has {limits.turns} calls", "turns"), "turns")
            return None
        room = min(limits.turn_tokens or longest, longest, len(session.problem.tokens) + longest - len(prompt.ids))
        if room < 1:
            refusal = Refused(400, "the conversation has no room left", "context_length_exceeded")
            session.refuse(pending, refusal, "tokens")
            return None
        if request.stops not in self._stop_ids:
            self._stop_ids[request.stops] = stop_ids(self._codec, request.stops)
        wanted, stops = request.most_tokens or longest, self._stop_ids[request.stops]
        repetitions = range(session.requested[prompt.ids], session.requested[prompt.ids] + request.count)
        session.requested[prompt.ids] += request.count
        draws = tuple(
            CompletionRequest(prompt.ids, _seed(session.seed, repetition, prompt.ids), min(room, wanted), stops)
            for repetition in repetitions
        )
        return _AcceptedRequest(session, pending, request, prompt, draws, wanted < room)

    def _answer(self, accepted: _AcceptedRequest, completions: Sequence[Generated]) -> None:
        session, request, prompt = accepted.session, accepted.request, accepted.prompt
        replies = [
            reply_of(self._codec, generated, request, prompt.begun, draw.seed)
            for generated, draw in zip(completions, accepted.draws, strict=True)
        ]
        for reply in replies:
            session.calls.append(
                RecordedCall(
                    prompt.ids, reply.tokens, reply.log_probs, reply.text, reply.finished, prompt.messages,
                    reply.message if request.messages else None, request.tools_text,
                )
            )  # fmt: skip
            if not reply.finished and not accepted.own_limit:
                session.cut = session.cut or "tokens"
        session.restart_time_limit()
        drawn_tokens = sum(len(reply.tokens) for reply in replies)
        choices = tuple(reply.choice for reply in replies)
        accepted.pending.answer(ProgramAnswer(accepted.pending.chat, choices, len(prompt.ids), drawn_tokens))


def _seed(seed: int, repetition: int, prompt: Sequence[int]) -> int:
    """Return the seed of a completion; a repeated prompt of an episode gets another seed each time."""
    text = f"{seed} call {repetition} {','.join(map(str, prompt))}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
