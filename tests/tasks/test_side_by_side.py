"""Samples side by side: one row has the answers of all policies to a problem, and regressions come first."""

from models.evaluation.records import Completion, PromptRecord
from tasks.pages.side_by_side import side_by_side

PROBLEMS = {name: {"prompt": f"prompt {name}", "answer": name} for name in "abcdef"}


def record(name: str, greedy: bool, right: int, score: float = float("nan")) -> PromptRecord:
    samples = tuple(Completion("s", 3, number < right, True) for number in range(4))
    return PromptRecord(name, 2, samples, Completion(f"#### {name}{greedy}", 3, greedy, True, score))


def test_regressions_stand_first_the_deepest_fall_before_the_others():
    champion = [record(name, right, 4) for name, right in zip("abcdef", (1, 1, 0, 0, 1, 1), strict=True)]
    candidate = [
        record(name, bool(right), samples)
        for name, right, samples in zip("abcdef", (1, 0, 1, 0, 0, 0), (4, 2, 4, 0, 0, 3), strict=True)
    ]
    rows = side_by_side({"base": champion, "champion": champion, "candidate": candidate}, PROBLEMS)
    assert [(row["problem"], row["change"]) for row in rows] == [
        ("e", "worse"),
        ("b", "worse"),
        ("f", "worse"),
        ("c", "better"),
        ("d", "both wrong"),
        ("a", "both right"),
    ]


def test_a_row_shows_the_truth_and_every_policys_answer_with_its_right_samples():
    evaluations = {"base": [record("a", False, 1)], "candidate": [record("a", True, 3, 0.25)]}
    (row,) = side_by_side(evaluations, PROBLEMS)
    assert row == {
        "change": "better", "prompt": "prompt a", "truth": "a",
        "base": "#### aFalse", "base right": 0.25, "candidate": "#### aTrue", "candidate right": 0.75,
        "level": 2, "problem": "a", "reward model": 0.25,
    }  # fmt: skip


def test_the_candidate_is_compared_with_the_champion_where_there_is_one():
    evaluations = {
        "candidate": [record("a", False, 0)],
        "champion": [record("a", True, 4)],
        "base": [record("a", False, 0)],
    }
    (row,) = side_by_side(evaluations, PROBLEMS)
    assert row["change"] == "worse" and list(row)[3:9:2] == ["base", "champion", "candidate"]


def test_a_problem_that_another_policy_was_not_asked_stays_empty_there():
    (row,) = side_by_side({"base": [], "candidate": [record("a", True, 4)]}, PROBLEMS)
    assert (row["base"], row["base right"], row["change"]) == (None, None, "both right")
