"""Logging to a run of all but curves: data sets, final metrics, tables, figures, files and the description."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError
from models.base.thumbnails import first_image, thumbnail
from tasks.tracking import runs, store
from tasks.tracking.metrics import MOST_KEYS, clean_key
from tasks.tracking.mirrors import mirrored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTE = "mlflow.note.content"
"""MLflow's tag for the description of a run."""
TABLES = "mlflow.loggedArtifacts"
"""MLflow's tag with the list of a run's artifacts that are tables."""
PICTURE = "picture"
"""Column of a table with the first image of each row."""
REPORT = "report.md"
"""Artifact with the whole description if the tag holds only its beginning."""


@dataclass(frozen=True)
class MeasurementContext:
    """Model and data set that a metric was measured on, so that MLflow also shows it on the model's page."""

    model_id: str
    dataset: str
    """Name of the data set, as passed to `log_dataset`."""
    digest: str


def log_dataset(
    run_id: str, name: str, digest: str, source: str, context: str, rows: int | None = None, revision: str = ""
) -> None:
    """Record that a run read a data set.

    Args:
        run_id: the run that read it.
        name: name of the data set, e.g. "arithmetic/problems_train".
        digest: content hash of at most 36 characters, such as DVC's md5, after which ".dir" fits.
        source: path or address.
        context: purpose, such as "raw", "prepared", "training", "evaluation".
        rows: number of rows.
        revision: git commit of the repository that the data were read from.

    Raises:
        UserError: the digest is too long for MLflow.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    if not 0 < len(digest) <= 36:
        raise UserError(f"data set {name}: digest {digest!r} has {len(digest)} characters, MLflow takes 1 to 36")
    profile: dict[str, object] = {} if rows is None else {"num_rows": rows}
    if revision:
        profile["dvc_revision"] = revision
    entity = Dataset(
        name=name,
        digest=digest,
        source_type="local" if "://" not in source else source.split("://", 1)[0],
        source=json.dumps({"uri": source, "dvc_revision": revision}),
        profile=json.dumps(profile),
    )
    tag = InputTag("mlflow.data.context", context)
    store.patiently(store.client().log_inputs, run_id, datasets=[DatasetInput(entity, [tag])])


def log_metrics(
    run_id: str, metrics: Mapping[str, float], step: int = 0, measured: MeasurementContext | None = None
) -> None:
    """Log the final metrics of a run at once (curves: tasks.tracking.metrics). Values that are not finite are left out.

    Args:
        measured: the model and the data of the metrics, if they concern one model.
    """
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    finite = {clean_key(key): float(value) for key, value in metrics.items() if math.isfinite(value)}
    if len(finite) > MOST_KEYS:
        raise UserError(f"{len(finite)} metric keys for run {run_id}, at most {MOST_KEYS}")
    about = (measured.model_id, measured.dataset, measured.digest) if measured else (None, None, None)
    entries = [Metric(key, value, now, step, *about) for key, value in finite.items()]
    store.patiently(store.client().log_batch, run_id, metrics=entries)
    mirrored.add_final(run_id, step, now, finite)


def log_artifact(run_id: str, file: Path, folder: str = "") -> None:
    """Log one file under `folder` of the run's artifacts."""
    store.patiently(store.client().log_artifact, run_id, str(file), folder or None)
    mirrored.add_file(run_id, file, folder)


def log_artifacts(run_id: str, source: Path, folder: str = "") -> None:
    """Log the contents of `source` under `folder` of the run's artifacts."""
    store.patiently(store.client().log_artifacts, run_id, str(source), folder or None)


def log_text(run_id: str, path: str, text: str) -> None:
    """Log `text` as the artifact `path`."""
    store.patiently(store.client().log_text, run_id, text, path)
    mirrored.add_text(run_id, path, text)


def log_figure(run_id: str, path: str, figure: Figure) -> None:
    """Log a figure as the PNG `path`, in a resolution for large screens."""
    store.patiently(store.client().log_figure, run_id, figure, path, save_kwargs={"dpi": 150, "bbox_inches": "tight"})


def log_table(run_id: str, path: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Log rows as the table `path`, such as "samples/step_00040.json", which MLflow's artifact viewer shows.

    Logging the same path again replaces the table. Columns are those of the first row, then new ones in order of
    appearance. Missing values are empty, and so are values that are not finite, as JSON has none.
    """
    if PurePosixPath(path).suffix != ".json":
        raise ValueError(f"a table is a .json file, not {path!r}")
    rows = _with_pictures(run_id, path, rows)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    body = {"columns": columns, "data": [[_cell(row.get(column)) for column in columns] for row in rows]}
    log_text(run_id, path, json.dumps(body, ensure_ascii=False))
    run = store.patiently(store.client().get_run, run_id)
    listed = [entry for entry in json.loads(run.data.tags.get(TABLES, "[]")) if entry["path"] != path]
    listed.append({"path": path, "type": "table"})
    while len(json.dumps(listed)) > runs.LONGEST_TAG:  # the files stay; the newest ones are listed
        listed.pop(0)
    runs.set_tags(run_id, {TABLES: json.dumps(listed)})


def read_table(run_id: str, path: str) -> list[dict[str, Any]]:
    """Return the rows of a table that `log_table` wrote."""
    import mlflow

    return _rows(mlflow.artifacts.load_text(f"runs:/{run_id}/{path}"))


def read_table_if_kept(run_id: str, path: str) -> list[dict[str, Any]]:
    """Return the rows of a table that `log_table` wrote; none if the run has no such table, or is gone."""
    with TemporaryDirectory() as folder:
        file = fetch_artifact(run_id, path, Path(folder))
        return _rows(file.read_text(encoding="utf-8")) if file is not None else []


def _rows(text: str) -> list[dict[str, Any]]:
    body = json.loads(text)
    return [dict(zip(body["columns"], row, strict=True)) for row in body["data"]]


def fetch_artifact(run_id: str, path: str, folder: Path) -> Path | None:
    """Download a run's artifact into `folder` and return its path; None if the run or the artifact is gone."""
    from mlflow import MlflowException

    try:
        return Path(store.patiently(store.client().download_artifacts, run_id, path, str(folder)))
    except (MlflowException, OSError):
        return None


def describe(run_id: str, markdown: str) -> None:
    """Make `markdown` the description of the run, which a reviewer sees first.

    A tag holds 8,000 characters. A longer description is stored whole as the artifact report.md, and the tag holds the
    leading sections that fit.
    """
    if len(markdown) > runs.LONGEST_TAG:
        log_text(run_id, REPORT, markdown)
        markdown = first_sections(markdown, runs.LONGEST_TAG, f"\n\n*The rest is in the artifact `{REPORT}`.*\n")
    runs.set_tags(run_id, {NOTE: markdown})


def first_sections(markdown: str, longest: int, ending: str) -> str:
    """Return the leading sections (each begins with "## " or "### ") of `markdown` that fit together with `ending`."""
    room = longest - len(ending)
    if len(markdown) <= longest:
        return markdown
    cut = max(markdown.rfind("\n## ", 0, room), markdown.rfind("\n### ", 0, room))
    return (markdown[:cut] if cut > 0 else markdown[:room]) + ending


def _with_pictures(run_id: str, path: str, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Put the picture of each row first, if all rows refer to images, as MLflow shows them in tables.

    The pictures are logged as files, each once.
    """
    names = list(map(first_image, rows))
    if not rows or None in names:  # MLflow takes a column of pictures only if every row has one
        return rows
    folder = PurePosixPath("table_images", path).with_suffix("")
    shown: dict[str, dict[str, str]] = {}
    for name in filter(None, dict.fromkeys(names)):
        if (picture := thumbnail(name)) is None:
            return rows
        files = {"filepath": f"{folder}/{name}.png", "compressed_filepath": f"{folder}/{name}.webp"}
        for file in files.values():
            store.patiently(store.client().log_image, run_id, picture, file)
        shown[name] = {"type": "image", **files}
    return [{PICTURE: shown[name or ""], **row} for name, row in zip(names, rows, strict=True)]


def _cell(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") == "image":
        return value
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:  # a NumPy or torch scalar
        return _cell(value.item())
    return str(value)
