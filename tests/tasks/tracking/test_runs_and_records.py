"""Runs: steps belong to flows, runs of dead processes are closed, and logged data are read back unchanged."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from models.base.errors import UserError
from tasks.tracking import process, records, runs, store, summaries, tags
from tests.support.vision_families import random_picture

ROOT = Path(__file__).resolve().parents[3]
CHILD = """
import sys, time
from pathlib import Path
from tasks.tracking import runs, store
store.configure(Path(sys.argv[1]))
flow = runs.open_flow_run("e", "killed")
print(flow, runs.open_step_run(flow, "rl"), flush=True)
time.sleep(600)
"""


def status(run_id: str) -> str:
    return store.client().get_run(run_id).info.status


def test_an_earlier_choice_of_the_store_is_not_taken_for_a_users_wish(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    of_first = store.configure(first).uri
    store.configure(second)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", of_first)  # MLflow leaves it in the environment of a child or a test
    assert store.configure(third).uri == f"sqlite:///{third / 'mlflow.db'}"


@pytest.mark.rotating(of=6)
def test_the_runs_of_a_process_killed_by_sigkill_are_swept_and_others_are_not(home: Path):
    mine = runs.open_flow_run("e", "mine")
    elsewhere = runs.open_flow_run("e", "elsewhere")
    runs.set_tags(elsewhere, {tags.HOST: "another-host", tags.PID: "1"})
    by_hand = store.client().create_run(store.experiment_id("e")).info.run_id
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("MLFLOW_TRACKING_URI", None)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(home)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert child.stdout is not None
    try:
        flow, step = child.stdout.readline().split()
        assert runs.sweep_dead_runs("e") == []  # the process is alive
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    swept = runs.sweep_dead_runs("e")
    assert {run.run_id: run.of_flow for run in swept} == {flow: True, step: False} and len(swept) == 2
    assert status(flow) == status(step) == "KILLED"
    assert status(mine) == status(elsewhere) == status(by_hand) == "RUNNING"
    assert "gone" in store.client().get_run(flow).data.tags[tags.ENDED_BY]


def test_a_process_id_used_again_does_not_keep_a_dead_run_alive():
    marks = process.mark()
    assert not process.surely_dead(marks)
    assert process.surely_dead({**marks, tags.STARTED: str(float(marks[tags.STARTED]) - 60)})
    assert not process.surely_dead({})


def test_no_run_is_taken_for_the_active_one(home: Path):
    import mlflow

    flow = runs.open_flow_run("e", "flow")
    runs.open_step_run(flow, "data")
    assert mlflow.active_run() is None


def test_a_summary_tells_what_was_logged(home: Path):
    flow = runs.open_flow_run(
        "e", "arithmetic", {tags.RECIPE: "arithmetic"}, {"loop": {"rounds": 80, "slots": {}}, "seed": 0}
    )
    records.log_dataset(flow, "prepared", "a" * 32 + ".dir", "data/prepared", "training", 26000, "v3")
    records.log_dataset(flow, "raw", "b" * 32, "s3://bucket/raw", "raw")
    records.log_metrics(flow, {"pass@1": 0.5, "broken": float("nan")})
    for name in ("data", "rl"):
        runs.close_run(runs.open_step_run(flow, name))
    runs.close_run(flow)
    summary = summaries.run_summary("e", flow[:6])
    assert summary.line.status == "FINISHED" and summary.line.metrics == {"pass_at_1": 0.5}
    assert summary.params == {"loop.rounds": "80", "loop.slots": "{}", "seed": "0"}
    assert [step.name for step in summary.steps] == ["data", "rl"]
    raw, prepared = summary.data
    assert (raw.context, raw.source, raw.rows) == ("raw", "s3://bucket/raw", None)
    assert (prepared.digest, prepared.rows, prepared.revision) == ("a" * 32 + ".dir", 26000, "v3")
    assert summaries.run_summary("e", "latest") == summaries.run_summary("e", "arithmetic") == summary
    assert [line.run_id for line in summaries.recent_runs("e")] == [flow]


def test_a_run_that_is_not_there_and_one_of_two_are_one_clear_line(home: Path):
    for _ in range(2):
        runs.open_flow_run("e", "twin")
    with pytest.raises(UserError, match="no run 'nothing'; `rewardflow runs` lists"):
        summaries.run_summary("e", "nothing")
    with pytest.raises(UserError, match="more than one run fits 'twin'"):
        summaries.run_summary("e", "twin")


def test_two_long_parameters_that_differ_at_the_end_still_differ(home: Path):
    run_id = runs.open_flow_run("e", "n", params={"a": "x" * 7000 + "1", "b": "x" * 7000 + "2"})
    kept = store.client().get_run(run_id).data.params
    assert kept["a"] != kept["b"] and len(kept["a"]) == runs.LONGEST_PARAM and "7001 characters" in kept["a"]


@pytest.mark.parametrize("pattern", ["^buy", "look|add", "rm -rf /", "", "x" * 300])
def test_a_mapping_whose_keys_are_no_names_is_one_parameter_that_reads_as_it_is(home: Path, pattern: str):
    severity = {pattern: 1.0, "look": -0.1}
    run_id = runs.open_flow_run("e", "n", params={"gate": {"severity": severity, "looks": {"a year": 2}}})
    assert store.client().get_run(run_id).data.params == {"gate.severity": str(severity), "gate.looks.a year": "2"}


def test_more_parameters_than_a_batch_takes_are_all_logged(home: Path):
    run_id = runs.open_flow_run("e", "n", params={f"p{number}": number for number in range(250)})
    assert len(store.client().get_run(run_id).data.params) == 250


def test_rows_that_refer_to_images_begin_with_the_picture(home: Path, tmp_path: Path) -> None:
    run_id = runs.open_flow_run("e", "one")
    first, second = random_picture(40, 20, 0), random_picture(8, 8, 1)
    rows = [{"prompt": f"{first} how many", "tokens": 3}, {"prompt": f"{second} where", "tokens": 4}]
    records.log_table(run_id, "samples/one.json", [*rows, rows[0]])
    table = records.read_table(run_id, "samples/one.json")
    assert [list(row) for row in table] == [["picture", "prompt", "tokens"]] * 3
    assert [{key: row[key] for key in ("prompt", "tokens")} for row in table] == [*rows, rows[0]]
    assert table[0]["picture"] == table[2]["picture"] != table[1]["picture"]
    sizes = []
    for row in table[:2]:
        assert row["picture"]["type"] == "image"
        for key in ("filepath", "compressed_filepath"):
            file = records.fetch_artifact(run_id, row["picture"][key], tmp_path)
            assert file is not None
            with Image.open(file) as picture:
                sizes.append(picture.size)
    assert sizes == [(96, 48), (96, 48), (96, 96), (96, 96)]
    unknown = {"prompt": f"<image:{'0' * 32}> how many", "tokens": 5}
    records.log_table(run_id, "samples/two.json", [rows[0], unknown])  # MLflow takes all pictures of a column, or none
    assert records.read_table(run_id, "samples/two.json") == [rows[0], unknown]


def test_a_table_comes_back_and_logging_it_again_replaces_it(home: Path):
    run_id = runs.open_flow_run("e", "n")
    rows = [{"prompt": "a", "reward": 1.5}, {"prompt": "ä | <b>", "reward": float("nan"), "extra": True}]
    for _ in range(2):
        records.log_table(run_id, "samples/step_00010.json", rows)
    assert records.read_table(run_id, "samples/step_00010.json") == [
        {"prompt": "a", "reward": 1.5, "extra": None},
        {"prompt": "ä | <b>", "reward": None, "extra": True},
    ]
    listed = json.loads(store.client().get_run(run_id).data.tags[records.TABLES])
    assert listed == [{"path": "samples/step_00010.json", "type": "table"}]


def test_a_description_too_long_for_a_tag_is_cut_between_sections_and_kept_whole_as_a_file(home: Path):
    import mlflow

    run_id = runs.open_flow_run("e", "n")
    text = "## Verdict\n\npromoted\n" + "".join(f"\n### Section {number}\n\n{'x' * 1000}\n" for number in range(20))
    records.describe(run_id, text)
    shown = store.client().get_run(run_id).data.tags[records.NOTE]
    assert shown.startswith("## Verdict") and records.REPORT in shown and len(shown) <= runs.LONGEST_TAG
    assert "Section 5" in shown and shown.count("x" * 1000) == shown.count("### Section")
    assert mlflow.artifacts.load_text(f"runs:/{run_id}/{records.REPORT}") == text


def test_a_digest_that_mlflow_would_refuse_is_named(home: Path):
    with pytest.raises(UserError, match="data set raw: digest"):
        records.log_dataset(runs.open_flow_run("e", "n"), "raw", "a" * 64, "data/raw", "raw")


def test_a_deleted_experiment_comes_back(home: Path):
    first = store.experiment_id("e")
    store.client().delete_experiment(first)
    assert store.experiment_id("e") == first
    runs.open_flow_run("e", "n")


@pytest.mark.thorough
@pytest.mark.slow
def test_a_write_waits_for_a_server_that_is_starting(server):
    import threading

    run_id = runs.open_flow_run("e", "n")
    server.kill()
    starter = threading.Timer(2.0, server.start)
    starter.start()
    runs.close_run(run_id)
    starter.join()
    assert status(run_id) == "FINISHED"


def test_patience_ends_with_one_clear_line(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # the discard port: nothing listens
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(store, "PATIENCE", 0.1)
    store.configure(home)
    with pytest.raises(UserError, match=r"tracking server http://127.0.0.1:9 does not answer"):
        runs.open_flow_run("e", "n")
