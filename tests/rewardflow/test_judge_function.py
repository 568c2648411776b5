"""`rewardflow.judge`: the result as data, and the same as the command's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rewardflow
from flows import command_line
from tests.tasks.judging.written import write_lines, write_scores


def test_the_outcome_is_that_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    old = write_scores(tmp_path / "old.jsonl", [float(number < 100) for number in range(300)])
    new = write_scores(tmp_path / "new.jsonl", [float(number < 200) for number in range(300)])
    outcome = rewardflow.judge(old, new, ledger=tmp_path / "looks.json")
    monkeypatch.setattr("sys.argv", f"rewardflow judge --champion {old} --candidate {new} --json r.json".split())
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == 0
    capsys.readouterr()
    written = json.loads((tmp_path / "r.json").read_text())
    assert outcome.decision == written["decision"] == "better" and outcome.reason == written["headline"]
    assert (outcome.difference.mean, outcome.difference.low) == (
        written["difference"]["estimate"],
        written["difference"]["low"],
    )
    assert outcome.look == 1 and outcome.failed == [] and 0 < outcome.detectable < 0.3
    assert outcome.better.state == "passed" and outcome.position_bias is None and outcome.run_id == ""
    frame = outcome.to_frame()
    assert list(frame.columns) == ["metric", "champion", "candidate", "difference", "low", "high"]
    assert frame["metric"].tolist() == ["score"] and frame["difference"][0] == pytest.approx(1 / 3)


def test_guards_and_preferences_are_given_as_data(tmp_path: Path) -> None:
    rows = [{"id": number, "scores": {"right": 1.0, "polite": float(number % 2)}} for number in range(100)]
    old = write_lines(tmp_path / "old.jsonl", [{**row, "scores": {"right": 0.0, "polite": 1.0}} for row in rows])
    new = write_lines(tmp_path / "new.jsonl", rows)
    outcome = rewardflow.judge(old, new, metric="right", guards={"polite": 0.1})
    assert outcome.decision == "refused" and outcome.failed == ["polite"]
    people = write_lines(
        tmp_path / "people.jsonl",
        [{"problem": number, "winner": "b", "order": ("ab", "ba")[number % 2]} for number in range(100)],
    )
    outcome = rewardflow.judge(old, new, preferences=people)
    assert (outcome.decision, outcome.difference.metric) == ("better", "people_preference")
    assert outcome.position_bias is not None and outcome.position_bias.mean == 0.5


@pytest.mark.parametrize(
    "arguments, line",
    [
        ({"judge_model": "x"}, "judge_address names the server"),
        ({"guards": {"score": 2}}, "must be a number between 0 and 1"),
        ({"score_range": (1.0, 0.0)}, "low below high"),
        ({"settings": {"nothing": 1}}, "--set nothing: unknown"),
        ({"settings": {"metric": "score"}}, "not a setting of judge"),
        ({"judge_address": "http://127.0.0.1:1", "preferences": "p"}, "each is a metric of its own"),
        ({"preferences": "missing.jsonl"}, "missing.jsonl: No such file"),
    ],
)
def test_a_wrong_argument_is_one_line(arguments: dict[str, object], line: str, tmp_path: Path) -> None:
    file = write_scores(tmp_path / "a.jsonl", [0.0, 1.0])
    with pytest.raises(rewardflow.UserError, match=line) as refused:
        rewardflow.judge(file, file, **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
