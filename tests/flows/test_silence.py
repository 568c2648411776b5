"""Tests of missed runs, with a clock that the test sets: runs that were due and did not begin are reported once."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows.schedule import silence
from flows.schedule.silence import LastRun, missed_runs, recorded_run, report_missed_runs, silent
from models.base.errors import UserError
from tasks.host import clock
from tasks.messages.receivers import URLS
from tests.support.message_listener import Listener

NIGHTLY = [("0 1 * * *", "UTC")]


def day(number: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(2030, 3, number, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("last", "now", "due"),
    [
        (None, day(2, 1, 14), []),  # it may still begin
        (None, day(2, 1, 15), [day(2, 1)]),
        (LastRun(day(2, 1), day(2, 3)), day(2, 12), []),
        (LastRun(day(2, 0, 59), day(2, 0, 59)), day(2, 12), [day(2, 1)]),  # started by hand before it was due
        (LastRun(day(2, 1), day(2, 3)), day(5, 0, 59), [day(3, 1), day(4, 1)]),
        (
            LastRun(day(2, 1), day(4, 0)),
            day(4, 12),
            [day(4, 1)],
        ),  # the run took two days
    ],
)
def test_what_was_missed(last: LastRun | None, now: datetime, due: list[datetime]) -> None:
    assert list(missed_runs(NIGHTLY, last, day(1, 12), now)) == due


def test_two_schedules_of_one_deployment_and_a_time_zone() -> None:
    both = [("0 1 * * *", "UTC"), ("0 2 * * *", "Europe/Berlin")]  # the same moment in winter
    assert missed_runs(both, None, day(1, 12), day(3)) == (day(2, 1),)
    summer = datetime(2030, 7, 1, 12, tzinfo=UTC)
    assert len(missed_runs(both, None, summer, summer + timedelta(days=1))) == 2


@pytest.mark.parametrize(("cron", "zone"), [("every night", "UTC"), ("0 1 * * *", "Atlantis")])
def test_no_schedule_is_one_line(cron: str, zone: str) -> None:
    with pytest.raises(UserError, match=r"^no schedule: "):
        missed_runs([(cron, zone)], None, day(1), day(2))


def test_a_run_that_goes_on_a_killed_one_and_one_of_no_deployment(tmp_path: Path) -> None:
    with recorded_run(tmp_path, ""):
        pass
    assert list(tmp_path.iterdir()) == []
    with recorded_run(tmp_path, "a/b"):
        known = silence.last_run(tmp_path, "a/b", day(9))
        assert known is not None and known.until == day(9)
    ended = silence.last_run(tmp_path, "a/b", day(9))
    assert ended is not None and ended.until <= clock.now() < day(9)


def test_it_is_told_once_for_each_night_and_not_of_nights_before_it_was_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener()
    monkeypatch.setenv(URLS, listener.receiver.url)
    served = {"nightly": NIGHTLY, "by hand": []}
    try:
        for now in (day(3), day(3, 12), day(3, 13), day(4, 12), day(4, 13)):
            report_missed_runs(tmp_path, served, "http://prefect/deployments", now)
        monkeypatch.setattr(clock, "now", lambda: day(5, 1))
        with recorded_run(tmp_path, "nightly"):
            report_missed_runs(tmp_path, served, "http://prefect/deployments", day(5, 12))
        report_missed_runs(tmp_path, served, "http://prefect/deployments", day(5, 13))
        assert silent(tmp_path, {"nightly": [("0 9 * * *", "UTC")]}, day(9)) == []  # no missed runs of a new schedule
    finally:
        listener.close()
    assert [(event["kind"], event["text"]) for event in listener.heard] == [
        ("silent", f"nightly did not run: it was due at 2030-03-0{night} 01:00 UTC http://prefect/deployments")
        for night in (3, 4)
    ]
