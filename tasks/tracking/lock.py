"""A lock for promotions from several machines, kept in MLflow's registry, whose aliases have no compare-and-set.

The lock of the model NAME is a registered model `NAME-promotion-lock`: creating a name that exists fails for every
process. Its tags name the holder. A lock expires and is taken over if its holder is a dead process of this host, or if
its beat has not changed for LEASE seconds of the waiter's own clock. It is taken by renaming it to a name made of its
token. If two processes try, the second fails, because that name exists, and so it cannot take away the lock that the
first has created since. A slow holder notices the loss: it confirms its lock right before every write.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import ParamSpec

from models.base.errors import UserError
from tasks.tracking import process, store, tags

Arguments = ParamSpec("Arguments")

LEASE = 60.0
"""Seconds without a beat after which a lock may be taken from its holder."""
PATIENCE = 600.0
"""Seconds that a promotion waits for other promotions."""
PAUSE = 0.5
"""Seconds between two checks of a lock that another process holds."""
KEEP_TAKEN = 86_400.0
"""Seconds for which the name of a lock that was taken over is kept, so that it is not taken over a second time."""

SUFFIX, TAKEN = "-promotion-lock", "-taken-"


@dataclass
class Lease:
    """A lock that this process acquired and may have lost since."""

    name: str
    token: str
    beat: int = 0

    def confirm(self) -> None:
        """Check that the lock is still held, and update its beat for the processes that wait.

        Raises:
            UserError: this process was so slow that another took the lock.
        """
        store.patiently(self._confirm)

    def write(self, call: Callable[Arguments, object], *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        """Call a writing function with `patiently`, and confirm the lock before every try.

        A server may be unreachable for longer than the lease.

        Raises:
            UserError: as `confirm`.
        """

        def confirm_and_call() -> None:
            self._confirm()
            call(*args, **kwargs)

        store.patiently(confirm_and_call)

    def _confirm(self) -> None:
        """Confirm the lock in one try, without any wait between reading the token and writing the beat."""
        lock_tags = _tags(self.name)
        if lock_tags is None or lock_tags.get(tags.LOCK_TOKEN) != self.token:
            raise UserError(
                f"the promotion lock {self.name} was taken by {_holder(lock_tags or {})}, because this process was "
                f"slower than {LEASE:.0f} s: nothing was changed; run the same command again"
            )
        self.beat += 1
        store.client().set_registered_model_tag(self.name, tags.LOCK_BEAT, str(self.beat))


class LockHeldError(UserError):
    """Another process held the lock for too long."""


@contextmanager
def registry_lock(model: str) -> Iterator[Lease]:
    """Hold the lock of a registered model's aliases against every process that uses the same registry.

    Raises:
        LockHeldError: others held it for longer than PATIENCE.
    """
    with store.exclusive("registry"):  # within one state folder the kernel's lock is fairer, and costs nothing
        lease = _acquire(f"{model}{SUFFIX}")
        try:
            yield lease
        finally:
            _release(lease)


def _acquire(name: str) -> Lease:
    began, last_sign, last_change = time.monotonic(), None, time.monotonic()
    while True:
        lease = Lease(name, uuid.uuid4().hex)
        if _create(lease):
            return lease
        now, lock_tags = time.monotonic(), _read(name)
        if lock_tags is None:
            continue
        sign = (lock_tags.get(tags.LOCK_TOKEN, ""), lock_tags.get(tags.LOCK_BEAT, ""))
        if sign != last_sign:
            last_sign, last_change = sign, now
        if process.surely_dead(lock_tags) or now - last_change > LEASE:
            _take(name, sign[0])
        elif now - began > PATIENCE:
            raise LockHeldError(f"the promotion lock {name} is held by {_holder(lock_tags)} since {now - began:.0f} s")
        else:
            time.sleep(PAUSE)


def _create(lease: Lease) -> bool:
    """Try to create the lock and return whether the name was free.

    A create whose answer was lost is recognised by its token.
    """
    from mlflow import MlflowException

    lock_tags = {**process.mark(), tags.LOCK_TOKEN: lease.token, tags.LOCK_BEAT: "0"}
    description = "Held while a champion is set; removed at once. See tasks/tracking/lock.py."
    try:
        store.patiently(store.client().create_registered_model, lease.name, lock_tags, description)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        return (_read(lease.name) or {}).get(tags.LOCK_TOKEN) == lease.token
    return True


def _take(name: str, token: str) -> None:
    """Rename the lock with `token` out of the way. Do nothing if another process was first."""
    from mlflow import MlflowException

    with suppress(MlflowException):  # the name is there, or the lock was given back
        store.patiently(store.client().rename_registered_model, name, f"{name}{TAKEN}{token}")


def _release(lease: Lease) -> None:
    """Delete the lock, unless it was taken; also remove the old names of taken locks."""
    from mlflow import MlflowException

    with suppress(UserError, MlflowException):  # it expires by itself
        lock_tags = _read(lease.name)
        if lock_tags is not None and lock_tags.get(tags.LOCK_TOKEN) == lease.token:
            store.patiently(store.client().delete_registered_model, lease.name)
        query = f"name LIKE '{lease.name}{TAKEN}%'"
        for old in store.patiently(store.client().search_registered_models, query):
            if time.time() - old.last_updated_timestamp / 1000 > KEEP_TAKEN:
                store.patiently(store.client().delete_registered_model, old.name)


def _read(name: str) -> dict[str, str] | None:
    """Return the tags of a lock; None if it is not held."""
    return store.patiently(_tags, name)


def _tags(name: str) -> dict[str, str] | None:
    """Return the same as `_read`, in one try."""
    from mlflow import MlflowException

    try:
        return dict(store.client().get_registered_model(name).tags)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise


def _holder(lock_tags: dict[str, str]) -> str:
    return f"process {lock_tags.get(tags.PID, '?')} on {lock_tags.get(tags.HOST, '?')}"
