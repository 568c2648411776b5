"""Upload of a run's reports to a real S3 server: the validation's pages and the description, under the run's id."""

import pytest
from prefect.logging import disable_run_logger
from s3_loopback import BUCKET, s3_endpoint  # noqa: F401  (a fixture)

from flows.cli.reports import reports
from models.base.errors import UserError
from tasks.runner.step import StepResult
from tasks.steps.upload_reports import upload_reports
from tasks.tracking import records, runs, store

pytestmark = [pytest.mark.slow, pytest.mark.rotating(of=8)]


def validated(folder):
    (folder / "data_docs").mkdir(parents=True)
    (folder / "data_docs/index.html").write_text("<h1>Data Docs</h1>")
    return StepResult(
        step="validate", key="k", folder=str(folder), digest="d", headline="", metrics={}, run_id="", seconds=0.0
    )


def test_docs_and_description_lie_below_experiment_and_run(s3_endpoint, tmp_path, monkeypatch):  # noqa: F811
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    store.configure(tmp_path / "home")
    run_id = runs.open_flow_run("nightly", "train nightly")
    records.describe(run_id, "## Promoted\n")
    with disable_run_logger():
        uploaded = upload_reports.fn(f"s3://{BUCKET}/reports/", "nightly", run_id, validated(tmp_path / "validate"))
    runs.close_run(run_id)
    below = f"reports/nightly/{run_id}"
    assert sorted(uploaded) == [f"s3://{BUCKET}/{below}/{name}" for name in ("data_docs/index.html", "description.md")]
    stored = boto3.client("s3", endpoint_url=s3_endpoint).get_object(Bucket=BUCKET, Key=f"{below}/description.md")
    assert stored["Body"].read() == b"## Promoted\n"


def test_whoever_has_no_keys_is_given_links(s3_endpoint, tmp_path, monkeypatch, capsys):  # noqa: F811
    import requests

    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path / "home"))
    store.configure(tmp_path / "home")
    run_id = runs.open_flow_run("nightly", "train nightly")
    records.describe(run_id, "## Promoted\n")
    with pytest.raises(UserError, match="it uploaded no reports"):
        reports(run_id)
    with disable_run_logger():
        upload_reports.fn(f"s3://{BUCKET}/reports/", "nightly", run_id, validated(tmp_path / "validate"))
    runs.close_run(run_id)
    reports(run_id)
    lines = capsys.readouterr().out.splitlines()
    assert lines[::2] == ["data_docs/index.html", "description.md"]
    assert requests.get(lines[3].strip(), timeout=20).text == "## Promoted\n"


def test_a_bucket_that_is_not_there_is_one_line(s3_endpoint, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    store.configure(tmp_path / "home")
    run_id = runs.open_flow_run("nightly", "train nightly")
    with disable_run_logger(), pytest.raises(UserError, match=r"s3://nowhere.*no such bucket"):
        upload_reports.fn("s3://nowhere", "nightly", run_id, validated(tmp_path / "validate"))
    runs.close_run(run_id)
