"""Supply of whole rounds of rollouts, made when they are needed, or one round ahead while the learner fits.

With one step of staleness the completions of round n + 1 are sampled from the policy as it was before round n's fit.
Policy gradients correct this by a weight against mu, the engine's log-probs at sampling; an objective that neither does
so nor can do without declares it (`on_policy_only`). The round after a checkpoint is never made ahead, in undisturbed
runs either: a run that resumes from the checkpoint, which has only the fresh weights, so gives the same results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import torch

from models.method.rollout import Rollout
from models.training.meter import Meter
from models.training.supply import Supply


class Ahead:
    """Generator of a round's rollouts by `make(number)`, now or ahead in a thread. Use it in a `with` statement."""

    def __init__(self, make: Callable[[int], list[Rollout]], device: torch.device) -> None:
        self._make = make
        self._device = device
        # A new thread takes torch's number of threads when it first reads it or at its first kernel; vLLM's attention
        # on the CPU, which counts them before and after, refuses to run if the two differ.
        self._pool = ThreadPoolExecutor(1, "generate", initializer=torch.get_num_threads)
        self._begun: tuple[int, Future[tuple[list[Rollout], float]]] | None = None

    def take(self, number: int) -> tuple[list[Rollout], int]:
        """Return the rollouts of round `number`, made now or ahead, and how many rounds ahead they were made."""
        if self._begun is None:
            return self._make(number), 0
        (ahead, future), self._begun = self._begun, None
        assert ahead == number
        return future.result()[0], 1

    def begin(self, number: int) -> None:
        """Start to make the rollouts of round `number` in the background.

        Until `wait` returns, no other code may load weights or draw from torch's global generator: the engine uses it.
        """
        learning = torch.cuda.current_stream(self._device) if self._device.type == "cuda" else None
        self._begun = number, self._pool.submit(self._work, number, learning)

    def wait(self) -> tuple[list[Rollout], float] | None:
        """Wait for the rollouts that `begin` started. Returns them and the seconds they took; None without `begin`."""
        return self._begun[1].result() if self._begun is not None else None

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)  # the engine must not be closed while it generates

    def _work(self, number: int, learning: torch.cuda.Stream | None) -> tuple[list[Rollout], float]:
        started = time.perf_counter()
        if learning is None:
            return self._make(number), time.perf_counter() - started
        own = torch.cuda.Stream(self._device)  # on the learner's stream the two would take turns
        own.wait_stream(learning)  # the weights were loaded there
        with torch.cuda.stream(own):
            made = self._make(number)
        own.synchronize()
        return made, time.perf_counter() - started


class InRounds(Supply):
    """Supply of whole rounds of rollouts, one after the other.

    Args:
        make: samples the rollouts of a round, given its number.
        meter: records the generation.
        ahead: whether the next round is made while the loop does not need the engine.
    """

    def __init__(self, make: Callable[[int], list[Rollout]], meter: Meter, ahead: bool) -> None:
        self._ahead, self._meter, self._wanted = Ahead(make, meter.device), meter, ahead

    def take(self, number: int) -> tuple[list[Rollout], dict[str, float]]:
        """See `Supply.take`."""
        rollouts, staleness = self._ahead.take(number)
        if not staleness:
            self._meter.generated(rollouts)
        return rollouts, {"rollouts/staleness": staleness} if self._wanted else {}

    def begin(self, number: int) -> None:
        """See `Supply.begin`."""
        if self._wanted:
            self._ahead.begin(number)

    def wait(self) -> None:
        """See `Supply.wait`."""
        if (made := self._ahead.wait()) is not None:
            self._meter.generated(*made)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ahead.__exit__(kind, error, trace)
