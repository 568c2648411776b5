"""Commands of a review by people: two trained versions are compared, and a reward model learns from the answers."""

import re
from pathlib import Path

import pytest
from project import Project, rewardflow
from running import Pair, ask
from test_data_command import SOMEBODY

from models.datasets.schema import read_rows
from tasks.people.ask_people import reviews_of
from tasks.tracking import recorded, registry, store

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
BOTH = ("--set", "data.format=kinds")


def answer(server: str, trace: str, value: str, who: str) -> None:
    """Send an answer as MLflow's review page does."""
    assessment = {
        "assessment_name": "preference",
        "trace_id": trace,
        "source": {"source_type": "HUMAN", "source_id": who},
        "feedback": {"value": value},
    }
    ask(f"{server}/ajax-api/3.0/mlflow/traces/{trace}/assessments", {"assessment": assessment})


def test_the_next_reward_model_learns_from_what_people_said(
    project: Project, servers: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**project.settings(tmp_path), "MLFLOW_TRACKING_URI": servers.mlflow, **SOMEBODY}

    def said(*words: str) -> str:
        ended = rewardflow(project.folder, *words, **environment)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    for seed in ("seed=0", "seed=5"):
        said("run", "tiny", "--set", seed)
    asked = said("review", "queue", "--pairs", "6", "--reviewer", "ann", "--reviewer", "bob")
    pages = re.findall(rf"{re.escape(servers.mlflow)}/#/experiments/\d+/review-queue\?selectedQueueId=rq-\w+", asked)
    assert len(set(pages)) == 2 and "version 2 against 1, ann: 6 pairs" in asked
    assert said("review", "queue", "--reviewer", "bob").startswith("version 2 against 1, bob: 6 pairs, there already")

    monkeypatch.setenv("MLFLOW_TRACKING_URI", servers.mlflow)
    store.configure(tmp_path)
    run = recorded.of_version(registry.versions("tiny-policy")[0]).run
    for review in reviews_of(run):
        for trace in review.pairs:
            answer(servers.mlflow, trace, "first", review.reviewer)
    assert "Krippendorff's alpha" in (collected := said("review", "collect")) and "12 of 12 answers new" in collected

    folders = ["data/raw/arithmetic", "data/raw/arithmetic-reviewed"]
    words = said("data", "add", *folders, "--recipe", "tiny", "--name", "with-people", *BOTH).splitlines()[-1].split()
    assert words[:3] == ["rewardflow", "run", "tiny"]
    said(*words[1:], "--set", "schedule=null")
    trained, plain = (project.folder / f"data/prepared/{name}" for name in ("with-people", "arithmetic"))
    rows = read_rows(trained, "preferences", "train")
    pairs = {(pair.prompt, frozenset((pair.candidate, pair.champion))) for pair in review.pairs.values()}
    seen = [(row["prompt"], frozenset((row["chosen"], row["rejected"]))) for row in rows]
    assert {pair for pair in seen if pair in pairs} == pairs
    assert len(rows) == len(read_rows(plain, "preferences", "train")) + 12
    assert read_rows(trained, "problems", "gate") == read_rows(plain, "problems", "gate")
    latest = recorded.of_run(said("show", "latest").split("/runs/")[-1][:32])
    (read,) = [link for link in latest.data if link.name == "with-people/preferences_train"]
    assert (read.context, read.rows) == ("training", len(rows))
