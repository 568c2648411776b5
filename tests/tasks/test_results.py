"""The cache: an earlier result is used only if its outputs are unchanged to the byte; its folder may be moved."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_steps import context

from models.datasets import row_table
from models.datasets.schema import COLUMNS, arrow_schema, write_rows
from tasks.runner.results import NotAsMade, clear_result, read_result, write_result
from tasks.runner.step import StepOutput, StepResult, earlier_result, run_step, step_folder
from tasks.tracking import registry, runs, store

FACTS = {"step": "one", "headline": "went well", "metrics": {"accuracy": 0.5}}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return a folder with outputs, checkpoints, and the result of the step that made them."""
    folder = tmp_path / "store" / "one" / "key"
    (folder / "policy").mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    (folder / "policy" / "model.safetensors").write_bytes(bytes(range(256)) * 64)
    (folder / "policy" / "config.json").write_text("{}")
    (folder / "metrics.jsonl").write_text("")
    (folder / "checkpoints" / "round_000001").write_text("weights on the way")
    write_result(folder, FACTS)
    return folder


def change_one_bit(folder: Path) -> None:
    weights = folder / "policy" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[1000] ^= 1
    weights.write_bytes(content)


def cut_short(folder: Path) -> None:
    weights = folder / "policy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


def edit_result(folder: Path) -> None:
    file = folder / "result.json"
    file.write_text(file.read_text().replace("0.5", "0.9"))


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "one bit": (change_one_bit, "policy/model.safetensors has other content"),
    "cut short": (cut_short, "policy/model.safetensors has 16,383 bytes, not 16,384"),
    "emptied": (lambda folder: (folder / "policy/config.json").write_text(""), "policy/config.json has 0 bytes"),
    "removed": (lambda folder: (folder / "metrics.jsonl").unlink(), "metrics.jsonl is missing"),
    "folder removed": (lambda folder: shutil.rmtree(folder / "policy"), "policy/config.json is missing"),
    "added": (lambda folder: (folder / "policy/adapter_config.json").write_text("{}"), "adapter_config.json was added"),
    "folder linked": (lambda folder: (folder / "policy/gate").symlink_to("/etc"), "policy/gate was added"),
    "link to nothing": (lambda folder: (folder / "gate").symlink_to("/nowhere"), "gate was added"),
    "folder replaced by a link": (lambda folder: linked(folder / "policy"), "policy was added"),
    "result edited": (edit_result, "result.json was changed"),
    "result cut short": (lambda folder: cut(folder / "result.json"), "result.json is broken"),
    "result emptied": (lambda folder: (folder / "result.json").write_text(""), "result.json is broken"),
    "result of before": (
        lambda folder: (folder / "result.json").write_text(json.dumps(FACTS)),
        "result.json is broken",
    ),
}


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def linked(folder: Path) -> None:
    elsewhere = folder.rename(folder.parent.with_name("elsewhere"))
    folder.symlink_to(elsewhere)


def test_untouched_outputs_are_taken(made: Path) -> None:
    assert read_result(made) == FACTS


def test_checkpoints_are_no_output(made: Path) -> None:
    shutil.rmtree(made / "checkpoints")
    assert read_result(made) == FACTS


def test_what_is_made_from_the_outputs_while_they_are_used_is_none_of_them(made: Path) -> None:
    (made / "clean").mkdir(exist_ok=True)
    rows = [dict.fromkeys(COLUMNS["problems"], "") | {"id": f"p{number}", "level": 0} for number in range(3000)]
    write_rows(made / "clean" / "problems_train.parquet", rows, arrow_schema("problems"))
    write_result(made, FACTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_table, "HELD_BYTES", 1)
        assert len(row_table.open_rows(made / "clean", "problems", "train")) == 3000
    assert (made / ".clean.rows" / "problems_train.arrow").is_file() and read_result(made) == FACTS


def test_a_state_folder_that_was_moved_keeps_its_results(made: Path, tmp_path: Path) -> None:
    shutil.move(tmp_path / "store", tmp_path / "moved")
    assert read_result(tmp_path / "moved" / "one" / "key") == FACTS
    assert str(tmp_path) not in (tmp_path / "moved" / "one" / "key" / "result.json").read_text()


@pytest.mark.parametrize("change", CHANGES, ids=list(CHANGES))
def test_whatever_was_changed_is_noticed_and_named(made: Path, change: str) -> None:
    alter, says = CHANGES[change]
    alter(made)
    with pytest.raises(NotAsMade) as noticed:
        read_result(made)
    assert says in str(noticed.value)


def test_a_folder_without_a_result_has_none(tmp_path: Path) -> None:
    assert read_result(tmp_path) is None and read_result(tmp_path / "nowhere") is None


def test_a_step_made_anew_begins_without_its_old_outputs_and_one_that_was_stopped_with_its_checkpoints(
    made: Path,
) -> None:
    stopped = made.with_name("stopped")
    shutil.copytree(made, stopped)
    (stopped / "result.json").unlink()
    clear_result(made)
    clear_result(stopped)
    assert [entry.name for entry in made.parent.iterdir()] == ["stopped"]
    assert (stopped / "checkpoints" / "round_000001").is_file()


# ---------------------------------------- steps that may use an earlier result


@pytest.fixture
def parent(tmp_path: Path, new_store: Callable[[Path], Path]) -> str:
    new_store(tmp_path)
    return runs.open_flow_run("results", "a flow")


def make(home: Path, parent: str, links: dict[str, str] | None = None) -> StepResult:
    def work(folder: Path, run_id: str) -> StepOutput:
        (folder / "output").write_text("made")
        return StepOutput("digest", "went well", {}, links or {})

    return run_step(context(home, "one", "k" * 64, parent), work)


def test_a_tampered_output_is_rebuilt_and_the_reason_told(
    tmp_path: Path, parent: str, caplog: pytest.LogCaptureFixture
) -> None:
    output = step_folder(tmp_path, "one", "k" * 64) / "output"
    first = make(tmp_path, parent)
    output.write_text("fake")
    with caplog.at_level(logging.WARNING, logger="rewardflow.steps"):
        assert earlier_result(context(tmp_path, "one", "k" * 64)) is None
    assert "one runs again, its earlier result is not taken: output has other content" in caplog.text
    again = make(tmp_path, parent)
    assert output.read_text() == "made" and again.run_id != first.run_id
    assert earlier_result(context(tmp_path, "one", "k" * 64)) == again


def test_a_result_copied_to_another_key_is_not_taken(tmp_path: Path, parent: str) -> None:
    make(tmp_path, parent)
    shutil.copytree(step_folder(tmp_path, "one", "k" * 64), step_folder(tmp_path, "one", "l" * 64))
    assert earlier_result(context(tmp_path, "one", "l" * 64)) is None


def test_a_result_about_a_folder_that_is_not_in_the_store_is_taken(tmp_path: Path, parent: str) -> None:
    made = make(tmp_path, parent, {"model_id": ""})
    assert earlier_result(context(tmp_path, "one", "k" * 64)) == made


@pytest.mark.rotating(of=6)
def test_a_result_whose_run_or_model_the_store_in_use_does_not_know_is_not_taken(
    tmp_path: Path, parent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(tmp_path, parent)
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other/mlflow.db")
    store.configure(tmp_path)
    elsewhere = runs.open_flow_run("results", "a flow")
    assert earlier_result(context(tmp_path, "one", "k" * 64)) is None
    for links in ({"model_id": "m-gone"}, {"version": "tiny-reward-model/3"}):
        assert registry.missing(elsewhere, links)
        make(tmp_path, elsewhere, links)
        assert earlier_result(context(tmp_path, "one", "k" * 64)) is None
    assert make(tmp_path, elsewhere) == earlier_result(context(tmp_path, "one", "k" * 64)) != first
