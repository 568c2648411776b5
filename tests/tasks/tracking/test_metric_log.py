"""Metric curves: no value is lost or logged twice, and keys and values are such that MLflow and its UI accept them."""

import math
from pathlib import Path

import pytest

from models.base.errors import UserError
from tasks.tracking import journal, runs, store
from tasks.tracking.metrics import MOST_KEYS, MetricLog, clean_key


def history(run_id: str, key: str) -> list[tuple[int, float]]:
    history = store.client().get_metric_history(run_id, key)
    return [(metric.step, metric.value) for metric in sorted(history, key=lambda metric: metric.step)]


def test_every_value_arrives_once_and_in_order(home: Path):
    run_id = runs.open_flow_run("e", "n")
    with MetricLog(run_id, home / "journal.jsonl", every_values=10) as log:
        for step in range(2500):
            log(step, {"loss": step / 2})
    assert history(run_id, "loss") == [(step, step / 2) for step in range(2500)]


@pytest.mark.rotating(of=12, together="server that goes away")
@pytest.mark.slow
def test_a_server_that_goes_away_and_comes_back_loses_no_metric(server, tmp_path: Path):
    run_id = runs.open_flow_run("e", "n")
    log = MetricLog(run_id, tmp_path / "journal.jsonl", every_seconds=0.1)
    for step in range(100):
        log(step, {"reward/mean": step, "kl": -step})
    assert log.flush() == 0
    server.kill()
    for step in range(100, 300):
        log(step, {"reward/mean": step, "kl": -step})
    assert log.flush(limit=1.0) > 0  # the server was really away
    server.start()
    delivery = log.close(limit=120)
    assert delivery.unsent == 0 and delivery.sent == 600
    assert history(run_id, "reward/mean") == [(step, float(step)) for step in range(300)]
    assert history(run_id, "kl") == [(step, float(-step)) for step in range(300)]


@pytest.mark.thorough
@pytest.mark.slow
def test_what_a_server_never_took_stands_in_the_journal_and_can_be_replayed(server, tmp_path: Path):
    file = tmp_path / "journal.jsonl"
    run_id = runs.open_flow_run("e", "n")
    log = MetricLog(run_id, file, every_seconds=0.1)
    server.kill()
    for step in range(20):
        log(step, {"loss": step})
    assert log.close(limit=1.0).left == 20
    server.start()
    again = runs.open_flow_run("e", "again")
    with MetricLog(again, file) as resumed:
        assert resumed.replay(up_to_step=1000) == 20
    assert history(again, "loss") == [(step, float(step)) for step in range(20)]


def test_a_resumed_run_holds_the_whole_curve_and_each_step_once(home: Path):
    file = home / "journal.jsonl"
    killed = runs.open_flow_run("e", "killed")
    log = MetricLog(killed, file)
    for step in range(38):
        log(step, {"loss": 100.0 + step})
    log.close()
    with file.open("a") as handle:  # SIGKILL in the middle of a line
        handle.write('{"step": 38, "times')
    resumed = runs.open_flow_run("e", "resumed")
    with MetricLog(resumed, file) as log:
        assert log.replay(up_to_step=30) == 31
        for step in range(31, 50):
            log(step, {"loss": step})
    expected = [(step, 100.0 + step if step <= 30 else float(step)) for step in range(50)]
    assert history(resumed, "loss") == expected
    assert [(row.step, row.metrics["loss"]) for row in journal.read_journal(file)] == expected


def test_the_sixty_first_key_is_refused_and_the_sixty_stay(home: Path):
    run_id = runs.open_flow_run("e", "n")
    with MetricLog(run_id) as log:
        log(0, {f"group/{number}": 1.0 for number in range(MOST_KEYS)})
        with pytest.raises(UserError, match=r"'group/one-more' would be key number 61"):
            log(1, {"group/one-more": 1.0})
        log(1, {"group/0": 2.0})
    assert len(store.client().get_run(run_id).data.metrics) == MOST_KEYS


@pytest.mark.parametrize(
    ("key", "clean"),
    [("pass@1", "pass_at_1"), ("a[0]", "a_0_"), ("a//b", "a/b"), ("/a/../b/", "a/b"), ("größe", "gr__e")],
)
def test_a_key_that_mlflow_refuses_is_rewritten_to_one_that_it_takes(home: Path, key: str, clean: str):
    assert clean_key(key) == clean
    run_id = runs.open_flow_run("e", "n")
    with MetricLog(run_id) as log:
        log(0, {key: 1.0})
    assert store.client().get_run(run_id).data.metrics == {clean: 1.0}


def test_two_keys_that_mlflow_cannot_tell_apart_are_refused(home: Path):
    with MetricLog(runs.open_flow_run("e", "n")) as log:
        log(0, {"pass@1": 1.0})
        with pytest.raises(UserError, match="'pass@1' and 'pass_at_1'"):
            log(0, {"pass_at_1": 1.0})


def test_values_that_are_not_finite_are_counted_and_not_logged(home: Path):
    run_id = runs.open_flow_run("e", "n")
    log = MetricLog(run_id, home / "journal.jsonl")
    log(0, {"loss": math.nan, "kl": math.inf, "reward": 1.0})
    log(1, {"loss": 2.0})
    assert log.close().not_finite == 2
    assert history(run_id, "loss") == [(1, 2.0)] and history(run_id, "reward") == [(0, 1.0)]
    assert history(run_id, "kl") == []


def test_a_run_that_was_deleted_is_an_error_and_no_endless_wait(home: Path):
    log = MetricLog("0" * 32, every_seconds=0.05)
    log(0, {"loss": 1.0})
    with pytest.raises(UserError, match="takes no metrics"):
        log.close(limit=60)


def test_a_broken_line_inside_a_journal_is_named(tmp_path: Path):
    file = tmp_path / "journal.jsonl"
    file.write_text(
        '{"step": 0, "timestamp": 1, "metrics": {}}\nnonsense\n{"step": 1, "timestamp": 1, "metrics": {}}\n'
    )
    with pytest.raises(UserError, match=r"journal.jsonl, line 2"):
        journal.read_journal(file)
