"""What the real packages read in their own files: points, params and tags of a run in a mirror."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip a test if a package of a mirror is not installed."""
    missing = [name for name in names if not _is_installed(name)]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (mirrors.lock)")


def _is_installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


@dataclass
class Copied:
    """The contents of a run in a mirror."""

    points: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Key -> step and value of each point, in the order of the file."""
    times: dict[str, list[float]] = field(default_factory=dict)
    """Key -> time of each point, seconds since 1970."""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def add(self, key: str, step: int, value: float, at: float) -> None:
        self.points.setdefault(key, []).append((step, value))
        self.times.setdefault(key, []).append(at)


def tensorboard_run(folder: Path, experiment: str, name: str) -> Copied:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(folder / "mirrors/tensorboard" / name), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    copied = Copied()
    for key in events.Tags()["scalars"]:
        for point in events.Scalars(key):
            copied.add(key, point.step, point.value, point.wall_time)
    for key in events.Tags()["tensors"]:
        if key == "_hparams_/session_start_info":
            content = events.SummaryMetadata(key).plugin_data.content
            hparams = HParamsPluginData.FromString(content).session_start_info.hparams
            copied.params = {name: _plain(value) for name, value in hparams.items()}
        else:
            text = make_ndarray(events.Tensors(key)[-1].tensor_proto).item().decode()
            (copied.tags if key.startswith("tags/") else copied.texts)[key.removeprefix("tags/")] = text
    return copied


def _plain(value: Any) -> str:
    return str(value.string_value if value.WhichOneof("kind") == "string_value" else value.number_value)


def wandb_run(folder: Path, experiment: str, name: str) -> Copied:
    """Read W&B's offline files of a run: all folders that have it."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    copied = Copied()
    for file in sorted((folder / "mirrors/wandb").glob("offline-run-*/run-*.wandb")):
        store = DataStore()
        store.open_for_scan(str(file))
        config: dict[str, Any] = {}
        history: list[dict[str, Any]] = []
        summary: dict[str, Any] = {}
        display = ""
        while (raw := store.scan_data()) is not None:
            record = Record.FromString(raw)
            match record.WhichOneof("record_type"):
                case "run":
                    display = record.run.display_name
                    assert record.run.project == experiment
                    config |= _values(record.run.config.update)
                    if record.run.notes:
                        copied.texts["notes"] = record.run.notes
                case "config":
                    config |= _values(record.config.update)
                case "history":
                    history.append(_values(record.history.item))
                case "summary":
                    summary |= _values(record.summary.update)
        if display != name:
            continue
        for row in history:
            for key in row.keys() - {"step", "_step", "_timestamp", "_runtime"}:
                copied.add(key, row["step"], row[key], row["_timestamp"])
        for key in summary.keys() - copied.points.keys():
            if not key.startswith("_") and key != "step":
                copied.add(key, 0, summary[key], 0.0)
        copied.tags |= config.pop("tags", {})
        copied.texts |= config.pop("texts", {})
        copied.params |= {key: str(value) for key, value in config.items() if not key.startswith("_")}
    return copied


def _values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def trackio_run(folder: Path, experiment: str, name: str) -> Copied:
    """Read a run by Trackio's own interface; TRACKIO_DIR is the folder that it had when it was imported."""
    from datetime import datetime

    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    copied = Copied()
    (run,) = [run for run in Api().runs(experiment) if run.name == name]
    for row in SQLiteStorage.get_logs(experiment, name):
        at = datetime.fromisoformat(row["timestamp"]).timestamp()
        for key in row.keys() - {"timestamp", "step"}:
            copied.add(key, row["step"], row[key], at)
    config = dict(run.config)
    copied.tags, copied.texts = config.pop("tags", {}), config.pop("texts", {})
    copied.params = {key: str(value) for key, value in config.items() if not key.startswith("_")}
    return copied


READERS: dict[str, Callable[[Path, str, str], Copied]] = {
    "tensorboard": tensorboard_run,
    "wandb": wandb_run,
    "trackio": trackio_run,
}
