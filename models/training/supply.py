"""Interface to a round's rollouts for the loop: made when they are needed, a round ahead, or in flight."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from models.method.rollout import Rollout


class Supply(ABC):
    """A source of a round's rollouts; use it in a `with` statement, which waits for its work before it closes."""

    @abstractmethod
    def take(self, number: int) -> tuple[list[Rollout], dict[str, float]]:
        """Return the rollouts of round `number`, from 0, and metrics about them."""

    def begin(self, number: int) -> None:  # noqa: B027 - nothing to do for a supply that works all the time
        """Start generation: the loop needs the engine no more before round `number`. Nothing may load weights or draw
        from torch's global generator until `wait`: the engine draws from it."""

    def wait(self) -> None:  # noqa: B027
        """Wait for the generation that `begin` started."""

    @contextmanager
    def handing_over(self, done: int) -> Iterator[None]:
        """Pause the engine while it takes the weights of round `done` and the canary checks them."""
        yield

    def __enter__(self) -> Supply:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
