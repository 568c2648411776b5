"""Tests of every page that a reviewer is sent to, in a real browser, for a small project with all kinds of events."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

import pytest
from browser import Pages, open_browser
from project import command, environment
from running import ask, end, start_pair, type_in, wait_for
from small_clone import WHO, fresh_clone

from tasks.messages.receivers import URLS
from tasks.tracking.summaries import page_of
from tests.support.message_listener import TOKEN, Listener

pytestmark = [pytest.mark.thorough, pytest.mark.slow]

NAME = "arithmetic-policy"
HAPPENED = (
    "rewardflow run arithmetic --set approval=true",
    'rewardflow approve 1 --by ann --why "forty samples read"',
    "rewardflow run arithmetic --set approval=true --set seed=1",
    "rewardflow review queue 2 --against 1 --pairs 4 --reviewer ann",
    "rewardflow diff 1 2 --page diff.html",
)


@dataclass(frozen=True)
class Reviewed:
    """A project with an approved champion, a second candidate, a review queue, and an evaluation of the champion."""

    folder: Path
    mlflow: str
    prefect: str
    said: dict[str, str]
    """Output of each command."""
    night: str
    """Prefect's id of the run that evaluated the champion."""

    def run_of(self, words: str) -> str:
        """Return the id of the MLflow run that a command printed last."""
        return re.findall(r"/runs/([0-9a-f]{32})", self.said[words])[-1]


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reviewed]:
    folder = fresh_clone(tmp_path_factory.mktemp("reviewed") / "clone")
    listener = Listener()
    with ExitStack() as ended:
        ended.callback(listener.close)
        # Automations are created only if Prefect's server continues to run after the schedule has ended.
        home = folder / ".rewardflow"
        home.mkdir()
        servers = start_pair(home)
        ended.callback(end, servers.process)
        log = ended.enter_context((folder.parent / "schedule.log").open("w"))
        serving = subprocess.Popen(
            command("schedule"),
            cwd=folder,
            env=environment(PREFECT_RUNNER_POLL_FREQUENCY="1", **{URLS: listener.receiver.url}),
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
        ended.callback(end, serving)
        api = f"{servers.prefect}/api"
        wait_for("the schedule", lambda: "Ctrl-C" in (folder.parent / "schedule.log").read_text())
        said = {}
        for words in HAPPENED:
            typed = type_in([words], folder, **WHO)
            assert typed.returncode == 0, f"{words}\n{typed.stdout}{typed.stderr}"
            said[words] = typed.stdout
        night = ask(f"{api}/deployments/{deployment(api, 'nightly-evaluation')}/create_flow_run", {})["id"]
        page = f"{api}/flow_runs/{night}"
        wait_for("the night", lambda: ask(page)["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED"))
        assert ask(page)["state"]["type"] == "COMPLETED", ask(page)["state"]
        yield Reviewed(folder, servers.mlflow, servers.prefect, said, night)


def deployment(api: str, name: str) -> str:
    """Return Prefect's id of a deployment."""
    (row,) = ask(f"{api}/deployments/filter", {"deployments": {"name": {"any_": [name]}}})
    return str(row["id"])


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory):
    with open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def mlflow(reviewed: Reviewed, driver) -> Pages:
    return Pages(driver, reviewed.mlflow)


@pytest.fixture
def prefect(reviewed: Reviewed, driver) -> Pages:
    return Pages(driver, reviewed.prefect)


def test_the_runs_page_opens_with_the_verdict(reviewed: Reviewed, mlflow: Pages) -> None:
    mlflow.open(page_of("1", reviewed.run_of(HAPPENED[0])))
    mlflow.wait_for("v1 approved +", "Approved by ann: forty samples read", "Passed the gate", "Registered models")
    mlflow.keep("reviewed_run")


def test_the_versions_page_says_who_approved_it_and_why(reviewed: Reviewed, mlflow: Pages) -> None:
    mlflow.open(f"/#/models/{NAME}/versions/1")
    mlflow.wait_for("Version 1", "champion", "ann", "forty samples read")
    mlflow.keep("version")


def test_the_page_of_a_difference_names_what_was_changed(reviewed: Reviewed, driver) -> None:
    pages = Pages(driver, reviewed.mlflow)
    pages.address = ""
    pages.open((reviewed.folder / "diff.html").as_uri())
    pages.wait_for("seed", "answers")
    pages.keep("diff")


def test_the_nights_page_shows_what_drifted(reviewed: Reviewed, mlflow: Pages) -> None:
    left = ask(f"{reviewed.prefect}/api/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [reviewed.night]}}})
    run = re.findall(r"/runs/([0-9a-f]{32})", json.dumps(left))[-1]
    mlflow.open(page_of("1", run, "artifacts/drift/champion.html"))
    frame = mlflow.wait_for_elements("iframe")[-1]
    mlflow.driver.switch_to.frame(frame)
    try:
        mlflow.wait_for("since it was judged", "prompt tokens train", "reward score", "stable")
    finally:
        mlflow.driver.switch_to.default_content()
    mlflow.keep("drift")


def test_the_review_queue_asks_without_saying_whose_answer_is_whose(reviewed: Reviewed, mlflow: Pages) -> None:
    (address,) = re.findall(r"http\S+review-queue\S+", reviewed.said[HAPPENED[3]])
    parts = urlparse(address)
    mlflow.open(f"{parts.path}#{parts.fragment}")
    mlflow.wait_for("first", "second", "Which answer to the prompt is better?", "reviewed (0%)")
    assert "candidate" not in mlflow.text() and "champion" not in mlflow.text()
    mlflow.keep("review")


def test_the_form_of_a_deployment_offers_recipes_and_overrides(reviewed: Reviewed, prefect: Pages) -> None:
    identity = deployment(f"{reviewed.prefect}/api", "nightly-training")
    prefect.open(f"/deployments/deployment/{identity}/run")
    prefect.wait_for("nightly-training", "arithmetic", "path or name of a recipe", "overrides")
    prefect.keep("form")


def test_a_flow_runs_page_leads_to_the_run_in_mlflow(reviewed: Reviewed, prefect: Pages) -> None:
    prefect.open(f"/runs/flow-run/{reviewed.night}")
    prefect.wait_for("Completed", "Artifacts", "evaluate")
    prefect.keep("flow_run")


def test_the_automations_page_names_what_the_server_tells_by_itself(reviewed: Reviewed, prefect: Pages) -> None:
    prefect.open("/automations")
    prefect.wait_for("rewardflow: no heartbeat", "rewardflow: crashed", "rewardflow: nightly-training is silent")
    assert TOKEN not in prefect.text()
    prefect.keep("automations")
