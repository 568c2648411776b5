"""The MLflow store of runs and models: its choice, and calls that wait for an unreachable server.

MLFLOW_TRACKING_URI names a server; without it everything is stored in the state folder: `mlflow.db` (SQLite) and
`mlartifacts/`. Calls wait for an unreachable server: one call gives up after seconds, `patiently` calls again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from models.base.disk import no_space, out_of_space
from models.base.errors import UserError
from tasks.host import plain_address
from tasks.runner import interrupt
from tasks.tracking import moved, schema
from tasks.tracking.mirrors import choice

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.store.entities import PagedList

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_LOG = logging.getLogger("rewardflow.tracking")

_SHOWN_AS_TRAINING = {"mlflow.experimentKind": "custom_model_development"}
"""MLflow's UI then shows the pages for training (runs, charts, models) first, not those for prompts and traces."""

PATIENCE = 300.0
"""Seconds for which a call waits for an unreachable tracking server."""


@dataclass(frozen=True)
class Store:
    """The store that this process writes to."""

    uri: str
    """Tracking and registry URI of MLflow."""
    home: Path
    """The state folder; it contains the locks and, in the embedded store, database and artifacts."""

    @property
    def embedded(self) -> bool:
        """Whether database and artifacts are in the state folder, without a server."""
        return not self.uri.startswith(("http://", "https://"))

    @property
    def shown(self) -> str:
        """The URI in a form that may be logged: a database's can contain a password."""
        return plain_address.shown(self.uri)

    @property
    def own(self) -> bool:
        """Whether the database is the state folder's own, and not one that the user named."""
        return self.uri == _address(self.home)


_store: Store | None = None
_chosen_addresses: set[str] = set()


def configure(home: Path) -> Store:
    """Choose this process's store: MLFLOW_TRACKING_URI, else SQLite and a folder in `home` (created if missing).

    Raises:
        UserError: the folder was moved and cannot be written to, or its database is of another version of MLflow.
    """
    home.mkdir(parents=True, exist_ok=True)
    chosen = _choose(home)
    if chosen.uri in _chosen_addresses:
        schema.require_current(chosen.home)
        moved.update_addresses(chosen.home)
    return chosen


def configure_here(home: Path) -> Store:
    """Choose the store as `configure` does, for this process alone: its child processes choose for themselves."""
    names = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
    saved_values = {name: os.environ.get(name) for name in names}
    try:
        return configure(home)
    finally:  # MLflow writes its settings into the environment
        for name, value in saved_values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def separate_store(home: Path) -> Iterator[Store]:
    """Use a separate embedded store in `home` within the block, without mirrors, even if the user names a server.

    Args:
        home: created if it is missing.
    """
    previous_store = current()
    home.mkdir(parents=True, exist_ok=True)
    try:
        with choice.paused():
            yield _use_store(Store(_address(home.absolute()), home.absolute()), chosen_here=True)
    finally:
        _use_store(previous_store, chosen_here=previous_store.uri in _chosen_addresses)


def exists(home: Path) -> bool:
    """Return whether a store can be read: the user names a server, or `home` has a database."""
    return bool(configured_address()) or (home / "mlflow.db").is_file()


def open_for_reading(home: Path) -> Store:
    """Choose the store as `configure` does, without creating anything.

    Raises:
        UserError: no run was ever made with the state folder `home`, or its database is of another version of MLflow.
    """
    if not exists(home):
        raise UserError(f"{home}: nothing was run here yet; `rewardflow run RECIPE` makes the first run")
    chosen = _choose(home)
    if chosen.uri in _chosen_addresses:
        schema.require_current(chosen.home)
        try:
            moved.update_addresses(chosen.home)
        except UserError as error:  # the contents of the database can still be shown
            _LOG.warning("%s", error)
    return chosen


def _choose(home: Path) -> Store:
    home = home.absolute()
    address = configured_address()
    return _use_store(Store(address or _address(home), home), chosen_here=not address)


def _use_store(chosen: Store, chosen_here: bool) -> Store:
    """Make `chosen` the store of this process, and configure MLflow for it.

    Args:
        chosen: the store.
        chosen_here: whether its address was chosen here and not by the user.
    """
    global _store

    import mlflow

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    for logger_name in ("alembic", "mlflow.transformers"):
        logging.getLogger(logger_name).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it logs what it raises, with a traceback
    mlflow.set_tracking_uri(chosen.uri)
    mlflow.set_registry_uri(chosen.uri)
    if chosen_here:
        _chosen_addresses.add(chosen.uri)
    _store = chosen
    return chosen


def _address(home: Path) -> str:
    return f"sqlite:///{home / 'mlflow.db'}"


def configured_address() -> str:
    """Return MLFLOW_TRACKING_URI if the user set it, else "".

    MLflow itself writes the chosen address into the environment: addresses that this module chose earlier do not count.

    Raises:
        UserError: it is the address of a server, and contains a password.
    """
    address = os.environ.get("MLFLOW_TRACKING_URI", "")
    return "" if address in _chosen_addresses else plain_address.required("MLFLOW_TRACKING_URI", address)


def current() -> Store:
    """Return the configured store.

    Raises:
        RuntimeError: `configure` was not called.
    """
    if _store is None:
        raise RuntimeError("tracking is not configured: call tasks.tracking.store.configure(home) first")
    return _store


def client() -> MlflowClient:
    """Return a client of the configured store."""
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=current().uri, registry_uri=current().uri)


def experiment_id(name: str) -> str:
    """Return the id of the experiment `name`; create it if it is missing, restore it if it was deleted."""
    from mlflow import MlflowException

    experiment = patiently(client().get_experiment_by_name, name)
    if experiment is None:
        store = current()
        folder = (store.home / "mlartifacts" / name).as_uri() if store.embedded else None
        try:
            return patiently(client().create_experiment, name, artifact_location=folder, tags=_SHOWN_AS_TRAINING)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return experiment_id(name)
    if experiment.lifecycle_stage == "deleted":
        patiently(client().restore_experiment, experiment.experiment_id)
    return str(experiment.experiment_id)


def is_passing(error: BaseException) -> bool:
    """Return whether an error may be temporary: the server is away or overloaded, or the database is locked."""
    import requests
    from mlflow import MlflowException

    if out_of_space(error):  # MLflow calls this "temporarily unavailable"
        return False
    if isinstance(error, requests.RequestException):
        response = error.response
        return response is None or response.status_code >= 500 or response.status_code in (408, 429)
    if not isinstance(error, MlflowException):
        return isinstance(error, ConnectionError | TimeoutError)
    if error.error_code in ("TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "DEADLINE_EXCEEDED"):
        return True
    text = str(error)
    away = "API request to" in text and ("failed with exception" in text or "failed with error code 5" in text)
    # MLflow reports its own lack of database connections, under many runs at once, as a bad request.
    return away or "database is locked" in text or "QueuePool limit of size" in text


def _refusal_of(error: BaseException) -> str:
    """Return why a server with logins refused a call, as the rest of a sentence; "" for any other error."""
    text = str(error)
    if "failed with error code 401" in text:
        return "does not let anybody in without a login: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    if "failed with error code 403" in text:
        user = os.environ.get("MLFLOW_TRACKING_USERNAME") or "this user"
        return f"does not let {user} do this: an administrator can give them more (mlflow/README.md)"
    return ""


def patiently(call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    """Call a function; while the server is unreachable, call it again with growing pauses, for PATIENCE seconds.

    Raises:
        UserError: the server was unreachable for longer, or at all after this process was requested to stop; its disk
            is full; it does not know the user, or denies them access.
    """
    pause, began = 0.5, time.monotonic()
    while True:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            if out_of_space(error):
                raise (
                    no_space(current().home)
                    if current().embedded
                    else UserError(f"the tracking server {current().shown} has no space left on its disk")
                ) from error
            if refusal := _refusal_of(error):
                raise UserError(f"the tracking server {current().shown} {refusal}") from error
            if not is_passing(error):
                raise
            waited = time.monotonic() - began
            reason = str(error).splitlines()[0][:200]
            if waited + pause > PATIENCE or interrupt.received_signal():
                raise UserError(
                    f"the tracking server {current().shown} does not answer since {waited:.0f} s ({reason})"
                ) from error
            _LOG.warning("tracking server %s: %s; trying again in %.1f s", current().shown, reason, pause)
            time.sleep(pause)
            pause = min(pause * 2, 15.0)


def all_pages(search: Callable[..., PagedList[Result]], *args: Any, **kwargs: Any) -> list[Result]:
    """Return all results of an MLflow search, page after page."""
    results: list[Result] = []
    token: str | None = None
    while True:
        page = patiently(search, *args, **kwargs, page_token=token)
        results.extend(page)
        token = page.token
        if not token:
            return results


_thread_lock = threading.RLock()


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Hold the file lock `name` of the state folder, which one thread of one process at a time can have."""
    with _thread_lock, (current().home / f"{name}.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
