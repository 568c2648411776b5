"""People's answers as rows of preference pairs, and as a summary with the reviewers' agreement. Pure functions.

    preferences_reviewed.jsonl    one of the two is better: a reward model may learn from it
    undecided.jsonl               equal, or both bad: kept, and not a pair

Collected rows are kept, even if their run is deleted; a person's later answer about the same pair replaces the earlier
one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from models.evaluation.agreement import Agreement, agreement
from models.evaluation.bootstrap import Interval, bootstrap_mean
from tasks.people.blind_pairs import BlindReview
from tasks.tracking.review_queues import ReviewerAnswer

DECIDED, UNDECIDED = "preferences_reviewed.jsonl", "undecided.jsonl"
"""Files of answers with and without a preference."""
POLICIES = ("candidate", "champion")
"""Values of a decided answer; `equal` and `both bad` are the undecided ones."""

Row = dict[str, str | int]


@dataclass(frozen=True)
class ReviewSummary:
    """Summary of people's answers about two versions."""

    title: str
    model: str
    candidate: int
    champion: int
    rows: Sequence[Row]
    agreement: Agreement
    preferred: Interval | None
    """Mean over prompts of the share of decided answers that prefer the candidate; None without decided answers."""
    first: float
    """Share of decided answers for the first of the two: far from a half, reviewers judge by position; NaN if none."""


def rows_of(review: BlindReview, answers: Iterable[ReviewerAnswer]) -> list[Row]:
    """Return one row an answer, as it is stored.

    Args:
        review: the review with its pairs.
        answers: answers about its traces, and possibly about others.
    """
    rows = []
    for answer in answers:
        if answer.trace not in review.pairs:
            continue
        pair = review.pairs[answer.trace]
        texts = {"candidate": pair.candidate, "champion": pair.champion}
        shown = POLICIES if review.candidate_first[answer.trace] else POLICIES[::-1]
        meant = {"first": shown[0], "second": shown[1]}.get(answer.value, answer.value)
        row: Row = {"prompt": pair.prompt}
        if meant in POLICIES:
            row |= {"chosen": texts[meant], "rejected": texts[POLICIES[meant == "candidate"]]}
        else:
            row |= texts
        row |= {
            "level": pair.level,
            "split": "train",  # as its prompt is; together with data that hold it out, it is left out
            "preferred": meant,
            "place": answer.value,
            "reviewer": answer.reviewer or review.reviewer or "anybody",
            "date": answer.at.isoformat(timespec="seconds"),
            "comment": answer.comment,
            "problem": pair.problem,
            "versions": f"{review.model}/{review.candidate} against {review.champion}",
            "trace": answer.trace,
        }
        rows.append(row)
    return rows


def merged(before: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Merge earlier and new rows: the last answer of each person about each trace, oldest first."""
    last: dict[tuple[str, str], Row] = {}
    for row in [*before, *new]:
        last[str(row["trace"]), str(row["reviewer"])] = row
    return sorted(last.values(), key=lambda row: (str(row["date"]), str(row["trace"]), str(row["reviewer"])))


def as_files(rows: Sequence[Row]) -> dict[str, str]:
    """Return file name -> its lines; a file without a row is left out."""
    kinds = {
        DECIDED: [row for row in rows if row["preferred"] in POLICIES],
        UNDECIDED: [row for row in rows if row["preferred"] not in POLICIES],
    }
    return {
        name: "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in of_kind)
        for name, of_kind in kinds.items()
        if of_kind
    }


def review_summary_of(review: BlindReview, rows: Sequence[Row]) -> ReviewSummary:
    """Summarise the answers about two versions.

    Args:
        review: a review of these versions, possibly one of several.
        rows: all of their rows.
    """
    by_problem: dict[str, dict[str, str]] = defaultdict(dict)
    decided: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_problem[str(row["problem"])][str(row["reviewer"])] = str(row["preferred"])
        if row["preferred"] in POLICIES:
            decided[str(row["problem"])].append(float(row["preferred"] == "candidate"))
    means = [sum(values) / len(values) for values in decided.values()]
    places = [float(row["place"] == "first") for row in rows if row["preferred"] in POLICIES]
    return ReviewSummary(
        title=review.title,
        model=review.model,
        candidate=review.candidate,
        champion=review.champion,
        rows=rows,
        agreement=agreement(list(labels.values()) for labels in by_problem.values()),
        preferred=bootstrap_mean(means) if means else None,
        first=sum(places) / len(places) if places else float("nan"),
    )


def metrics_of(what: ReviewSummary) -> Mapping[str, float]:
    """Return the summary as metrics of the candidate's run; unknown ones are NaN."""
    return {
        "review/answers": float(len(what.rows)),
        "review/agreement": what.agreement.share,
        "review/alpha": what.agreement.alpha,
        "review/candidate_preferred": what.preferred.estimate if what.preferred else float("nan"),
        "review/first_preferred": what.first,
    }
