"""Engines that generate in the background: one thread for each, which generates a few tokens per call.

An engine with room takes the next request, so none waits for another. Between two calls all of them can be paused
(`paused`): weights are handed over then, and completions under way continue with them (`Engine.serve`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from threading import Condition, Thread

import torch

from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling

STEPS = 8
"""Tokens between two checks for ended completions, new requests and new weights."""


@dataclass(frozen=True, eq=False)
class NumberedCompletion:
    """A completion with the number of its request; its versions are those given to `BackgroundEngines.loaded`."""

    number: int
    generated: Generated


class BackgroundEngines:
    """Background threads, one for each engine, that generate the requested completions.

    Args:
        engine: an engine whose members can serve; each has a thread.
        drawing: how tokens are drawn.
        device: device of the learner, whose stream the engines must not share.
    """

    def __init__(self, engine: Engine, drawing: TokenSampling, device: torch.device) -> None:
        self._engine, self._drawing, self._device = engine, drawing, device
        self._changed = Condition()
        self._waiting: deque[dict[int, CompletionRequest]] = deque()
        self._ended: list[NumberedCompletion] = []
        self._dropped: set[int] = set()
        self._begun: dict[int, int] = {}
        self._version = 0
        self._resting, self._closing, self._nudged = False, False, False
        self._error: BaseException | None = None
        self._at_work = 0
        self._seconds = 0.0
        self._rounds: list[dict[int, int]] = [{} for _ in engine.members()]
        """For each engine, the version given to `loaded` by the engine's own number of the weights."""
        self._threads = [
            Thread(target=self._pump, args=(number, member), name=f"serve-{number + 1}", daemon=True)
            for number, member in enumerate(engine.members())
        ]

    @property
    def room(self) -> int:
        """Number of completions that the engine with the least room generates at the same time."""
        return min(member.room for member in self._engine.members())

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def request(self, requests: Mapping[int, CompletionRequest]) -> None:
        """Request completions by number; adjacent ones go to one engine together, as far as one has room for them."""
        numbers = list(requests)
        with self._changed:
            for at in range(0, len(numbers), self.room):
                self._waiting.append({number: requests[number] for number in numbers[at : at + self.room]})
            self._changed.notify_all()

    def begun(self) -> dict[int, int]:
        """Return the version of the weights with which each completion in progress began, by number."""
        with self._changed:
            return dict(self._begun)

    def drop(self, numbers: Sequence[int]) -> None:
        """Drop completions by number, whether they have begun or not."""
        gone = set(numbers)
        with self._changed:
            left = (
                {number: request for number, request in unit.items() if number not in gone} for unit in self._waiting
            )
            self._waiting = deque(unit for unit in left if unit)
            self._dropped |= gone & self._begun.keys()
            self._ended = [ended for ended in self._ended if ended.number not in gone]
            self._changed.notify_all()

    def ended(self, wait: bool, seconds: float | None = None) -> list[NumberedCompletion]:
        """Return the completions that have ended since the last call.

        Args:
            wait: whether to block until one has ended, an engine has failed, or `nudge` is called.
            seconds: longest wait; None: no limit.

        Raises:
            BaseException: the exception of an engine.
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._ended or self._nudged or self._error is not None, seconds)
            self._nudged = False
            if self._error is not None:
                raise self._error
            ended, self._ended = self._ended, []
            return ended

    def nudge(self) -> None:
        """End the wait in `ended`, because there is other work to do."""
        with self._changed:
            self._nudged = True
            self._changed.notify_all()

    def worked(self) -> float:
        """Return the mean working time of the engines since the last call, in seconds."""
        with self._changed:
            seconds, self._seconds = self._seconds, 0.0
            return seconds / len(self._threads)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause all engines inside the context; completions in progress stay."""
        with self._changed:
            self._resting = True
            while self._at_work:
                self._changed.wait()
        try:
            yield
        finally:
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)  # weights are copied on a stream that is not the engines'
            with self._changed:
                self._resting = False
                self._changed.notify_all()

    def loaded(self, version: int) -> None:
        """Record that the weights which the paused engines have now are those of `version`."""
        self._version = version
        for rounds, member in zip(self._rounds, self._engine.members(), strict=True):
            rounds[member.version] = version

    def close(self) -> None:
        """Wait for the calls in progress, end the threads, and drop all completions that have not ended."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _pump(self, place: int, engine: Engine) -> None:
        torch.get_num_threads()  # a thread takes their number at its first question: see `models.training.ahead`
        own = torch.cuda.stream(torch.cuda.Stream(self._device)) if self._device.type == "cuda" else nullcontext()
        under_way: set[int] = set()
        try:
            with own:
                while (work := self._next(under_way, engine.room)) is not None:
                    requests, dropped = work
                    began, made = time.perf_counter(), {}
                    try:
                        made = engine.serve(requests, self._drawing, STEPS, dropped)
                    finally:
                        self._note(place, made, time.perf_counter() - began)
                    under_way = (under_way | requests.keys()) - made.keys() - dropped
                engine.serve({}, self._drawing, 0, under_way)
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _next(self, under_way: set[int], room: int) -> tuple[dict[int, CompletionRequest], set[int]] | None:
        """Return the requests to begin and the numbers to drop, once there is any work to do; None: the end."""
        with self._changed:
            while True:
                if self._closing or self._error is not None:
                    return None
                dropped = under_way & self._dropped
                fits = bool(self._waiting) and len(self._waiting[0]) <= room - len(under_way) + len(dropped)
                if not self._resting and (under_way or fits):
                    break
                self._changed.wait()
            self._dropped -= dropped
            for number in dropped:
                del self._begun[number]
            requests: dict[int, CompletionRequest] = {}
            left = room - len(under_way) + len(dropped)
            while self._waiting and len(self._waiting[0]) <= left - len(requests):
                requests |= self._waiting.popleft()
            self._begun |= dict.fromkeys(requests, self._version)
            self._at_work += 1
            return requests, dropped

    def _note(self, place: int, made: Mapping[int, Generated], seconds: float) -> None:
        """Record that an engine rests after `seconds` of work, with the completions that have ended."""
        with self._changed:
            for number, generated in made.items():
                spans = tuple((start, self._rounds[place][version]) for start, version in generated.versions)
                if number not in self._dropped:
                    self._ended.append(NumberedCompletion(number, replace(generated, versions=spans)))
                self._dropped.discard(number)
                del self._begun[number]
            self._at_work -= 1
            self._seconds += seconds
            self._changed.notify_all()
