"""Requests to people to compare the answers of two versions, as queues on MLflow's review page.

The pairs, and whose answer was shown first, are an artifact of the candidate's run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from models.base.errors import UserError, shortened
from tasks.people.blind_pairs import AnswerPair, BlindReview, candidate_first, pair_trace
from tasks.tracking import records, review_queues, runs, store, tags
from tasks.tracking.recorded import VersionRecord, of_version, read_text
from tasks.tracking.registry import VersionInfo

FOLDER = "review"
"""Folder of a run's artifacts about reviews by people."""
_REVIEWER = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,62}")
_ANYBODY = "anybody"
"""File name, without its ending, of a review that any person may answer."""


@dataclass(frozen=True)
class ReviewRequest:
    """A review and the page in MLflow on which it is answered."""

    review: BlindReview
    page: str
    """Path below the server's address."""
    new: bool
    """Whether it was newly created."""


def ask(
    candidate: VersionInfo, champion: VersionInfo, draw: Callable[[], Sequence[AnswerPair]], reviewers: Sequence[str]
) -> list[ReviewRequest]:
    """Create a review queue for each reviewer, or one for any person; existing queues are left unchanged.

    Each reviewer gets separate traces, so that reviewers do not see each other's answers.

    Args:
        candidate: a version.
        champion: the version that it is compared with, of the same registered model.
        draw: returns the pairs; called if a queue does not exist yet.
        reviewers: logins, in small letters as MLflow stores them; none for one queue that any person may answer.

    Raises:
        UserError: both are one version, or a reviewer's name is not a login; also errors that `draw` raises.
    """
    if candidate.version == champion.version:
        raise UserError(f"version {candidate.version} is compared with itself; name another one with --against")
    people = [_name(reviewer) for reviewer in reviewers] or [""]
    record = of_version(candidate)
    with store.exclusive("review"):
        pairs: Sequence[AnswerPair] = ()
        requests = []
        for person in dict.fromkeys(people):
            file = f"{FOLDER}/{candidate.version}-against-{champion.version}/{person or _ANYBODY}.json"
            text = read_text(record.run, file)
            if text:
                review = read_review(text)
            else:
                pairs = pairs or draw()
                review = _create_review(record, champion.version, file, person, pairs)
            requests.append(ReviewRequest(review, review_queues.page_of_queue(record.run, review.queue), new=not text))
    return requests


def reviews_of(run_id: str) -> list[BlindReview]:
    """Return the reviews of the version that a flow's run made, in order of creation."""
    return [read_review(text) for file in _files(run_id) if (text := read_text(run_id, file))]


def read_review(text: str) -> BlindReview:
    """Parse a review from an artifact of its run.

    Raises:
        UserError: it is not a review.
    """
    try:
        entries = json.loads(text)
        pairs = {trace: AnswerPair(**pair) for trace, pair in entries["pairs"].items()}
        return BlindReview(**{**entries, "pairs": pairs})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"an artifact below {FOLDER}/ is not a list of pairs ({error})") from error


def _name(reviewer: str) -> str:
    name = reviewer.strip().lower()
    if not _REVIEWER.fullmatch(name) or name == _ANYBODY:
        raise UserError(
            f"reviewer {shortened(reviewer)!r} is not a login: letters, digits and . _ @ + - after the first"
        )
    return name


def _create_review(
    record: VersionRecord, champion: int, file: str, reviewer: str, pairs: Sequence[AnswerPair]
) -> BlindReview:
    """Create a queue in MLflow and, once it is complete, the artifact that describes it."""
    assert record.version is not None
    number = len(_files(record.run))
    draft = BlindReview(
        model=record.version.name,
        candidate=record.version.version,
        champion=champion,
        data=record.params.get("data.name", "data"),
        reviewer=reviewer,
        queue="",
        pairs={},
        candidate_first={},
    )
    name = draft.title + (f", {reviewer}" if reviewer else "")
    queue = review_queues.make_queue(record.run, name, reviewer, [pair_trace(pair, number, file) for pair in pairs])
    by_trace = dict(zip(queue.traces, pairs, strict=True))
    review = replace(
        draft,
        queue=queue.id,
        pairs=by_trace,
        candidate_first={trace: candidate_first(pair.problem, number) for trace, pair in by_trace.items()},
    )
    records.log_text(record.run, file, json.dumps(asdict(review), ensure_ascii=False, indent=1))
    runs.set_tags(record.run, {tags.REVIEWS: json.dumps([*_files(record.run), file])})
    return review


def _files(run_id: str) -> list[str]:
    value = store.patiently(store.client().get_run, run_id).data.tags.get(tags.REVIEWS, "[]")
    return [str(file) for file in json.loads(value)]
