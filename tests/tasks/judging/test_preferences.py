"""Preferences as the metric: a judge that sees both orders, and people's choices; position bias is estimated."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from models.base.errors import UserError
from tasks.judging.preferences import JUDGED, PEOPLE, JudgeServer, read_preferences
from tasks.judging.report import as_html, as_json, as_text
from tests.support.loopback_server import answering
from tests.tasks.judging.written import judged, write_lines, write_problems

COUNT = 60
_SHOWN = re.compile(r"\[First answer\]\n(.*)\n\n\[Second answer\]\n(.*)\n\nGive", re.DOTALL)

Decide = Callable[[str, str], str]
"""Verdict of a judge from the first and the second answer."""


@contextmanager
def judge_server(decide: Decide) -> Iterator[str]:
    """Run a judge on loopback, a model named `critic`."""

    def answer(path: str, body: Any) -> tuple[int, object]:
        if path.endswith("/models"):
            return 200, {"data": [{"id": "critic"}]}
        shown = _SHOWN.search(body["messages"][0]["content"])
        assert shown and body["model"] == "critic" and body["temperature"] == 0.0
        content = f"One is clearer. The answer is {decide(shown[1], shown[2])}"
        return 200, {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}

    with answering(answer) as address:
        yield address


def by_text(first: str, second: str) -> str:
    return "neither" if ("good" in first) == ("good" in second) else "first" if "good" in first else "second"


def answers(folder: Path, name: str, good: int) -> Path:
    """Write an answer to each problem; the first `good` of them are good."""
    rows = [
        {"id": number, "answer": f"{'good' if number < good else 'bad'} {name} {number}"} for number in range(COUNT)
    ]
    return write_lines(folder / f"{name}.jsonl", rows)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "champion": answers(tmp_path, "old", 10),
        "candidate": answers(tmp_path, "new", 50),
        "data": write_problems(tmp_path / "problems.jsonl", COUNT),
    }


@pytest.mark.rotating(of=6)
def test_a_judge_without_bias_finds_the_better_candidate_from_differences_between_minus_1_and_1(
    files: dict[str, Path],
) -> None:
    with judge_server(by_text) as address:
        judgement = judged(**files, judge=JudgeServer(address, "critic"))
    assert (judgement.decision, judgement.metric, judgement.counts) == ("better", JUDGED, (40, 20, 0))
    assert judgement.verdict.difference.estimate == pytest.approx(40 / 60)
    facts = judgement.measured.preferences
    assert facts is not None and facts.first_place is not None and facts.first_place.estimate == 0.5
    assert (facts.by_order, facts.unread, facts.comparisons) == (0, 0, COUNT)
    assert "position bias: 0.500" in as_text(judgement) and "Preferences" in as_html(judgement)
    assert json.loads(as_json(judgement))["preferences"]["first_place"]["estimate"] == 0.5


@pytest.mark.rotating(of=6)
def test_a_judge_that_prefers_the_first_place_decides_nothing_and_its_bias_is_shown(files: dict[str, Path]) -> None:
    with judge_server(lambda first, second: "first") as address:
        judgement = judged(**files, judge=JudgeServer(address))
    assert judgement.decision == "not_shown" and judgement.verdict.difference.estimate == 0.0
    facts = judgement.measured.preferences
    assert facts is not None and facts.first_place is not None
    assert (facts.first_place.estimate, facts.by_order) == (1.0, COUNT)
    text = as_text(judgement)
    assert "the first place has an advantage" in text and "the order decides in 60 pairs, which count as equal" in text
    assert "1.000" in as_html(judgement)


def test_equal_texts_are_equal_and_are_not_sent(tmp_path: Path) -> None:
    same = answers(tmp_path, "same", 5)

    def refuse(first: str, second: str) -> str:
        raise AssertionError("no comparison is needed")

    with judge_server(refuse) as address:
        judgement = judged(
            same, same, data=write_problems(tmp_path / "problems.jsonl", COUNT), judge=JudgeServer(address)
        )
    assert judgement.decision == "not_shown" and judgement.counts == (0, COUNT, 0)


@pytest.mark.rotating(of=6)
def test_a_judge_without_verdicts_and_one_that_does_not_answer_are_refused_before_a_look(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.base.http_client.time.sleep", lambda seconds: None)
    ledger = tmp_path / "looks.json"
    with judge_server(lambda first, second: "something else") as address:
        with pytest.raises(UserError, match="120 of 120 answers have no verdict"):
            judged(**files, judge=JudgeServer(address), ledger=ledger)
        with pytest.raises(UserError, match="no model other"):
            judged(**files, judge=JudgeServer(address, "other"), ledger=ledger)
    with pytest.raises(UserError, match=r"--judge http://127\.0\.0\.1:1/v1") as refused:
        judged(**files, judge=JudgeServer("http://127.0.0.1:1/v1"), ledger=ledger)
    assert "\n" not in str(refused.value) and not ledger.exists()


def test_a_judge_needs_texts_and_prompts(files: dict[str, Path], tmp_path: Path) -> None:
    scores = write_lines(tmp_path / "scores.jsonl", [{"id": number, "score": 1} for number in range(COUNT)])
    with pytest.raises(UserError, match="scores without texts, which a judge cannot compare"):
        judged(scores, scores, data=files["data"], judge=JudgeServer("http://127.0.0.1:1"))
    with pytest.raises(UserError, match="no prompt of 60 problems"):
        judged(files["champion"], files["candidate"], judge=JudgeServer("http://127.0.0.1:1"))


def choices(file: Path, rows: list[dict[str, object]]) -> Path:
    return write_lines(file, rows)


def test_choices_of_people_are_the_metric(files: dict[str, Path], tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {
            "problem": number,
            "winner": "b" if number < 40 else "tie",
            "order": "ab" if number % 2 else "ba",
            "person": "p",
        }
        for number in range(50)
    ]
    rows += [{"problem": 0, "winner": "a", "order": "ab", "person": "q"}, {"problem": 999, "winner": "a"}]
    judgement = judged(**files, preferences=choices(tmp_path / "people.jsonl", rows))
    assert (judgement.decision, judgement.metric) == ("better", PEOPLE)
    assert judgement.verdict.difference.estimate == pytest.approx(39 / 50), "the two people disagree on problem 0"
    facts = judgement.measured.preferences
    assert facts is not None and (facts.comparisons, facts.problems) == (51, 50)
    assert facts.candidate_first == pytest.approx(25 / 51) and facts.first_place is not None
    assert facts.first_place.low < 0.5 < facts.first_place.high
    text = as_text(judgement)
    assert "1 preferences about other problems were not read" in text
    assert "10 problems have no preference and are left out of people_preference" in text


def test_an_order_that_is_always_the_same_is_named(files: dict[str, Path], tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"problem": n, "winner": "b", "order": "ba"} for n in range(COUNT)]
    text = as_text(judged(**files, preferences=choices(tmp_path / "people.jsonl", rows)))
    assert "shown first in 100.0% of the comparisons: position bias does not cancel" in text
    without = [{key: row[key] for key in ("problem", "winner")} for row in rows]
    text = as_text(judged(**files, preferences=choices(tmp_path / "people.jsonl", without)))
    assert "position bias is not known" in text


def test_a_later_choice_of_a_person_replaces_the_earlier_one_and_a_changed_file_is_another_look(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"problem": 1, "winner": "a", "person": "p"},
        {"problem": 1, "winner": "b", "person": "p"},
    ]
    chosen, content = read_preferences(choices(tmp_path / "a.jsonl", rows))
    assert [each.candidate for each in chosen["1"]] == [1.0]
    assert read_preferences(choices(tmp_path / "b.jsonl", rows[:1]))[1] != content
    assert read_preferences(choices(tmp_path / "c.jsonl", rows[1:]))[1] == content


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "people.jsonl:1: not valid JSON"),
        ("[]", "people.jsonl:1: not an object"),
        ('{"winner": "a"}', "people.jsonl:1: the key problem is missing"),
        ('{"problem": 1, "winner": "c"}', "the winner is 'c', not a"),
        ('{"problem": 1, "winner": ["a"]}', "the winner is .*, not a"),
        ('{"problem": 1, "winner": "a", "order": "x"}', "the order is 'x', not ab or ba"),
        ('{"problem": 1, "winner": "a", "person": 3}', "the person is '3', not a text"),
        ("", "people.jsonl: no row"),
    ],
)
def test_a_wrong_row_is_named_in_one_line(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "people.jsonl").write_text(line)
    with pytest.raises(UserError, match=message) as refused:
        read_preferences(tmp_path / "people.jsonl")
    assert "\n" not in str(refused.value)


def test_another_metric_may_be_primary_and_the_preferences_are_then_shown(
    files: dict[str, Path], tmp_path: Path
) -> None:
    from tasks.judging.verdict import JudgeSettings

    rows: list[dict[str, object]] = [{"problem": number, "winner": "tie"} for number in range(COUNT)]
    judgement = judged(
        **files,
        verifier="exact_answer",
        settings=JudgeSettings(metric="lenient_accuracy"),
        preferences=choices(tmp_path / "people.jsonl", rows),
    )
    assert judgement.metric == "lenient_accuracy" and PEOPLE in [line.name for line in judgement.metrics]
