"""The cost of a step or a run: hours of processors and of GPUs, and tokens.

Processor hours are those of this process and of all its child processes. GPU hours are the hours during which a GPU was
reserved, busy or not, as others had to wait. A result that is reused from an earlier run costs nothing again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

import psutil

from tasks.compute.gpu_place import place_is_held

if TYPE_CHECKING:
    from tasks.tracking.journal import JournalRow

HOUR = 3600.0


@dataclass(frozen=True)
class Cost:
    """Processor hours, GPU hours and tokens of a step, or of several."""

    processor_hours: float = 0.0
    gpu_hours: float = 0.0
    tokens_sampled: int = 0
    """Tokens of the completions that a policy generated."""
    tokens_trained_on: int = 0
    """Tokens of prompts and completions, in every pass of the updates of reinforcement learning."""

    def metrics(self) -> dict[str, float]:
        """Return the cost as metrics of a run."""
        return {f"cost/{name}": float(value) for name, value in asdict(self).items()}


class WithCost(Protocol):
    """A step's result with its cost."""

    @property
    def cost(self) -> Cost: ...
    @property
    def reused(self) -> bool: ...


class CostMeter:
    """A meter of processor and GPU time since it was created."""

    def __init__(self) -> None:
        self._began, self._processors = time.perf_counter(), _processor_seconds()

    def cost(self, gpus: float, tokens: Cost | None = None) -> Cost:
        """Return the cost since the meter was created.

        Args:
            gpus: number of GPUs that are reserved while this process holds the place on the GPU.
            tokens: tokens, which are counted separately; None: there were none.
        """
        tokens = tokens or Cost()
        held = time.perf_counter() - self._began if place_is_held() else 0.0
        return Cost(
            # The time of a process that another process waited for is lost, and the sum must not decrease.
            processor_hours=max(0.0, _processor_seconds() - self._processors) / HOUR,
            gpu_hours=gpus * held / HOUR,
            tokens_sampled=tokens.tokens_sampled,
            tokens_trained_on=tokens.tokens_trained_on,
        )


def of_rounds(rows: Iterable[JournalRow]) -> Cost:
    """Return the tokens that a journal's rounds sampled and trained on, those before an interruption included."""
    sampled = trained = 0.0
    for row in rows:
        sampled += _tokens(row.metrics, "generate")
        trained += _tokens(row.metrics, "learn")
    return Cost(tokens_sampled=round(sampled), tokens_trained_on=round(trained))


def sum_of_costs(costs: Iterable[Cost]) -> Cost:
    """Return the sum of several costs."""
    listed = list(costs)
    return Cost(
        processor_hours=sum(cost.processor_hours for cost in listed),
        gpu_hours=sum(cost.gpu_hours for cost in listed),
        tokens_sampled=sum(cost.tokens_sampled for cost in listed),
        tokens_trained_on=sum(cost.tokens_trained_on for cost in listed),
    )


def of_steps(steps: Iterable[WithCost]) -> tuple[Cost, Cost]:
    """Return the cost of the steps that a run executed, and that of the steps whose earlier results it reused."""
    listed = list(steps)
    return sum_of_costs(s.cost for s in listed if not s.reused), sum_of_costs(s.cost for s in listed if s.reused)


def cost_text(cost: Cost) -> str:
    """Format the cost: `0.31 processor hours, 1,204,331 tokens sampled, 2,093,112 trained on`."""
    parts = [f"{cost.processor_hours:.2f} processor hours"]
    if cost.gpu_hours:
        parts.append(f"{cost.gpu_hours:.2f} GPU hours")
    if cost.tokens_sampled:
        parts.append(f"{cost.tokens_sampled:,} tokens sampled")
    if cost.tokens_trained_on:
        parts.append(f"{cost.tokens_trained_on:,} trained on")
    return ", ".join(parts)


def _tokens(metrics: Mapping[str, float], stage: str) -> float:
    return metrics.get(f"speed/{stage}", 0.0) * metrics.get(f"seconds/{stage}", 0.0)


def _processor_seconds() -> float:
    """Return the processor time of this process and of all below it, ended or not, seconds."""
    own = psutil.Process()
    seconds = 0.0
    for process in [own, *own.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has just ended, and counts with the process that waited for it
            continue
        seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
