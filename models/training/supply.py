"""Interface by which the loop gets a round's rollouts: made on demand, one round ahead, or in flight."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from models.method.rollout import Rollout


class Supply(ABC):
    """Base class of supplies of rollouts. Use it in a `with` statement, which waits for its work at the end."""

    @abstractmethod
    def take(self, number: int) -> tuple[list[Rollout], dict[str, float]]:
        """Return the rollouts of round `number`, from 0, and metrics about them."""

    def begin(self, number: int) -> None:  # noqa: B027 - nothing to do for a supply that works all the time
        """Allow round `number` to be generated ahead, because the loop does not need the engine until then.

        Until `wait` returns, no other code may load weights or draw from torch's global generator: the engine uses it.
        """

    def wait(self) -> None:  # noqa: B027
        """Wait for the generation that `begin` started, if any."""

    @contextmanager
    def handing_over(self, done: int) -> Iterator[None]:
        """Pause generation while the engine loads the weights after `done` rounds and the canary checks them."""
        yield

    def __enter__(self) -> Supply:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
