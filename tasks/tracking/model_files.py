"""The files of a LoggedModel: MLflow's description with an example, the weights, and the record of its version.

The record is one JSON file, `version.json`. It holds the facts about a model version beyond the few tags that a person
reads (`tags.FOR_A_PERSON`); lineage and reproduction read it.
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from models.base.disk import share_file
from models.policies.base_models.source import BaseModelSource, licence_file, read_source
from tasks.tracking import store

WEIGHTS = "*.safetensors"
CHECKPOINT = "model"
"""Folder with the Hugging Face files inside an MLflow model."""
LICENCE = "LICENSE.txt"
"""Name under which MLflow writes a licence into a model."""
RECORD = "version.json"
"""Name of the record among the artifacts of a LoggedModel."""


def write_model(folder: Path, target: Path, task: str, description: object, example: str) -> None:
    """Write `folder` as an MLflow model of the transformers flavour without its weights; `place_weights` adds them.

    Args:
        folder: a Hugging Face model folder; `model/` of the result contains its other files.
        target: folder to create.
        task: task of a transformers pipeline.
        description: mlflow.models.Model to complete; its signature is the task's.
        example: an example input text for the model; if empty, none is stored.
    """
    import mlflow.transformers
    from huggingface_hub import ModelCard

    here = {package: importlib.metadata.version(package) for package in ("mlflow", "transformers", "torch")}
    source = read_source(folder)
    licence = (source.licence if source else "") or "other"
    card = ModelCard(
        f"---\nlicense: {licence}\npipeline_tag: {task}\n---\nMade by Rewardflow; see the run that logged it.\n"
    )
    light = target.with_name("light")
    shutil.copytree(folder, light, ignore=shutil.ignore_patterns(WEIGHTS), copy_function=shutil.copyfile)
    mlflow.transformers.save_model(
        transformers_model=str(light.absolute()),
        path=str(target),
        task=task,
        mlflow_model=description,
        model_card=card,
        input_example=[example] if example else None,
        pip_requirements=[f"{package}=={number.split('+')[0]}" for package, number in here.items()],
    )
    shutil.rmtree(light)
    # MLflow looks for the licence on the hub, under the folder's name, and writes that it found none.
    (target / LICENCE).unlink(missing_ok=True)
    text = licence_file(folder)
    if text is not None:
        shutil.copyfile(text, target / text.name)
    else:
        (target / LICENCE).write_text(_licence_text(source), encoding="utf-8")


def place_weights(folder: Path, model: Path) -> None:
    """Add the weights of a model folder to the MLflow model that `write_model` created, without a copy if possible.

    Args:
        folder: as in `write_model`.
        model: the MLflow model.
    """
    mode = (model / "MLmodel").stat().st_mode  # as others may read; safetensors files are private to their writer
    for file in sorted(folder.rglob(WEIGHTS)):
        target = model / CHECKPOINT / file.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        share_file(file, target)
        target.chmod(mode)


def _licence_text(source: BaseModelSource | None) -> str:
    """Return the licence text of a model whose folder contains none."""
    if source is None:
        return "No licence is on record for this model: its base model and its data decide.\n"
    stated = f"{source.licence}, as its GGUF file states" if source.licence else "not stated in its GGUF file"
    return f"Trained from {source.origin}.\nLicence of that base model: {stated}.\n"


def read_record(model_id: str) -> dict[str, str]:
    """Return the record of the version that a LoggedModel was registered as; empty if there is none."""
    import mlflow
    from mlflow import MlflowException

    try:
        listed = store.patiently(store.client().list_logged_model_artifacts, model_id)
        if RECORD not in {entry.path for entry in listed}:
            return {}
        with tempfile.TemporaryDirectory() as scratch:
            at = store.patiently(store.client().get_logged_model, model_id).artifact_location
            address = f"{at.rstrip('/')}/{RECORD}"
            file = store.patiently(mlflow.artifacts.download_artifacts, artifact_uri=address, dst_path=scratch)
            return dict(json.loads(Path(file).read_text(encoding="utf-8")))
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":  # the model was deleted; its version and tags may be there
            return {}
        raise


def add_to_record(model_id: str, facts: Mapping[str, str]) -> None:
    """Add `facts` to the record; values already stored under the same names are replaced."""
    if not facts:
        return
    whole = {**read_record(model_id), **{key: str(value) for key, value in facts.items()}}
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / RECORD).write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        store.patiently(store.client().log_model_artifacts, model_id, scratch)
