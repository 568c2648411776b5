"""Where a round's rollouts come from, as the loop sees it: made when they are wanted, a round ahead, or in flight."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from models.loop.rollout import Rollout


class Supply(ABC):
    """Use it in a `with` statement, which waits for what is under way: the engine must not be closed meanwhile."""

    @abstractmethod
    def take(self, number: int) -> tuple[list[Rollout], dict[str, float]]:
        """The rollouts of round `number`, from 0, and what is worth watching about them."""

    def begin(self, number: int) -> None:  # noqa: B027 - nothing to do for who is at work all the time
        """The loop needs the engine no more before round `number`. Nothing may load weights or draw from torch's global
        generator until `wait`: the engine draws from it."""

    def wait(self) -> None:  # noqa: B027
        """Wait for what `begin` began."""

    @contextmanager
    def handing_over(self, done: int) -> Iterator[None]:
        """The engine rests while it takes the weights that `done` rounds have made, and is asked about them."""
        yield

    def __enter__(self) -> Supply:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
