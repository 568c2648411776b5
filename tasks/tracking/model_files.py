"""The files of a LoggedModel beside the weights: MLflow's own description with an example, and the record of a version.

The record is one JSON file, `version.json`. It holds what is known of a model version beyond the few tags that a
person reads (`tags.FOR_A_PERSON`); lineage and reproduction read it.
"""

from __future__ import annotations

import importlib.metadata
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tasks.tracking import store

RECORD = "version.json"
"""Name of the record among the artifacts of a LoggedModel."""


def write_model(folder: Path, target: Path, task: str, description: object, example: str) -> None:
    """Write `folder` as an MLflow model of the transformers flavour: `model/` is a copy of it, no weight is loaded.

    Args:
        folder: a Hugging Face model folder.
        target: is made.
        task: of a transformers pipeline.
        description: mlflow.models.Model to be completed; its signature is the task's.
        example: a text that the model can be given; none is kept where it is empty.
    """
    import mlflow.transformers
    from huggingface_hub import ModelCard

    here = {package: importlib.metadata.version(package) for package in ("mlflow", "transformers", "torch")}
    card = ModelCard(
        f"---\nlicense: other\npipeline_tag: {task}\n---\nMade by Rewardflow; see the run that logged it.\n"
    )
    mlflow.transformers.save_model(
        transformers_model=str(folder.absolute()),
        path=str(target),
        task=task,
        mlflow_model=description,
        model_card=card,
        input_example=[example] if example else None,
        pip_requirements=[f"{package}=={number.split('+')[0]}" for package, number in here.items()],
    )


def read_record(model_id: str) -> dict[str, str]:
    """The record of the version that a LoggedModel was registered as; empty where there is none."""
    import mlflow
    from mlflow import MlflowException

    try:
        listed = store.patiently(store.client().list_logged_model_artifacts, model_id)
        if RECORD not in {entry.path for entry in listed}:
            return {}
        with tempfile.TemporaryDirectory() as beside:
            at = store.patiently(store.client().get_logged_model, model_id).artifact_location
            address = f"{at.rstrip('/')}/{RECORD}"
            file = store.patiently(mlflow.artifacts.download_artifacts, artifact_uri=address, dst_path=beside)
            return dict(json.loads(Path(file).read_text(encoding="utf-8")))
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":  # the model was deleted; its version and tags may be there
            return {}
        raise


def add_to_record(model_id: str, facts: Mapping[str, str]) -> None:
    """Write `facts` into the record; what stands there under the same names is replaced."""
    if not facts:
        return
    whole = {**read_record(model_id), **{key: str(value) for key, value in facts.items()}}
    with tempfile.TemporaryDirectory() as beside:
        (Path(beside) / RECORD).write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        store.patiently(store.client().log_model_artifacts, model_id, beside)
