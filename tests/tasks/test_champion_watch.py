"""Nightly watch: comparison with the evaluation of the champion's judgement if data, settings or records differ."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from small_repository import set_params

from models.datasets.schema import read_rows
from models.datasets.settings import DataSettings
from models.evaluation.drift import DriftSettings
from models.evaluation.records import Completion, PromptRecord
from models.evaluation.samples import as_json
from models.evaluation.table import write_records
from models.recipes.load import load_recipe
from models.text.encoding import Codec
from tasks.data.input_summary import INPUTS, summarise_inputs
from tasks.data.versions import DataVersion, prepare
from tasks.gate.champion_watch import NightlyMeasurements, NightlyResult, WatchSections, compared, lines
from tasks.pages.drift_page import page
from tasks.runner.step import StepResult
from tasks.steps.prepare_data import log_data
from tasks.tracking import recorded, records, runs, tags
from tasks.tracking.recorded import VersionRecord
from tests.support.tiny_models import word_tokenizer

pytestmark = pytest.mark.rotating(of=8)

PARAMS = {"evaluation": {"temperature": 1.0, "top_p": 1.0, "max_tokens": None}, "rollouts": {"max_tokens": 8}}


def answers(version: DataVersion, right: Callable[[str], bool], score: float = 0.0) -> list[PromptRecord]:
    made = []
    for number, row in enumerate(read_rows(version.folder, "problems", "validation")):
        said = Completion("x", 3, right(str(row["prompt"])), True, score + number % 7)
        made.append(PromptRecord(str(row["id"]), int(row["level"]), (said,), said))
    return made


def kept(version: DataVersion, measured: Sequence[PromptRecord], folder: Path) -> None:
    """Write the files that an evaluation leaves in its folder."""
    folder.mkdir(exist_ok=True)
    write_records(measured, folder / "records.parquet")
    summary = summarise_inputs(version.folder, Codec(word_tokenizer()), rows=1000)
    (folder / INPUTS).write_text(as_json(summary), encoding="utf-8")


def judged(version: DataVersion, measured: Sequence[PromptRecord], folder: Path) -> VersionRecord:
    """Record the runs of a champion that was judged on a version of the data, and return its version record."""
    kept(version, measured, folder)
    run = runs.open_flow_run("e", "train e", {tags.REWARD_MODEL_VERSION: "r/1"}, PARAMS)
    log_data(run, version)
    step = runs.open_step_run(run, "evaluate", name="evaluate candidate")
    for name in ("records.parquet", INPUTS):
        records.log_artifact(step, folder / name, "evaluation")
    runs.close_run(step)
    runs.close_run(run)
    return recorded.of_run(run)


def tonight(version: DataVersion, measured: Sequence[PromptRecord], folder: Path, **params: str) -> NightlyMeasurements:
    kept(version, measured, folder)
    result = StepResult(
        step="evaluate", key="", digest="", headline="", metrics={}, run_id="", seconds=0.0, folder=str(folder)
    )
    return NightlyMeasurements(result, version, runs.param_texts(PARAMS) | params, "r/1")


@pytest.fixture
def sections() -> WatchSections:
    return WatchSections(load_recipe("arithmetic"))


@pytest.fixture
def repository(root: Path, made: DataVersion, new_store: Callable[[Path], Path], tmp_path: Path) -> Path:
    new_store(tmp_path / "home")
    return root


def other_data(root: Path, **changes: object) -> DataVersion:
    set_params(root, **changes)
    return prepare(DataSettings(), root, lambda line: None)


def test_the_same_answers_to_the_same_problems_show_nothing_and_worse_ones_do(
    repository: Path, made: DataVersion, tmp_path: Path, sections: WatchSections
) -> None:
    before = judged(made, answers(made, lambda prompt: True), tmp_path / "judged")
    same = compared(before, sections, tonight(made, answers(made, lambda prompt: True), tmp_path / "same"), Path())
    assert (same.worse, same.drifted, same.notes) == ("", "", ()) and same.problems == 10
    assert {drift.index for drift in same.drifts} == {0.0} and len(same.drifts) == 7
    worse = compared(before, sections, tonight(made, answers(made, lambda prompt: False), tmp_path / "bad"), Path())
    fell = "sampled accuracy -100.0 [-100.0, -100.0] points since it was judged"
    assert worse.worse == f"{fell} (10 problems, the same problems)"
    assert worse.drifted == ""
    shown = page("<b>", worse, DriftSettings(), None)
    assert "&lt;b&gt;" in shown and "worse: sampled accuracy" in shown and "<img" not in shown
    assert "- ✘ worse: sampled accuracy" in lines(worse)


def test_of_other_data_the_problems_in_common_are_compared_by_what_they_ask(
    repository: Path, made: DataVersion, tmp_path: Path, sections: WatchSections
) -> None:
    prompts = {str(row["prompt"]) for row in read_rows(made.folder, "problems", "validation")}
    before = judged(made, answers(made, lambda prompt: True), tmp_path / "judged")
    later = other_data(repository, problems={"train": [20, 40], "validation": [5, 5, 30], "gate": [5, 5, 5]})

    def right_on_the_old(prompt: str) -> bool:
        return prompt in prompts

    kept_up = compared(
        before, sections, tonight(later, answers(later, right_on_the_old), tmp_path / "kept"), repository
    )
    assert kept_up.worse == "" and kept_up.change is not None and kept_up.change.paired
    assert kept_up.change.change.estimate == 0.0  # the 30 new problems, all with wrong answers, do not count
    assert "compared on the 10 problems that both evaluations have" in kept_up.notes
    fell = tonight(later, answers(later, lambda prompt: prompt not in prompts), tmp_path / "fell")
    assert compared(before, sections, fell, repository).change.change.estimate == -1.0  # type: ignore[union-attr]


def test_where_no_problem_is_left_the_interval_is_not_paired_and_that_is_said(
    repository: Path, made: DataVersion, tmp_path: Path, sections: WatchSections
) -> None:
    before = judged(made, answers(made, lambda prompt: True), tmp_path / "judged")
    longer = {"train": [0, 0, 0, 60], "validation": [0, 0, 0, 40], "gate": [5, 5, 5]}
    later = other_data(repository, seed=99, problems=longer)
    asked = tonight(later, answers(later, lambda prompt: False), tmp_path / "tonight")
    said = compared(before, sections, asked, repository)
    assert said.change is not None and not said.change.paired
    assert said.worse.endswith("(40 problems, not paired, the problems are others)")
    assert said.notes == ("0 of 40 problems are those that it was judged on: the interval is not paired",)
    drifted = {drift.name for drift in said.drifts if drift.state == "drifted"}
    assert {"prompt_tokens_train", "prompt_tokens_validation"} <= drifted  # four steps instead of one or two
    assert "prompt tokens train (PSI" in said.drifted and said.metrics["drift/prompt_tokens_train"] >= 0.25


def test_scores_that_moved_are_drift_where_one_reward_model_gave_them(
    repository: Path, made: DataVersion, tmp_path: Path, sections: WatchSections
) -> None:
    before = judged(made, answers(made, lambda prompt: True), tmp_path / "judged")
    higher = tonight(made, answers(made, lambda prompt: True, score=50.0), tmp_path / "higher")
    assert "reward score" in compared(before, sections, higher, Path()).drifted
    other = compared(before, sections, replace(higher, reward_model="r/2"), Path())
    assert other.drifted == "" and "no reward score is compared" in other.notes[0]


def test_what_cannot_be_compared_is_said_and_is_no_news(
    repository: Path, made: DataVersion, tmp_path: Path, sections: WatchSections
) -> None:
    before = judged(made, answers(made, lambda prompt: True), tmp_path / "judged")
    bad = answers(made, lambda prompt: False)
    colder = tonight(made, bad, tmp_path / "cold", **{"evaluation.temperature": "0.5"})
    said = compared(before, sections, colder, Path())
    assert (said.change, said.worse) == (None, "") and "evaluation.temperature is another" in said.notes[0]
    gone = compared(replace(before, evaluation=""), sections, colder, Path())
    assert gone == NightlyResult("sampled_accuracy", notes=("what it answered when it was judged is not on record",))
    assert gone.metrics == {}
    asks_more = WatchSections(load_recipe("arithmetic", ["gate.metric=pass_at_4"]))
    few = compared(before, asks_more, tonight(made, bad, tmp_path / "few"), Path())
    assert few.worse == "" and "pass@4 needs 4 samples" in few.notes[0] and len(few.drifts) == 7
