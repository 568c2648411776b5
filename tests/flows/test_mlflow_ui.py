"""Tests of the pages that a reviewer sees: a run of this project in the real MLflow UI, opened in a real browser.

Screenshots are kept in screenshots/ of the checkout.
"""

import math
import os
import random
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from browser import Pages, open_browser

from models.datasets.suites import DataCheck
from models.evaluation.bootstrap import Interval
from models.reward_models.calibration import ReliabilityBin
from tasks.data.expectations import Failing
from tasks.pages import data_docs, description, plots, run_names
from tasks.runner.step import StepResult
from tasks.tracking import records, registry, runs, store, tags, views
from tasks.tracking.journal import read_journal
from tasks.tracking.metrics import MetricLog
from tasks.tracking.summaries import page_of
from tasks.tracking.verdict_text import points
from tests.support.verdict_examples import check, verdict

pytestmark = [pytest.mark.slow, pytest.mark.rotating(of=12, together="browser")]

FINDINGS = data_docs.FileFindings(
    "problems_train.parquet",
    6000,
    (
        data_docs.Finding(
            DataCheck(
                "expect_column_values_to_not_be_null", "answer", {}, "critical", "the answer is empty", "", ("train",)
            ),
            held=False,
            failing=(Failing(3, "p3", ""),),
            count=1,
        ),
    ),
)
DIGEST = "d41d8cd98f00b204e9800998ecf8427e.dir"


def reviewed_run(journal: Path) -> tuple[str, str]:
    """Write a flow run as the pipeline does, with a child run that has the curves, and return both ids."""
    chance = random.Random(0)
    flow = runs.open_flow_run(
        "rewardflow",
        "arithmetic, seed 0",
        {tags.RECIPE: "arithmetic", tags.GIT_COMMIT: "6d57ac2", tags.DATA_REVISION: "v3"},
        {"name": "arithmetic", "seed": 0, "loop": {"rollouts": {"group_size": 16}, "schedule": {"rounds": 80}}},
    )
    records.log_dataset(flow, "arithmetic raw", "0cc175b9c0f1b6a831c399e269772661", "data/raw/arithmetic", "raw", 32000)
    records.log_dataset(flow, "arithmetic", DIGEST, "data/prepared/arithmetic", "training", 26000, "v3")
    step = runs.open_step_run(flow, "rl")
    with MetricLog(step, journal) as log:
        for number in range(80):
            grown = 1 - math.exp(-number / 25)
            log(
                number,
                {
                    "reward/mean": 0.3 + 0.5 * grown + chance.gauss(0, 0.03),
                    "reward/exact_answer": 0.25 + 0.4 * grown + chance.gauss(0, 0.03),
                    "reward/reward_model": 0.4 + 0.3 * grown + chance.gauss(0, 0.02),
                    "policy/accuracy": 0.31 + 0.35 * grown + chance.gauss(0, 0.02),
                    "policy/kl": 0.08 * grown + abs(chance.gauss(0, 0.004)),
                    "policy/entropy": 0.9 - 0.4 * grown + chance.gauss(0, 0.01),
                    "policy/length": 22 - 2 * grown + chance.gauss(0, 0.4),
                    "learner/grad_norm": 0.8 + abs(chance.gauss(0, 0.1)),
                    "evaluation/pass@1": 0.31 + 0.35 * grown,
                },
            )
            if number % 20 == 0:
                samples = [
                    {
                        "prompt": f"Start with {row} . Add 5 . Double it .",
                        "completion": f"{row} + 5 = {row + 5} ; {row + 5} * 2 = {2 * row + 10} ; #### {2 * row + 10}",
                        "expected": str(2 * row + 10),
                        "reward": 1.4,
                        "reward/exact_answer": 1.0,
                        "reward/reward_model": 0.4,
                        "advantage": 0.31,
                    }
                    for row in range(16)
                ]
                records.log_table(step, f"samples/step_{number:05d}.json", samples)
    levels = {
        "base": {level: Interval(0.6 - 0.1 * level, 0.55 - 0.1 * level, 0.65 - 0.1 * level) for level in range(1, 6)},
        "candidate": {
            level: Interval(0.95 - 0.08 * level, 0.9 - 0.08 * level, 0.99 - 0.08 * level) for level in range(1, 6)
        },
    }
    bins = [ReliabilityBin(0.5 + i / 20, 0.55 + i / 20, 20 + 6 * i, 0.525 + i / 20, 0.5 + i / 21) for i in range(10)]
    rows = read_journal(journal)
    for run_id in (flow, step):
        records.log_figure(run_id, "plots/training.png", plots.training_curves(rows))
    records.log_figure(flow, "plots/accuracy_by_level.png", plots.accuracy_by_level(levels))
    records.log_figure(flow, "plots/calibration.png", plots.reliability(bins, 0.021))
    score = [row.metrics["reward/reward_model"] for row in rows]
    truth = [row.metrics["policy/accuracy"] for row in rows]
    records.log_figure(flow, "plots/divergence.png", plots.divergence([row.step for row in rows], score, truth))
    final = {"evaluation/accuracy": 0.66, "evaluation/accuracy_base": 0.31, "reward_model/pair_accuracy": 0.912}
    records.log_metrics(flow, final)
    records.describe(flow, description.describe_run(review()))
    record = review().verdict
    assert record is not None and record.difference is not None
    difference = points(record.difference, "sampled_accuracy")
    runs.rename(flow, run_names.judged(4, record))
    runs.set_tags(flow, {tags.RUN_VERDICT: "promoted", tags.RUN_DIFFERENCE: difference, tags.RUN_VERSION: "4"})
    records.log_text(flow, "data_docs/index.html", data_docs.page("arithmetic", [FINDINGS], {}))
    runs.close_run(step)
    runs.close_run(flow)
    return flow, step


def registered_model(step: str) -> str:
    """Register a LoggedModel of the step with one metric, and return its id."""
    client = store.client()
    model = client.create_logged_model("1", name="policy", source_run_id=step)
    client.finalize_logged_model(model.model_id, "READY")
    registry.register("arithmetic-policy", model.model_id, {tags.RECIPE: "arithmetic"})
    registry.annotate("arithmetic-policy", 1, description="✔ Promoted: sampled accuracy +35.1 [+30.1, +40.2]")
    measured = records.MeasurementContext(model.model_id, "arithmetic", DIGEST)
    records.log_metrics(step, {"eval/sampled_accuracy": 0.6625}, measured=measured)
    return str(model.model_id)


def row(step: str, seconds: float, reused: bool, headline: str) -> StepResult:
    """Return a row of the table of steps."""
    return StepResult(
        step=step, name=step, key="", digest="", headline=headline, metrics={}, run_id="", seconds=seconds, folder="",
        reused=reused,
    )  # fmt: skip


def review() -> description.RunDescription:
    checks = (
        check("better than the champion", "passed", "difference +0.351 [+0.301, +0.402], needed above 0"),
        check("length", "passed", "19.8 tokens against 21.3, at most 1.5 times"),
        check("divergence", "passed", "reward model +0.29, truth +0.35"),
    )
    worst = [
        description.ExampleCompletion(
            "Start with 7 . Take away 9 . Double it .", "7 - 9 = 2 ; 2 * 2 = 4 ; #### 4", "-4", -0.31, "sign lost"
        ),
        description.ExampleCompletion(
            "Start with 3 . Add 5 .", "3 + 5 = 8 ; #### 9 ``` <b>bold</b>", "8", -0.28, "slip"
        ),
        description.ExampleCompletion(
            "Start with 1 . Add 2 . Add 3 .", "1 + 2 = 3 ; #### 3", "6", -0.22, "operand skipped"
        ),
    ]
    return description.RunDescription(
        outcome="promoted",
        model="arithmetic-policy",
        version=4,
        verdict=verdict(difference=Interval(0.351, 0.301, 0.402), checks=checks),
        models={
            "base": {"sampled accuracy": Interval(0.31, 0.28, 0.34), "greedy accuracy": 0.41, "pass@16": 0.83},
            "champion": {"sampled accuracy": Interval(0.33, 0.30, 0.36), "greedy accuracy": 0.44, "pass@16": 0.83},
            "candidate": {"sampled accuracy": Interval(0.66, 0.63, 0.69), "greedy accuracy": 0.71, "pass@16": 0.9},
        },
        worst=worst,
        steps=[
            row("data", 2.1, True, "32,000 rows"),
            row("reward model", 41.0, False, "pair accuracy 0.912 [0.884, 0.935]"),
            row("rl", 182.4, False, "accuracy 0.31 → 0.66"),
        ],
        facts={"recipe": "arithmetic", "git commit": "6d57ac2", "data": f"v3, md5 {DIGEST}"},
    )


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory):
    """Start an MLflow server over a store with one run. Yield its address and the ids of the run and its child."""
    home = tmp_path_factory.mktemp("reviewed")
    uri = store.configure(home).uri
    flow, step = reviewed_run(home / "metrics.jsonl")
    registered_model(step)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--host", "127.0.0.1"]
    with (home / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--port", str(port), "--workers", "1"], stdout=log, stderr=log, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(address + "/health", server, home / "server.log")
        yield address, flow, step
    finally:
        os.killpg(server.pid, 15)
        server.wait(timeout=30)


def wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    for _ in range(240):
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            assert server.poll() is None, log.read_text()[-2000:]
            time.sleep(0.5)
    raise AssertionError(f"{address} does not answer: {log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def pages(ui, tmp_path_factory: pytest.TempPathFactory):
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield Pages(driver, ui[0])


def test_the_list_shows_the_flow_run_with_its_data(ui, pages):
    pages.open(page_of("1"))
    pages.wait_for("v4 promoted +35.1", "0cc175b9c0f1b6a831c399e269772661")
    pages.keep("runs")


def test_the_description_opens_with_the_verdict_and_goes_on_to_the_worst_samples(ui, pages):
    _, flow, _ = ui
    pages.open(page_of("1", flow))
    pages.wait_for("Promoted: arithmetic-policy version 4", "+0.351 [+0.301, +0.402]", "Show more")
    pages.keep("run")
    pages.wait_for_elements("[data-component-id$=show_comment_text_toggle]")[0].click()
    pages.wait_for("better than the champion", "Three worst samples", "7 - 9 = 2 ; 2 * 2 = 4 ; #### 4", "0.912")
    pages.wait_for("<b>bold</b>")  # HTML in a completion is shown as text
    tables = pages.wait_for_elements("table", 3)
    assert any("reused" in table.text for table in tables)
    pages.keep("description")


def test_a_shared_view_answers_which_runs_promoted_what(ui, pages):
    pages.open(views.promotions("1"))
    pages.wait_for("shared view", "Which runs promoted what", "v4 promoted +35.1 [+30.1, +40.2]")
    pages.wait_for("verdict", "difference", "version", "1 matching run")
    pages.keep("view")


def test_a_registered_models_page_names_its_version_and_its_numbers(ui, pages):
    (version,) = registry.versions("arithmetic-policy")
    pages.open(f"/#/experiments/1/models/{version.model_id}?workflowType=machine_learning")
    pages.wait_for("Model versions", "arithmetic-policy", "eval/sampled_accuracy", "0.6625", "✔ Promoted")
    assert "Not registered" not in pages.text()
    pages.keep("logged_model")


def test_the_data_docs_are_drawn_whole_inside_mlflow(ui, pages):
    _, flow, _ = ui
    pages.open(page_of("1", flow, "artifacts/data_docs/index.html"))
    frame = pages.wait_for_elements("iframe")[-1]
    pages.driver.switch_to.frame(frame)
    try:
        pages.wait_for("Data Docs: arithmetic", "problems_train.parquet", "the answer is empty", "1 rows")
        lead = pages.wait_for_elements(".failed")[0]
        assert lead.value_of_css_property("color") == "rgba(201, 42, 42, 1)"  # the page has its style sheet
    finally:
        pages.driver.switch_to.default_content()
    pages.keep("data_docs")


def test_the_data_sets_stand_on_the_run_with_their_digests(ui, pages):
    _, flow, _ = ui
    pages.open(page_of("1", flow))
    pages.wait_for("Datasets", "+1")
    pages.driver.find_element("xpath", "//button[normalize-space()='+1']").click()
    pages.wait_for("0cc175b9c0f1b6a831c399e269772661", DIGEST)
    pages.keep("datasets")


def test_every_metric_has_a_chart_and_charts_are_grouped(ui, pages):
    _, _, step = ui
    pages.open(page_of("1", step, "model-metrics"))
    pages.wait_for("reward (3)", "policy (4)", "evaluation (1)", "pass_at_1")
    pages.wait_for_elements(".js-plotly-plot .scatterlayer path.js-line", 3)
    pages.keep("charts")


def test_a_sample_table_is_shown_as_a_table_with_every_reward(ui, pages):
    _, _, step = ui
    pages.open(page_of("1", step, "artifacts/samples/step_00040.json"))
    pages.wait_for("View as table", "prompt", "completion", "reward/exact_answer", "15 + 5 = 20")
    pages.keep("samples")


def test_the_figures_are_shown(ui, pages):
    _, flow, _ = ui
    pages.open(page_of("1", flow, "artifacts/plots/training.png"))
    pages.wait_for("training.png")
    image = pages.wait_for_elements("img[src^='data:image'], img[src*='get-artifact'], img[src^='blob:']")[-1]
    until = time.monotonic() + 30
    while pages.driver.execute_script("return arguments[0].naturalWidth", image) < 500:
        assert time.monotonic() < until, "the figure was not drawn"
        time.sleep(0.25)
    pages.keep("figure")
