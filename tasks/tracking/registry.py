"""MLflow's model registry: logging of model folders, versions of registered models, their facts and tags.

A folder becomes a LoggedModel (weights are copied, never loaded), a LoggedModel becomes a version of a registered
model, and aliases give a version its role: see tasks.tracking.aliases.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar
from urllib.parse import unquote, urlparse

from models.base.errors import UserError
from tasks.tracking import model_files, store, tags
from tasks.tracking.records import NOTE

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Task = Literal["text-generation", "text-classification"]

CHAMPION, CANDIDATE, PREVIOUS, ANCHOR = "champion", "candidate", "previous", "anchor"

VERSIONS_OF_MODEL = "mlflow.modelVersions"
"""MLflow's tag on a LoggedModel: the versions that it was registered as. Without it its page shows "Not registered"."""


@dataclass(frozen=True)
class VersionInfo:
    """One version of a registered model."""

    name: str
    version: int
    run_id: str
    """Run that logged the model."""
    model_id: str
    """Id of the LoggedModel behind the version; the address of its files if it has none (see `logged`)."""
    created: datetime
    aliases: tuple[str, ...]
    tags: Mapping[str, str] = field(repr=False)
    description: str = field(repr=False)

    @property
    def uri(self) -> str:
        """Address with the version's number, which, unlike an alias, always means the same model."""
        return f"models:/{self.name}/{self.version}"

    @property
    def logged(self) -> bool:
        """Whether the version has a LoggedModel; a version made by hand may have only files."""
        return self.model_id.startswith("m-")


def log_model(
    run_id: str,
    folder: Path,
    name: str,
    task: Task,
    model_tags: Mapping[str, str] | None = None,
    step: int = 0,
    example: str = "",
) -> str:
    """Log a Hugging Face model folder (safetensors and tokenizer) as an output of a run. Return its model id.

    Args:
        run_id: run that made the model.
        folder: read, not changed; the weights are not loaded.
        name: name of the LoggedModel, e.g. "policy".
        task: "text-generation" for a policy, "text-classification" for a reward model with one label.
        model_tags: tags of the LoggedModel.
        step: training step of the weights.
        example: an example input text for the model, shown on its page.

    Raises:
        UserError: the folder lacks its configuration or its weights.
    """
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    for needed in ("config.json", "*.safetensors"):
        if not list(folder.glob(needed)):
            raise UserError(f"{folder}: {needed} is missing, this is not a model folder")
    run = store.patiently(store.client().get_run, run_id)
    logged = store.patiently(
        store.client().create_logged_model,
        run.info.experiment_id,
        name,
        source_run_id=run_id,
        tags=dict(model_tags or {}),
        model_type=task,
    )
    model_id = str(logged.model_id)
    try:
        with tempfile.TemporaryDirectory(dir=store.current().home, prefix="logging-") as scratch:
            target = Path(scratch) / "model"
            description = Model(
                artifact_path=logged.artifact_location, model_uuid=model_id, run_id=run_id, model_id=model_id
            )
            model_files.write_model(folder, target, task, description, example)
            local = local_folder(logged.artifact_location)
            if local is None:
                model_files.place_weights(folder, target)
            store.patiently(store.client().log_model_artifacts, model_id, str(target))
            if local is not None:
                model_files.place_weights(folder, local)
    except BaseException:
        store.client().finalize_logged_model(model_id, "FAILED")
        raise
    store.patiently(store.client().finalize_logged_model, model_id, "READY")
    store.patiently(store.client().log_outputs, run_id, [LoggedModelOutput(model_id, step)])
    return model_id


def local_folder(location: str) -> Path | None:
    """Return the folder of an artifact address; None if the artifacts are on a server or in a bucket."""
    at = urlparse(location)
    return Path(unquote(at.path)) if at.scheme in ("", "file") else None


def log_model_inputs(run_id: str, model_ids: Iterable[str]) -> None:
    """Record LoggedModels as inputs of a run, such as the reward model and warm start of a fine-tuning.

    An empty id, that of a folder that is not in the tracking store, is skipped.
    """
    from mlflow.entities import LoggedModelInput

    inputs = [LoggedModelInput(model_id) for model_id in model_ids if model_id]
    store.patiently(store.client().log_inputs, run_id, models=inputs)


def log_model_outputs(run_id: str, model_ids: Iterable[str]) -> None:
    """Record LoggedModels as outputs of a flow's run whose steps made them."""
    from mlflow.entities import LoggedModelOutput

    outputs = [LoggedModelOutput(model_id, 0) for model_id in model_ids]
    store.patiently(store.client().log_outputs, run_id, outputs)


def model_tags(name: str) -> dict[str, str]:
    """Return the tags of a registered model; none if the model does not exist."""
    model = _or_none(store.client().get_registered_model, name)
    return dict(model.tags or {}) if model is not None else {}


def set_model_tag(name: str, key: str, value: str) -> None:
    """Set a tag of a registered model, which is created if it is missing."""
    make_model(name)
    store.patiently(store.client().set_registered_model_tag, name, key, value)


def delete_model_tag(name: str, key: str) -> None:
    """Delete a tag of a registered model."""
    store.patiently(store.client().delete_registered_model_tag, name, key)


def delete_version_tag(info: VersionInfo, key: str) -> None:
    """Delete a tag of a version."""
    store.patiently(store.client().delete_model_version_tag, info.name, str(info.version), key)


def make_model(name: str) -> None:
    """Create the registered model if it is missing."""
    from mlflow import MlflowException

    try:
        store.patiently(store.client().create_registered_model, name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def register(name: str, model_id: str, facts: Mapping[str, str] | None = None, description: str = "") -> int:
    """Register a LoggedModel as the next version of the registered model `name` (created if it is missing).

    Args:
        facts: see `annotate`.
        description: Markdown.
    """
    make_model(name)
    logged = store.patiently(store.client().get_logged_model, model_id)
    shown, rest = _sorted_out(facts or {})
    made = store.patiently(
        store.client().create_model_version,
        name,
        source=f"models:/{model_id}",
        run_id=logged.source_run_id,
        tags=shown,
        description=description or None,
        model_id=model_id,
    )
    _link_to_version(model_id, name, str(made.version))
    model_files.add_to_record(model_id, rest)
    return int(made.version)


def annotate(name: str, version: int, facts: Mapping[str, str] | None = None, description: str | None = None) -> None:
    """Record facts about a version, and its description (Markdown) if one is given.

    Facts for a person (`tags.FOR_A_PERSON`) become tags. All others are added to the version's record, which `facts_of`
    reads.
    """
    info = version_info(name, version)
    shown, rest = _sorted_out(facts or {}) if info.logged else (dict(facts or {}), {})
    for key, value in shown.items():
        store.patiently(store.client().set_model_version_tag, name, str(version), key, str(value))
    model_files.add_to_record(info.model_id, rest)
    if description is not None:
        store.patiently(store.client().update_model_version, name, str(version), description)
        if info.logged:  # its own page shows the same
            store.patiently(store.client().set_logged_model_tags, info.model_id, {NOTE: description})


def facts_of(version: VersionInfo) -> dict[str, str]:
    """Return all recorded facts about a version: its record and its tags."""
    record = model_files.read_record(version.model_id) if version.logged else {}
    return {**record, **version.tags}


def describe_model(name: str, description: str) -> None:
    """Set the description (Markdown) of the registered model `name`."""
    store.patiently(store.client().update_registered_model, name, description)


def version_info(name: str, version: int) -> VersionInfo:
    """Return one version.

    Raises:
        UserError: the version does not exist; the message names the existing ones.
    """
    model_version = _or_none(store.client().get_model_version, name, str(version))
    if model_version is None:
        there = ", ".join(str(entry.version) for entry in versions(name)[:10]) or "none"
        raise UserError(f"model {name!r} has no version {version}; its versions, newest first: {there}")
    return _info(model_version)


def by_alias(name: str, alias: str) -> VersionInfo | None:
    """Return the version that has `alias`, or None."""
    model_version = _or_none(store.client().get_model_version_by_alias, name, alias)
    return version_info(name, int(model_version.version)) if model_version is not None else None


def champion(name: str) -> VersionInfo | None:
    """Return the version that has the alias `champion`, or None."""
    return by_alias(name, CHAMPION)


def versions(name: str) -> list[VersionInfo]:
    """Return all versions of a model, newest first; none if the model does not exist."""
    quote = '"' if "'" in name else "'"
    return _search(name, f"name = {quote}{name}{quote}")


def policy_names() -> list[str]:
    """Return the names of the registered policies, sorted."""
    return model_names("name LIKE '%-policy'")


def model_names(query: str | None = None) -> list[str]:
    """Return the sorted names of the registered models that match MLflow's filter `query`; without one, of all."""
    models = store.all_pages(store.client().search_registered_models, filter_string=query)
    return sorted(str(model.name) for model in models)


def find_by_tag(name: str, key: str, value: str) -> list[VersionInfo]:
    """Return the versions whose tag `key` is `value`, newest first, e.g. to find already registered weights."""
    if "'" in value or "'" in name:  # MLflow's filters have no escape
        return [info for info in versions(name) if info.tags.get(key) == value]
    return _search(name, f"name = '{name}' and tag.`{key}` = '{value}'")


def missing(run_id: str, links: Mapping[str, str]) -> str:
    """Return the name of the first part of a step's result that the store in use does not have; "" if it has all.

    Args:
        run_id: a run; one that was moved to MLflow's trash counts as present.
        links: `model_id` of a LoggedModel, empty for a folder that is not in the store; `version` as NAME/NUMBER; other
            names are ignored.
    """
    name, _, number = links.get("version", "").rpartition("/")
    if _or_none(store.client().get_run, run_id) is None:
        return f"run {run_id}"
    if links.get("model_id") and _or_none(store.client().get_logged_model, links["model_id"]) is None:
        return f"model {links['model_id']}"
    if name and _or_none(store.client().get_model_version, name, number) is None:
        return f"model {name} version {number}"
    return ""


def fetch(uri: str) -> Path:
    """Return the folder of the Hugging Face model behind `models:/NAME@ALIAS`, `models:/NAME/VERSION` or `models:/ID`.

    The folder loads with transformers' from_pretrained and with vLLM. In the embedded store it is the artifact itself
    (do not change it); from a server it is downloaded once a version into the state folder.

    Raises:
        UserError: the model, version or alias does not exist.
    """
    import mlflow
    from mlflow import MlflowException

    try:
        model_id = str(mlflow.models.get_model_info(uri).model_id)
        at = urlparse(store.patiently(store.client().get_logged_model, model_id).artifact_location)
        here = Path(unquote(at.path)) / "model"
        if at.scheme in ("", "file") and here.is_dir():
            return here
        folder = download_folder(store.current().home) / model_id
        with contextlib.suppress(OSError):  # a folder counts as used when it was last fetched (tasks/state/prune.py)
            os.utime(folder)
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                downloaded = mlflow.artifacts.download_artifacts(artifact_uri=f"models:/{model_id}", dst_path=scratch)
                with contextlib.suppress(OSError):  # another process was first: its download is equivalent
                    (Path(downloaded) / "model").rename(folder)
    except MlflowException as error:
        raise UserError(f"{uri}: {str(error).splitlines()[0]}") from error
    return folder


def download_folder(home: Path) -> Path:
    """Return the folder of the models that `fetch` downloaded; it may be emptied while no process uses them."""
    return home / "models"


def _sorted_out(facts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split facts into those for a version's tags and those for its record."""
    shown = {key: str(value) for key, value in facts.items() if key in tags.FOR_A_PERSON}
    return shown, {key: str(value) for key, value in facts.items() if key not in shown}


def _link_to_version(model_id: str, name: str, version: str) -> None:
    """Record a version on its LoggedModel. A tracking server does this itself, MLflow's embedded store does not."""
    logged = store.patiently(store.client().get_logged_model, model_id)
    linked = json.loads(logged.tags.get(VERSIONS_OF_MODEL, "[]"))
    own = {"name": name, "version": version}
    if own not in [{key: str(value) for key, value in entry.items()} for entry in linked]:
        store.patiently(store.client().set_logged_model_tags, model_id, {VERSIONS_OF_MODEL: json.dumps([*linked, own])})


def _search(name: str, query: str) -> list[VersionInfo]:
    model = _or_none(store.client().get_registered_model, name)
    if model is None:
        return []
    aliases: dict[int, tuple[str, ...]] = {}  # a search leaves them out
    for alias, version in sorted(model.aliases.items()):
        aliases[int(version)] = (*aliases.get(int(version), ()), alias)
    newest = ["version_number DESC"]
    model_versions = store.all_pages(store.client().search_model_versions, query, max_results=1000, order_by=newest)
    return [replace(_info(entry), aliases=aliases.get(int(entry.version), ())) for entry in model_versions]


def _info(model_version: ModelVersion) -> VersionInfo:
    return VersionInfo(
        name=model_version.name,
        version=int(model_version.version),
        run_id=model_version.run_id or "",
        model_id=model_version.model_id or (model_version.source or "").removeprefix("models:/"),
        created=datetime.fromtimestamp(model_version.creation_timestamp / 1000, tz=UTC),
        aliases=tuple(model_version.aliases or ()),
        tags=dict(model_version.tags or {}),
        description=model_version.description or "",
    )


def _or_none(call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result | None:
    from mlflow import MlflowException

    try:
        return store.patiently(call, *args, **kwargs)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise
