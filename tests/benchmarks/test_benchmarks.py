"""Tests of what the benchmarks share: rows, tables, alternating runs, committed results and the guide.

No test sets a limit on a measured time.
"""

import json
import re
import threading
from functools import partial
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS, RESULTS
from benchmarks.claims.judge_errors import RESULT as JUDGE_ERRORS
from benchmarks.claims.run import RESULT as CLAIMS
from benchmarks.shared.alternate import Stepper, alternate, fastest
from benchmarks.shared.machine import describe
from benchmarks.shared.rows import compare, read, table, write
from benchmarks.speed.gate_nights import DIFFERENCES, LEVELS, NIGHTS, SAMPLES
from benchmarks.speed.gate_nights import RESULT as GATE_NIGHTS

ROOT = Path(__file__).resolve().parents[2]
CURVES = {*RESULTS.glob("main_curve_*.json"), *RESULTS.glob("real_curve_*.json")}
OF_ROWS = sorted(set(RESULTS.glob("*.json")) - {CLAIMS, GATE_NIGHTS, JUDGE_ERRORS} - CURVES)
COLUMNS = {"measure", "ours", "peer", "unit", "ratio", "at_least", "met"}


def test_the_ratio_says_how_many_times_better_whatever_the_unit() -> None:
    assert compare("rate", [30.0, 10.0, 20.0], [5.0, 1.0, 9.0], "tokens/s", 4.0).ratio == 4.0
    assert compare("time", [0.5], [2.0], "s", 4.0, smaller_is_better=True).ratio == 4.0


@pytest.mark.parametrize(("peer", "met"), [([5.0], True), ([5.1], False), (None, False)])
def test_a_row_is_met_where_the_ratio_is_reached_and_says_why_where_not(peer: list[float] | None, met: bool) -> None:
    row = compare("rate", [20.0], peer, "x", 4.0, short="it is slow")
    assert row.met is met
    assert bool(row.reason) is not met


def test_a_written_row_reads_back_and_has_every_column(tmp_path: Path) -> None:
    rows = [compare("a", [2.0, 3.0], [1.0], "x", 1.5), compare("b", [2.0], None, "x", 1.5, short="no peer")]
    write(tmp_path / "deep" / "name.json", "name", {"cpu": "any"}, rows, {"repeats": 1})
    content = json.loads((tmp_path / "deep" / "name.json").read_text())
    assert all(set(row) >= COLUMNS for row in content["rows"])
    assert content["machine"] == {"cpu": "any"}
    assert read(tmp_path / "deep" / "name.json") == rows
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["name.json"]


def test_the_table_has_a_line_for_every_row_and_the_reasons() -> None:
    text = table([compare("fast", [4.0], [1.0], "x", 3.0), compare("slow", [1.0], [1.0], "x", 3.0, short="honest")])
    assert len(text.splitlines()) == 2 + 2 + 1
    assert "slow: honest" in text


def test_the_machine_is_described() -> None:
    facts = describe(measure=False)
    assert {"cpu", "cores", "flags", "memory_gib", "threads", "versions", "date"} <= set(facts)
    assert facts["versions"]["torch"]
    json.dumps(facts)


@pytest.mark.rotating(of=6)
def test_two_sides_take_turns_and_never_run_at_once() -> None:
    order: list[str] = []

    def side(name: str):
        def run(beat) -> None:
            while True:
                order.append(name)
                beat()

        return run

    sides = {"a": Stepper(side("a")), "b": Stepper(side("b"))}
    seconds = alternate(sides, warm=1, repeats=2, steps=2)
    for stepper in sides.values():
        stepper.stop()
    assert "".join(order) == "ab" + "aabb" * 2
    assert {name: len(values) for name, values in seconds.items()} == {"a": 2, "b": 2}


def test_a_run_that_fails_or_ends_early_is_told() -> None:
    def fails(beat) -> None:
        beat()
        raise ValueError("broken")

    stepper = Stepper(fails)
    stepper.advance(1)
    with pytest.raises(ValueError, match="broken"):
        stepper.advance(1)
    with pytest.raises(RuntimeError, match="ended before"):
        Stepper(lambda beat: None).advance(1)


def test_of_several_ways_the_fastest_that_runs_is_kept() -> None:
    never = threading.Event()

    def slow(beat) -> None:
        while not never.wait(0.2):
            beat()

    def quick(beat) -> None:
        while True:
            beat()

    def broken(beat) -> None:
        raise ValueError("no")

    stepper, report = fastest(
        {name: partial(Stepper, run) for name, run in (("slow", slow), ("broken", broken), ("quick", quick))}
    )
    stepper.stop()
    assert report["setting"] == "quick"
    assert "does not run" in report["tried_seconds"]["broken"]


@pytest.mark.parametrize("path", OF_ROWS, ids=lambda path: path.name)
def test_every_result_in_the_repository_is_whole(path: Path) -> None:
    content = json.loads(path.read_text())
    assert content["machine"]["cpu"] and not content["settings"].get("quick") and not content["settings"].get("tiny")
    for row in content["rows"]:
        assert set(row) >= COLUMNS
        if row["at_least"] is not None and row["ratio"] is not None:
            assert row["met"] == (row["ratio"] >= row["at_least"])
        assert row["met"] or row["reason"]


def test_the_gates_nights_are_a_whole_year_of_the_simulation_as_it_stands() -> None:
    """The numbers are simulated from seeds. The result therefore has intervals, but neither a machine nor a peer."""
    content = json.loads(GATE_NIGHTS.read_text())
    assert (content["nights"], content["problems"], content["samples"]) == (max(NIGHTS), sum(LEVELS), SAMPLES)
    for question, least in {
        "found_better_in_a_year": 100,
        "promoted_in_a_year": 100,
        "by_an_interval_every_night": 100,
        "all_guards_passed": 400,
    }.items():
        answer = content[question]
        assert answer["of"] >= least, question
        assert 0 <= answer["low"] <= answer["share"] <= answer["high"] <= 1, question
    assert content["promoted_in_a_year"]["share"] <= content["found_better_in_a_year"]["share"]
    assert sum(content["guards_failed"].values()) >= 1 - content["all_guards_passed"]["share"] - 1e-12
    assert set(content["promoted_when_better"]) == {f"{difference:.2f}" for difference in DIFFERENCES}
    for shares in content["promoted_when_better"].values():
        assert [int(night) for night in shares] == list(NIGHTS)
        assert list(shares.values()) == sorted(shares.values(), reverse=True)  # later looks have a smaller alpha


def test_the_guide_states_the_shares_that_the_gates_nights_hold() -> None:
    content, guide = json.loads(GATE_NIGHTS.read_text()), (ROOT / "docs" / "gate.md").read_text()
    for question in ("found_better_in_a_year", "by_an_interval_every_night", "all_guards_passed"):
        answer = content[question]
        share = f"{answer['share']:.1%}".replace(".0%", "%").replace("%", " %")
        assert re.search(rf"\| {re.escape(share)} \| [\d.]+ to [\d.]+ % \|", guide), question


def test_the_guide_names_every_benchmark() -> None:
    guide = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [name for name in BENCHMARKS if name not in guide] == []
