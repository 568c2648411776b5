"""A person's word on a candidate that passed the gate: approved, it becomes the champion; rejected, it never does.

Nothing waits meanwhile: the version stands in the registry with what the gate said of it. The word is on that: where
the champion changed since, the candidate has to be judged against the new one first.
"""

from __future__ import annotations

from models.errors import UserError
from tasks import clock, run_names
from tasks.tracking import aliases, audit, lock, records, registry, runs, summaries, tags
from tasks.version_page import page_with_a_word

WAITING = "waiting"


def approve(name: str, version: int, *, by: str, why: str) -> registry.VersionInfo:
    """Make a candidate that waits the champion. Who, when and why stand on the version and in the audit log.

    Raises:
        UserError: no name or reason, no version that waits, or the champion is not the one that it was judged against.
    """
    info = _waits(name, version, by, why)
    verdict = info.tags[tags.VERDICT]
    new = aliases.promote(name, version, why=f"approved: {why}", by=by, judged_against=held_against(info))
    _note(info, f"Approved by {by}: {why}", f"promoted: approved by {by}; {_said(verdict)}")
    return new


def reject(name: str, version: int, *, by: str, why: str) -> registry.VersionInfo:
    """Refuse a candidate that waits. Who, when and why stand on the version and in the audit log.

    Raises:
        UserError: no name or reason, or no version that waits.
    """
    info = _waits(name, version, by, why)
    with lock.held(name) as lease:
        audit.append(name, lease, "rejected", version, by=by, why=why)
    _note(info, f"Rejected by {by}: {why}", f"refused: rejected by {by}: {why}; {_said(info.tags[tags.VERDICT])}")
    return registry.version_info(name, version)


def held_against(info: registry.VersionInfo) -> int | None:
    """The champion when a version was judged; None: there was none."""
    known = registry.facts_of(info).get(tags.JUDGED_AGAINST, "")
    return int(known) if known else None


def waits(info: registry.VersionInfo) -> bool:
    """Whether a version waits for a person's word."""
    return info.tags.get(tags.VERDICT, "").startswith(f"{WAITING}: ")


def _waits(name: str, version: int, by: str, why: str) -> registry.VersionInfo:
    if not by.strip() or not why.strip():
        raise UserError("an approval or rejection needs a name and a reason: --by NAME --why TEXT")
    if len(by) + len(why) > audit.LONGEST - 100:
        raise UserError(f"name and reason have {len(by) + len(why)} characters; {audit.LONGEST - 100} is the most")
    info = registry.version_info(name, version)
    if not waits(info):
        verdict = info.tags.get(tags.VERDICT, "it was never judged by the gate")
        waiting = [str(version.version) for version in registry.versions(name) if waits(version)]
        raise UserError(
            f"{name} version {version} does not wait for approval ({verdict}); waiting: {', '.join(waiting) or 'none'}"
        )
    return info


def _said(verdict: str) -> str:
    """What the gate said of a candidate that waits, without what it waits for."""
    return f"the gate: {verdict.removeprefix(f'{WAITING}: ').partition('; the recipe asks')[0]}"


def _note(info: registry.VersionInfo, word: str, verdict: str) -> None:
    """Put a person's word on the version, its page, and the page of the run that made it.

    The verdict last: until it stands there the version waits, and who was killed gives the same word again.
    """
    at = clock.now().strftime("%Y-%m-%d %H:%M UTC")
    run = info.tags.get(tags.RUN, "")
    if run:
        said = word.partition(" ")[0].lower()
        runs.set_tags(run, {tags.RUN_VERDICT: said})
        called, note = summaries.name_and_note(run)
        runs.rename(run, called.replace(run_names.WAITS, said))
        records.describe(run, page_with_a_word(f"{word} ({at})", note))
    page = page_with_a_word(f"{word} ({at})", info.description)
    registry.annotate(info.name, info.version, {tags.WORD: f"{word} ({at})"}, page)
    registry.annotate(info.name, info.version, {tags.VERDICT: verdict})
