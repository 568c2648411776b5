"""`versions`, `promote` and `rollback`: the registry from Python."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.tracking.registry import VersionInfo


@dataclass(frozen=True)
class Version:
    """A version of a registered model."""

    model: str
    number: int
    aliases: tuple[str, ...]
    """Aliases such as champion, previous and candidate."""
    created: datetime
    decision: str
    """The gate's decision; empty if there is none."""
    reason: str
    """The reason of the decision in one sentence."""

    @property
    def address(self) -> str:
        """Address of the version for MLflow, `models:/NAME/NUMBER`."""
        return f"models:/{self.model}/{self.number}"


def versions(model: str = "") -> list[Version]:
    """Return the versions of a registered model, the newest first.

    Args:
        model: name of the model; empty: the only registered policy.

    Raises:
        UserError: there is no policy, or there are several and none is named.
    """
    from flows.runtime.command_options import meant_policy
    from flows.runtime.environment import state_folder
    from tasks.tracking import registry, store

    store.open_for_reading(state_folder())
    return [_version(info) for info in registry.versions(meant_policy(model))]


def promote(version: int, *, model: str = "", by: str = "", why: str = "from Python") -> Version:
    """Make a version the champion by hand, as `rewardflow promote` does; the champion before it becomes `previous`.

    Args:
        version: number of the version.
        model: name of the model; empty: the only registered policy.
        by: person who decides, for the audit log; empty: the user of the process.
        why: reason, for the audit log.

    Raises:
        UserError: there is no such version.
    """
    from tasks.tracking import aliases

    name = _writable(model)
    aliases.record_outside_changes(name)
    return _version(aliases.promote(name, version, why=why, by=by))


def rollback(*, model: str = "", by: str = "", why: str = "") -> Version:
    """Make the previous champion the champion again, as `rewardflow rollback` does.

    Args:
        model, by, why: as in `promote`.

    Raises:
        UserError: there is no champion or no previous champion.
    """
    from tasks.tracking import aliases

    name = _writable(model)
    return _version(aliases.rollback(name, by=by, why=why))


def _writable(model: str) -> str:
    from flows.runtime.command_options import meant_policy
    from flows.runtime.environment import writable_state_folder
    from tasks.tracking import store

    store.configure(writable_state_folder())
    return meant_policy(model)


def _version(info: VersionInfo) -> Version:
    from tasks.tracking.verdict_record import read_verdict
    from tasks.tracking.verdict_text import reason_text

    verdict = read_verdict(info)
    decision, reason = (str(verdict.decision), reason_text(verdict)) if verdict else ("", "")
    return Version(info.name, info.version, info.aliases, info.created, decision, reason)
