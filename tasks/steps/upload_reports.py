"""Upload of the validation report and the run's description to S3, for people without access to MLflow."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from tasks.runner.step import StepResult
from tasks.runner.unexpected import RETRY_OPTIONS
from tasks.state import storage
from tasks.tracking import runs, summaries, tags


@task(
    name="upload_reports",
    cache_policy=NO_CACHE,
    **RETRY_OPTIONS,
)
def upload_reports(address: str, experiment: str, run_id: str, validated: StepResult) -> list[str]:
    """Upload Data Docs and description below `address`/EXPERIMENT/RUN. Return the addresses of the files.

    Raises:
        UserError: the bucket cannot be reached or written.
    """
    target = f"{address.rstrip('/')}/{experiment}/{run_id}"
    uploaded = storage.upload_folder(Path(validated.folder) / "data_docs", f"{target}/data_docs")
    with TemporaryDirectory() as scratch:
        (Path(scratch) / "description.md").write_text(summaries.run_summary(experiment, run_id).description)
        uploaded += storage.upload_folder(Path(scratch), target)
    runs.set_tags(run_id, {tags.REPORTS: target})
    get_run_logger().info(f"{len(uploaded)} files of the reports lie at {target}; `rewardflow reports` signs links")
    return uploaded
