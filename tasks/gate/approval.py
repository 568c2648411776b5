"""A person's approval or rejection of a candidate that passed the gate.

No process waits for it: the version is in the registry with the gate's verdict. The verdict names the champion that the
candidate was compared with. If the champion changed since, the candidate has to be judged against the new one first.
"""

from __future__ import annotations

from models.base.errors import UserError
from tasks.host import clock
from tasks.pages import description, run_names
from tasks.pages.registered_page import annotate
from tasks.tracking import aliases, audit, lock, records, registry, runs, summaries, tags
from tasks.tracking.earlier_releases import run_page_below_verdict
from tasks.tracking.recorded import read_text
from tasks.tracking.verdict_record import Ruling, VerdictRecord, decided, read_verdict, store_decision
from tasks.tracking.verdict_text import in_run_name, verdict_text

PAGE_BELOW = "review/page.md"
"""Artifact of a flow's run: the part of its description below the verdict."""


def approve(name: str, version: int, *, by: str, why: str) -> registry.VersionInfo:
    """Make a waiting candidate the champion; the version, its page and the audit log record the person and the reason.

    Raises:
        UserError: no name or reason, no version that waits, or the champion is not the one that it was compared with.
    """
    info, record = _waiting_version(name, version, by, why)
    new = aliases.promote(name, version, why=f"approved: {why}", by=by, judged_against=judged_against(info))
    _write_ruling(info, record.model_copy(update={"decision": "promoted", "reason": "approved"}), True, by, why)
    return new


def reject(name: str, version: int, *, by: str, why: str) -> registry.VersionInfo:
    """Refuse a waiting candidate; the version, its page and the audit log record the person and the reason.

    Raises:
        UserError: no name or reason, or no version that waits.
    """
    info, record = _waiting_version(name, version, by, why)
    with lock.registry_lock(name) as lease:
        audit.append(name, lease, "rejected", version, by=by, why=why)
    _write_ruling(info, record.model_copy(update={"decision": "refused", "reason": "rejected"}), False, by, why)
    return registry.version_info(name, version)


def judged_against(info: registry.VersionInfo) -> int | None:
    """Return the version that was champion when the gate judged this version; None if there was none."""
    known = registry.facts_of(info).get(tags.JUDGED_AGAINST, "")
    return int(known) if known else None


def waits(info: registry.VersionInfo) -> bool:
    """Return whether a version waits for a person's approval."""
    return decided(info) == "waiting"


def _waiting_version(name: str, version: int, by: str, why: str) -> tuple[registry.VersionInfo, VerdictRecord]:
    if not by.strip() or not why.strip():
        raise UserError("an approval or rejection needs a name and a reason: --by NAME --why TEXT")
    if len(by) + len(why) > audit.LONGEST - 100:
        raise UserError(f"name and reason have {len(by) + len(why)} characters; {audit.LONGEST - 100} is the most")
    info = registry.version_info(name, version)
    record = read_verdict(info)
    if record is None or not waits(info):
        text = verdict_text(record) if record is not None else "it was never judged by the gate"
        waiting = [str(version.version) for version in registry.versions(name) if waits(version)]
        raise UserError(
            f"{name} version {version} does not wait for approval ({text}); waiting: {', '.join(waiting) or 'none'}"
        )
    return info, record


def _write_ruling(info: registry.VersionInfo, record: VerdictRecord, approved: bool, by: str, why: str) -> None:
    """Record a person's approval or rejection on the version, its page, and the page of the run that made it.

    The decision is written last: until then the version waits, and a caller that was killed rules again.
    """
    at = clock.now().strftime("%Y-%m-%d %H:%M UTC")
    ruled = record.model_copy(update={"ruling": Ruling(approved=approved, by=by, why=why, at=at)})
    if run := info.tags.get(tags.RUN, ""):
        tagged, note = runs.tags_of(run), summaries.name_and_note(run)[1]
        runs.set_tags(run, {tags.RUN_VERDICT: in_run_name(ruled)})
        runs.rename(run, run_names.judged(info.version, ruled))
        head = description.verdict(ruled.decision, info.name, info.version, ruled)
        below = read_text(run, PAGE_BELOW) or run_page_below_verdict(note)
        parts = [description.unpinned(tagged.get(tags.UNPINNED, "")), head, below]
        records.describe(run, "\n\n".join(filter(None, parts)))
    annotate(info, {tags.VERDICT_RECORD: ruled.model_dump_json()})
    store_decision(info, ruled.decision)
