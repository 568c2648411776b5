"""Reviews by people: the chosen text is the one that the reviewer pointed at, whichever answer was shown first."""

import json
import random
from datetime import UTC, datetime, timedelta

import pytest

from models.evaluation.records import Completion, PromptRecord
from tasks.pages.completion_traces import MOST, completion_traces
from tasks.pages.review_page import review_page
from tasks.people.blind_pairs import AnswerPair, BlindReview, answer_pairs, candidate_first, pair_trace
from tasks.people.people_say import DECIDED, UNDECIDED, as_files, merged, metrics_of, review_summary_of, rows_of
from tasks.tracking.review_queues import OPTIONS, ReviewerAnswer

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PAIRS = [AnswerPair(f"p{n}", f"prompt {n}", "7", 1, f"ours {n}", f"theirs\n{n}") for n in range(20)]


def asked(reviewer: int, name: str = "") -> BlindReview:
    """Return a review as `ask` writes it. The names of its traces contain the reviewer and the problem."""
    traces = {f"{reviewer}/{pair.problem}": pair for pair in PAIRS}
    first = {trace: candidate_first(pair.problem, reviewer) for trace, pair in traces.items()}
    return BlindReview("m", 2, 1, "arithmetic", name, "rq", traces, first)


def answer(trace: str, value: str, reviewer: str = "ann", late: int = 0) -> ReviewerAnswer:
    return ReviewerAnswer(trace, value, reviewer, NOW + timedelta(minutes=late), "")


def record(name: str, *texts: str) -> PromptRecord:
    samples = tuple(Completion(text, 1, False, True) for text in texts)
    return PromptRecord(name, 1, samples, samples[0])


@pytest.mark.parametrize("reviewer", [0, 1])
@pytest.mark.parametrize("place", ["first", "second"])
def test_the_chosen_text_is_the_one_that_stood_where_the_reviewer_pointed(reviewer: int, place: str) -> None:
    review = asked(reviewer)
    for trace, pair in review.pairs.items():
        shown = pair_trace(pair, reviewer, "file")
        (row,) = rows_of(review, [answer(trace, place)])
        other = "second" if place == "first" else "first"
        texts = {name: text if isinstance(text, str) else "\n".join(text) for name, text in shown.outputs.items()}
        assert (row["chosen"], row["rejected"]) == (texts[place], texts[other])
        assert {row["chosen"], row["rejected"]} == {pair.candidate, pair.champion}
        assert row["chosen"] == {"candidate": pair.candidate, "champion": pair.champion}[str(row["preferred"])]


def test_two_reviewers_see_opposite_orders_and_nothing_says_whose_answer_is_which() -> None:
    firsts = []
    for pair in PAIRS:
        traces = [pair_trace(pair, reviewer, "file") for reviewer in (0, 1)]
        assert traces[0].outputs["first"] == traces[1].outputs["second"]
        firsts.append(traces[0].outputs["first"] == pair.candidate)
        for trace in traces:
            assert not {"candidate", "champion"} & set(json.dumps([trace.tags, trace.name, *trace.outputs]).split('"'))
            assert set(trace.tags) == {"problem"}
    assert 0 < sum(firsts) < len(firsts), "within one reviewer's queue the order changes"


def test_who_always_takes_what_stands_first_prefers_neither_policy() -> None:
    rows = [row for reviewer in (0, 1) for row in rows_of(
        asked(reviewer), [answer(trace, "first", f"r{reviewer}") for trace in asked(reviewer).pairs]
    )]  # fmt: skip
    what = review_summary_of(asked(0), rows)
    assert what.preferred is not None and what.preferred.estimate == 0.5
    assert (what.first, what.agreement.share) == (1.0, 0.0)


def test_each_person_counts_once_a_pair_whatever_is_collected_how_often() -> None:
    review, chance = asked(0), random.Random(0)
    given = [
        answer(trace, chance.choice(OPTIONS), who, late)
        for late, (trace, who) in enumerate((trace, who) for trace in review.pairs for who in ("ann", "bob"))
    ]
    rows = merged([], rows_of(review, given))
    assert len(rows) == len(given) == 2 * len(PAIRS)
    assert merged(rows, rows_of(review, given)) == rows == merged(rows, [])
    trace = next(iter(review.pairs))
    (changed,) = rows_of(review, [answer(trace, "both bad", late=999)])
    later = merged(rows, [changed])
    assert len(later) == len(rows) and later[-1] == changed
    files = as_files(later)
    decided, undecided = ([json.loads(line) for line in files[name].splitlines()] for name in (DECIDED, UNDECIDED))
    assert len(decided) + len(undecided) == len(later)
    assert {row["preferred"] for row in decided} == {"candidate", "champion"}
    assert {row["preferred"] for row in undecided} == {"equal", "both bad"}
    assert not any("chosen" in row for row in undecided) and all(row["split"] == "train" for row in later)
    numbers = metrics_of(review_summary_of(review, rows))
    assert numbers["review/answers"] == len(rows) and -1 <= numbers["review/alpha"] <= 1


def test_an_answer_without_a_login_is_that_of_whose_queue_it_is() -> None:
    trace = next(iter(asked(0).pairs))
    names = [rows_of(asked(0, name), [answer(trace, "equal", by)])[0]["reviewer"]
             for name, by in (("ann", ""), ("", ""), ("ann", "cay"))]  # fmt: skip
    assert names == ["ann", "anybody", "cay"]
    assert rows_of(asked(0), [answer("of another run", "first")]) == []


def test_only_answers_that_differ_and_say_something_are_paired() -> None:
    rows = {name: {"prompt": f"prompt {name}", "answer": "1"} for name in "abcd"}
    measured = [
        (record("a", "x", "y"), record("a", "x ", "z")),  # the first samples differ only by a space
        (record("b", "x"), record("b", "x")),
        (record("c", " "), record("c", "x")),
        (record("d", "x"), record("d", "y")),
        (record("e", "x"), record("e", "y")),  # its prompt is not available
    ]
    pairs = answer_pairs(measured, rows, 10)
    assert {(pair.problem, pair.candidate, pair.champion) for pair in pairs} == {("a", "z", "y"), ("d", "y", "x")}
    assert len(answer_pairs(measured, rows, 1)) == 1


def test_the_page_takes_no_text_for_markup() -> None:
    evil = '<script>alert(1)</script>"&'
    pair = AnswerPair("p", evil, evil, 1, evil, evil + "!")
    review = BlindReview("m", 2, 1, "d", "", "rq", {"t": pair, "u": pair}, {"t": True, "u": False})
    given = [ReviewerAnswer("t", "first", evil, NOW, evil), ReviewerAnswer("u", "equal", evil, NOW, evil)]
    page = review_page(review_summary_of(review, rows_of(review, given)))
    assert "<script" not in page and page.count("&lt;script&gt;") >= 6


def test_the_same_few_prompts_of_each_evaluation_become_traces() -> None:
    names = [f"p{n}" for n in range(40)]
    rows = {name: {"prompt": f"prompt {name}", "answer": "1"} for name in names}
    evaluations = {role: [record(name, f"{role} {name}") for name in order]
                   for role, order in (("candidate", names), ("champion", names[::-1]))}  # fmt: skip
    traces = completion_traces(evaluations, rows, {"candidate": "3"})
    asked_of = {role: [trace.tags["problem"] for trace in traces if trace.tags["role"] == role] for role in evaluations}
    assert asked_of["candidate"] == asked_of["champion"] and len(asked_of["candidate"]) == MOST
    assert len({trace.key for trace in traces}) == 2 * MOST
    assert traces[0].tags["version"] == "3" and "version" not in traces[-1].tags
    assert "reward" not in traces[0].tags, "no reward model scored it"
    assert traces[0].outputs == {"completion": f"candidate {asked_of['candidate'][0]}"}
