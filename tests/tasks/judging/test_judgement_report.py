"""A judgement for readers: text, JSON, one HTML page and an MLflow run."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from written import coins, judged, write_lines, write_problems, write_scores

from tasks.judging.record import EXPERIMENT, record
from tasks.judging.report import as_html, as_json, as_text, headline
from tasks.judging.verdict import Judgement
from tasks.tracking import runs, store, tags

COUNT = 120


@pytest.fixture
def better(tmp_path: Path) -> Judgement:
    """Judge a candidate with right answers against a champion whose answers are right half of the time."""
    data = write_problems(tmp_path / "problems.jsonl", COUNT)
    files = []
    for name, share in (("a<b>", 0.5), ("c", 1.0)):
        right = coins(COUNT, share, seed=1)
        rows = [{"id": n, "answer": f"#### {n if value else n + 1}"} for n, value in enumerate(right)]
        files.append(write_lines(tmp_path / f"{name}.jsonl", rows))
    return judged(*files, data=data, verifier="exact_answer", ledger=tmp_path / "looks.json")


@pytest.fixture
def unmeasured(tmp_path: Path) -> Judgement:
    """Judge a candidate of which one score is missing."""
    rows = [{"id": n, "score": 1 if n else None} for n in range(COUNT)]
    return judged(write_scores(tmp_path / "a.jsonl", [0.0] * COUNT), write_lines(tmp_path / "b.jsonl", rows))


def test_the_text_has_verdict_look_power_metrics_and_checks(better: Judgement) -> None:
    text = as_text(better)
    assert re.search(
        r"^verdict +better: strict_accuracy \+0\.500 \[\+0\.4\d\d, \+0\.5\d\d\], and every guard", text, re.M
    )
    for words in (
        "look 1 of 365 at these problems",
        "would have been found with 80 % power",
        "problems needed to find a true difference",
        "the candidate is higher on 60 problems, equal on 60 and lower on 0",
        "is content (lenient_accuracy) and +0.000 [+0.000, +0.000] is form",
        "lengths are in characters",
        "looks are counted in",
    ):
        assert words in text
    assert re.search(r"^strict_accuracy +0\.500 \[.*\] +1\.000 \[1\.000, 1\.000\] +\+0\.500", text, re.M)
    assert re.search(r"^length +passed +against the baseline", text, re.M)


def test_the_json_has_every_number_and_no_number_that_json_lacks(better: Judgement, unmeasured: Judgement) -> None:
    content = json.loads(as_json(better))
    assert content["decision"] == "better" and content["difference"]["estimate"] == 0.5
    assert content["look"]["number"] == 1 and content["look"]["ledger"].endswith("looks.json")
    assert [check["name"] for check in content["checks"]] == ["better", "length", "lenient_accuracy"]
    assert content["form"]["content"]["estimate"] == 0.5 and content["needed"]["0.05"] > COUNT
    without = json.loads(as_json(unmeasured), parse_constant=lambda name: pytest.fail(name))
    assert without["decision"] == "not_shown" and without["difference"]["estimate"] is None


def test_the_page_is_one_file_with_a_figure_of_every_difference(better: Judgement, unmeasured: Judgement) -> None:
    page = as_html(better)
    assert "a&lt;b&gt;.jsonl" in page and "<b>" not in page
    assert not re.search(r'(?:src|href)="|url\(|<script', page), "nothing is loaded from elsewhere"
    figure = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    labels = [text.text for text in figure.iter("{http://www.w3.org/2000/svg}text")]
    assert labels[:2] == ["strict_accuracy", "lenient_accuracy"] and labels[-1] == "candidate minus champion"
    assert len(list(figure.iter("{http://www.w3.org/2000/svg}circle"))) == len(better.metrics)
    assert "<svg" not in as_html(unmeasured) and "not measured" in as_html(unmeasured)


def test_every_decision_has_its_sentence(better: Judgement, unmeasured: Judgement) -> None:
    assert headline(better).startswith("better: strict_accuracy +0.500")
    assert headline(unmeasured).startswith("not shown to be better: score")


def test_a_judgement_is_recorded_as_a_run(
    better: Judgement, unmeasured: Judgement, tmp_path: Path, new_store: Callable[[Path], Path]
) -> None:
    new_store(tmp_path / "home")
    run = store.client().get_run(record(better))
    assert run.info.status == "FINISHED"
    assert store.client().get_experiment(run.info.experiment_id).name == EXPERIMENT
    assert run.data.tags[tags.RUN_VERDICT] == "better" and "+0.500" in run.data.tags[tags.RUN_DIFFERENCE]
    metrics = run.data.metrics
    assert metrics["gate/difference"] == 0.5 and metrics["candidate/strict_accuracy"] == 1.0
    assert run.data.params["metric"] == "strict_accuracy" and run.data.params["problems"] == str(COUNT)
    names = [entry.path for entry in store.client().list_artifacts(run.info.run_id, "judgement")]
    assert names == ["judgement/judgement.html", "judgement/judgement.json"]
    assert "every guard holds" in runs.tags_of(run.info.run_id)["mlflow.note.content"]
    assert "gate/difference" not in store.client().get_run(record(unmeasured)).data.metrics
