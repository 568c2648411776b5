"""Collection of people's answers as rows that DVC pins, and as a page and metrics on the reviewed version's run."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.base.strict_json import JsonError, parse_json
from models.datasets.settings import DataSettings
from tasks.data.add_data import add
from tasks.data.data_sources import RAW
from tasks.data.dvc_command import Report
from tasks.data.versions import DataVersion, current, pull, repository
from tasks.pages.review_page import review_page
from tasks.people.ask_people import FOLDER, reviews_of
from tasks.people.people_say import (
    DECIDED,
    UNDECIDED,
    ReviewSummary,
    Row,
    as_files,
    merged,
    metrics_of,
    review_summary_of,
    rows_of,
)
from tasks.tracking import records, review_queues
from tasks.tracking.recorded import of_version
from tasks.tracking.registry import VersionInfo


@dataclass(frozen=True)
class Collected:
    """Result of a collection."""

    name: str
    """Name of the data set."""
    version: DataVersion | None
    """Version of the data set; None if no answer prefers one of two versions: nothing can be learned from it."""
    rows: Sequence[Row]
    """All rows of the data set, including those of earlier collections."""
    new: int
    """Number of rows that are new or changed."""
    reviews: Sequence[ReviewSummary]
    """A summary of the answers for each pair of compared versions."""


def collect(newest: VersionInfo, root: Path, name: str = "", report: Report = print) -> Collected:
    """Collect all answers about a policy's versions: add new ones to a data set, and log summaries to the runs.

    Args:
        newest: a version of the policy.
        root: the repository.
        name: name of the data set; "" for the name of the policy's data followed by `-reviewed`.
        report: called with each line that DVC prints.

    Raises:
        UserError: no review was requested, or git or DVC fails; the previous state is kept.
    """
    root = repository(root)
    reviews = [
        (run, review)
        for run in review_queues.runs_with_reviews(of_version(newest).run)
        for review in reviews_of(run)
        if review.model == newest.name
    ]
    if not reviews:
        raise UserError(f"no reviewer was asked about {newest.name} yet; run `rewardflow review queue`")
    name = name or f"{reviews[-1][1].data}-reviewed"
    before = _rows_before(root, name, report)
    new_rows = [
        row for run, review in reviews for row in rows_of(review, review_queues.answers(run, list(review.pairs)))
    ]
    rows = merged(before, new_rows)
    summaries = []
    reviews_by_pair = defaultdict(list)
    for run, review in reviews:
        reviews_by_pair[run, review.candidate, review.champion].append(review)
    for (run, _, _), group in reviews_by_pair.items():
        traces = {trace for review in group for trace in review.pairs}
        summaries.append(review_summary_of(group[0], [row for row in rows if row["trace"] in traces]))
        _log_summary(run, summaries[-1])
    files = as_files(rows)
    version = _pin_version(root, name, files, rows != before, report) if DECIDED in files else None
    return Collected(name, version, rows, sum(row not in before for row in rows), summaries)


def _pin_version(root: Path, name: str, files: dict[str, str], changed: bool, report: Report) -> DataVersion:
    if not changed and (root / RAW / f"{name}.dvc").is_file():
        version = current(name, root)
        if not version.unpinned:
            return version
    with tempfile.TemporaryDirectory() as scratch:
        for file, text in files.items():
            write_file(Path(scratch) / file, text)
        settings = DataSettings(name=name, path=(Path(scratch),), format="kinds")
        return add(settings, root, report)[0]


def _rows_before(root: Path, name: str, report: Report) -> list[Row]:
    """Return the rows of an earlier collection; fetch them if only their pin exists."""
    folder = root / RAW / name
    if (root / RAW / f"{name}.dvc").is_file() and not folder.is_dir():
        pull(root, name, report=report)
    rows: list[Row] = []
    for file in (folder / DECIDED, folder / UNDECIDED):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines() if file.is_file() else [], 1):
            try:
                row = parse_json(line)
            except JsonError as error:
                raise UserError(f"{file}, line {number}: {error.reason}") from None
            if not isinstance(row, dict) or not {"trace", "reviewer", "date", "preferred"} <= row.keys():
                raise UserError(f"{file}, line {number}: no row that `rewardflow review collect` wrote")
            rows.append(row)
    return merged(rows, [])


def _log_summary(run: str, summary: ReviewSummary) -> None:
    records.log_text(run, f"{FOLDER}/{summary.candidate}-against-{summary.champion}.html", review_page(summary))
    records.log_metrics(run, metrics_of(summary))
