"""The page of people's comparisons of two versions: preference, agreement, and every answer."""

from __future__ import annotations

import math

from tasks.pages.html_page import escaped, table, whole_page
from tasks.pages.thumbnails import with_thumbnails
from tasks.people.people_say import ReviewSummary, Row


def review_page(summary: ReviewSummary) -> str:
    """Render one HTML file; completions and comments are shown as text."""
    facts = table(["question", "answer"], [[name, answer] for name, answer in review_lines(summary)])
    rows = sorted(summary.rows, key=lambda row: (str(row["problem"]), str(row["date"])))
    answers = "".join(_answer(row) for row in rows)
    lead = "What people preferred, blind to which version wrote what."
    return whole_page(f"{summary.model}: {summary.title}, by people", lead, f"{facts}<h2>Answers</h2>{answers}")


def review_lines(summary: ReviewSummary) -> list[tuple[str, str]]:
    """Summarise the answers as pairs of question and answer."""
    people = sorted({str(row["reviewer"]) for row in summary.rows})
    counts = [(name, sum(row["preferred"] == name for row in summary.rows)) for name in _LABELS]
    lines = [
        ("answers", f"{len(summary.rows)} by {len(people)}: {', '.join(people) or 'no reviewer yet'}"),
        ("of these", ", ".join(f"{count} {_LABELS[name]}" for name, count in counts)),
    ]
    if summary.preferred is not None:
        low, high = summary.preferred.low, summary.preferred.high
        lines.append(
            (
                "candidate preferred",
                f"{summary.preferred.estimate:.0%} [{low:.0%}, {high:.0%}] of the prompts that were decided",
            )
        )
        lines.append(("what stood first", f"preferred in {summary.first:.0%}"))
    if summary.agreement.questions:
        alpha = (
            "not defined, all answers are equal"
            if math.isnan(summary.agreement.alpha)
            else f"{summary.agreement.alpha:.2f}"
        )
        lines.append(("agreement", f"{summary.agreement.share:.0%} of two answers to one prompt are the same"))
        lines.append(("Krippendorff's alpha", f"{alpha}, over {summary.agreement.questions} prompts"))
    else:
        lines.append(("agreement", "not known: no prompt has answers of two reviewers"))
    return lines


_LABELS = {"candidate": "for the candidate", "champion": "for the champion", "equal": "equal", "both bad": "both bad"}


def _answer(row: Row) -> str:
    texts = (
        [("better", row["chosen"]), ("worse", row["rejected"])]
        if "chosen" in row
        else [("candidate", row["candidate"]), ("champion", row["champion"])]
    )
    blocks = "".join(f"<p>{name}</p><pre>{escaped(str(text))}</pre>" for name, text in texts)
    comment = f"<p>{escaped(str(row['comment']))}</p>" if row["comment"] else ""
    head = f"{row['problem']}: {_LABELS[str(row['preferred'])]}, {row['reviewer']}, {row['date']}"
    prompt = f"<pre>{with_thumbnails(str(row['prompt']))}</pre>"
    return f"<details><summary>{escaped(head)}</summary>{prompt}{blocks}{comment}</details>"
