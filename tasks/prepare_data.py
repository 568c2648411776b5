"""Step 1: bring the prepared data up to date with DVC and record exactly which version it is."""

from __future__ import annotations

from pathlib import Path

from prefect import get_run_logger, task

from models.datasets.schema import read_manifest
from models.recipe.schema import Recipe
from tasks import versions
from tasks.step import Made, StepResult, content_key, run_step
from tasks.tracking import records, runs, tags
from tasks.unexpected import tried_again


@task(
    name="data",
    task_run_name="data {recipe.data.name}",
    persist_result=False,
    **tried_again,
)
def prepare_data(
    recipe: Recipe, root: Path, home: Path, parent_run: str
) -> tuple[StepResult, versions.DataVersion, bool]:
    """Run the data stages. Returns the result, the version, and whether DVC found everything up to date."""
    log = get_run_logger()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        log.info(line)

    found: list[versions.DataVersion] = []

    def work(folder: Path, run_id: str) -> Made:
        version = versions.prepare(recipe.data, root, say)
        found.append(version)
        rows = log_data(run_id, version, "preparation")
        runs.set_tags(run_id, {tags.DATA_REVISION: version.revision})
        return Made(
            version.digest, f"{sum(rows.values()):,} rows, version {version.digest[:8]}", {"rows": sum(rows.values())}
        )

    result = run_step(home, "data", content_key("data", recipe.data.model_dump(mode="json")), parent_run, work)
    ran = any(line.startswith("Running stage") for line in lines)
    return result, found[0], not ran


def log_data(run_id: str, version: versions.DataVersion, context: str) -> dict[str, int]:
    """Log raw and prepared data as inputs of a run. Returns the rows of each prepared file."""
    rows: dict[str, int] = read_manifest(version.folder)["rows"]
    for path, md5 in version.raw.items():
        records.log_dataset(run_id, f"{version.name}/raw", md5, path, "raw", revision=version.revision)
    for path, md5 in version.files.items():
        file = Path(path)
        if file.suffix == ".parquet":
            name = f"{version.name}/{file.stem}"
            records.log_dataset(run_id, name, md5, path, context, rows=rows.get(file.name), revision=version.revision)
    records.log_dataset(
        run_id,
        version.name,
        version.digest,
        f"data/prepared/{version.name}",
        "prepared",
        sum(rows.values()),
        version.revision,
    )
    return rows
