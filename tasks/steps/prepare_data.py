"""Step 1: preparation of the recipe's data by DVC, and the record of their version."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from prefect import get_run_logger, task

from models.base.images import IMAGES
from models.datasets.prepare import notes_of
from models.datasets.schema import read_manifest
from tasks.data import dvc_remote, versions
from tasks.data.answers import DataSections, require_answers
from tasks.data.inputs import ROLE
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
from tasks.runner.unexpected import RETRY_OPTIONS
from tasks.tracking import records, runs, tags

_LOG = logging.getLogger("rewardflow.data")


@task(
    name="data",
    task_run_name="data {context.recipe.data.name}",
    persist_result=False,
    **RETRY_OPTIONS,
)
def prepare_data(context: StepContext[DataSections], root: Path) -> tuple[StepResult, versions.DataVersion]:
    """Bring the recipe's data up to date with `dvc repro`, check that they have the needed answers, and push them.

    The result counts as reused if DVC ran no stage.
    """
    recipe = context.recipe
    log = get_run_logger()
    lines: list[str] = []

    def log_line(line: str) -> None:
        lines.append(line)
        log.info(line)

    prepared_versions: list[versions.DataVersion] = []

    def work(folder: Path, run_id: str) -> StepOutput:
        version = versions.prepare(recipe.data, root, log_line)
        for note in notes_of(read_manifest(version.folder)):
            log.info("%s: %s", version.name, note)
        require_answers(version.folder, recipe)
        push_data(version, root, context.home)
        prepared_versions.append(version)
        rows = log_data(run_id, version, "preparation")
        runs.set_tags(run_id, {tags.DATA_REVISION: version.revision})
        return StepOutput(
            version.digest, f"{sum(rows.values()):,} rows, version {version.digest[:8]}", {"rows": sum(rows.values())}
        )

    result = run_step(context, work)
    ran = any(line.startswith("Running stage") for line in lines)
    return result.model_copy(update={"reused": not ran}), prepared_versions[0]


def push_data(version: versions.DataVersion, root: Path, home: Path) -> None:
    """Push raw and prepared data to the DVC remote, unless this version of them was pushed before.

    A model's training data must outlive this machine, so they are pushed before the training begins. A remote folder
    that was emptied since is detected.

    Raises:
        UserError: the remote cannot be written to.
    """
    fingerprint = hashlib.sha256(
        f"{version.name} {version.digest} {version.raw}{dvc_remote.configured_remote()}".encode()
    )
    for settings in (root / ".dvc/config", root / ".dvc/config.local"):
        fingerprint.update(settings.read_bytes() if settings.is_file() else b"")
    marker = home / "pushed" / fingerprint.hexdigest()
    if marker.is_file():
        if versions.stored(root, {version.digest}):
            return
        _LOG.warning("the DVC remote no longer has these data: they are pushed again")
    versions.push(root, version.name, report=lambda line: None)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()


def log_data(run_id: str, version: versions.DataVersion, role: str = "", held_out: bool = False) -> dict[str, int]:
    """Log raw and prepared data as inputs of a run; return the number of rows of each prepared file.

    Args:
        role: context of the prepared files; default: that of each file's split.
        held_out: whether no model learns from the data, raw or prepared.
    """
    rows: dict[str, int] = read_manifest(version.folder)["rows"]
    raw_context, whole_context = ("held out", "held out") if held_out else ("raw", "prepared")
    for path, md5 in version.raw.items():
        records.log_dataset(run_id, f"{version.name}/raw", md5, path, raw_context, revision=version.revision)
    for path, md5 in version.files.items():
        file = Path(path)
        if file.suffix == ".parquet":
            name = f"{version.name}/{file.stem}"
            context = role or (whole_context if file.name == IMAGES else ROLE[file.stem.rpartition("_")[2]])
            records.log_dataset(run_id, name, md5, path, context, rows=rows.get(file.name), revision=version.revision)
    records.log_dataset(
        run_id,
        version.name,
        version.digest,
        f"data/prepared/{version.name}",
        whole_context,
        sum(rows.values()),
        version.revision,
    )
    return rows
